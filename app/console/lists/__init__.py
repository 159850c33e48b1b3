"""Pages 5 and 6, schedules and windows: what is kept, and what may be ended."""
