"""Slony-I: the catalog of a cluster, its cleanup and its log switch."""
