"""What waits to be delivered by SymmetricDS, over time: who holds a purge back, and whether it grows."""
