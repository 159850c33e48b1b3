"""Stranded rows of sym_data are captured again by SymmetricDS's own triggers before they go."""
