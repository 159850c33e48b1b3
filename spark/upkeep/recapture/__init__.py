"""Stranded rows are captured anew before they go: by SymmetricDS's own triggers, or as a copy of a delete."""
