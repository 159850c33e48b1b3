"""The purge of SymmetricDS: inspection, plan, ranges and units, on one target connection."""
