"""What settings, measurements and thresholds of the pooled Spark session are."""
