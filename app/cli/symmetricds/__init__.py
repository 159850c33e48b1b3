"""`lethe symmetricds`: what a database of SymmetricDS still has to deliver."""
