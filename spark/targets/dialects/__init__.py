"""The SQL and the driver calls that differ between databases, one module per database."""
