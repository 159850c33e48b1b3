"""Texts that clients read: errors without secrets, links into the documentation."""
