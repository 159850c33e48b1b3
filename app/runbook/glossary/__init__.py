"""What the fields of the API mean, by their names."""
