"""The loops over bytes, compiled by numba. Every read is guarded by the end of what it reads; errors are numbers."""
