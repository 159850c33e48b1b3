"""Figures that grow in the metadata, so that a scrape adds up nothing."""
