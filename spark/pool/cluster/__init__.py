"""What executors beyond this process need: packages, a secret, pods."""
