"""What a job has reached, in sentences: one function for each model of a result."""
