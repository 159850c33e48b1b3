"""The runbook: what each code means, what to do next, and whether it passes by itself."""
