"""The loops over bytes, compiled by numba. Every read is guarded by an end; errors are numbers."""
