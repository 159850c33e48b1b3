"""What Prometheus reads: figures of the metadata, and of this process."""
