"""Replication: which changes a consumer needs, and in what order they are read."""
