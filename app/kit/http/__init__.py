"""What stands around every request: the names of its query, readers that stall."""
