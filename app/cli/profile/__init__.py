"""`lethe login` and `lethe profile`: services by name."""
