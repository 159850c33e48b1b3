"""`lethe status`, `lethe events`, `lethe whoami`: all stores at one look."""
