"""What has changed in a replica, and what became of it."""
