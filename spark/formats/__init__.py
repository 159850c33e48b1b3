"""Formats of the stores: bytes, columns and table layouts, without behaviour."""
