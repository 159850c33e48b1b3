"""Targets: connections to the databases Lethe works on, and the domain-free pieces of all SQL domains."""
