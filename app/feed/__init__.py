"""What happens to jobs, backups and sessions, in one order that every instance tells alike."""
