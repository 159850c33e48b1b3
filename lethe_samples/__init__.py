"""Writers of sample data, for the demo, tests and benchmarks. They are not in the wheel."""
