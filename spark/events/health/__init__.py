"""The health of a node of Slony-I: what is read of it, and what is wrong with that."""
