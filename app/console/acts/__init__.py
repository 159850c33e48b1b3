"""Page 4: acts of a store, from a form over a plan to a job."""
