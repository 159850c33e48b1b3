"""Whether servers of 389 Directory Server have lost changes, by the files that they leave behind."""
