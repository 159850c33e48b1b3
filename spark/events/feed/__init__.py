"""The changes of a Slony-I node, read SYNC by SYNC as a subscriber would read them. Reads only."""
