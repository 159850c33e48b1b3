"""The operator's console: pages for people, above the API of the same process."""
