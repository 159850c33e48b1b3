"""The purge ROWS: old rows of any table, of a catalog that is read when the purge begins."""
