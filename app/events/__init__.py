"""Slony-I: events, confirmations, waiting, cleanup and log switch."""
