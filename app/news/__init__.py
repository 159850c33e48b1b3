"""Who rests until somebody has written: when to look again, and hearing of what others write."""
