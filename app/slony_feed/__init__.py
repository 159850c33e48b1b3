"""The job that carries a Slony-I node's changes into a replica."""
