"""The changes of a Slony-I node, carried SYNC by SYNC into a replica, each exactly once."""
