"""Units of many jobs, gathered into few jobs of Spark."""
