"""What Prometheus reads: figures of the metadata, and of this process."""

from app.metrics.exposition import MetadataCollector, render_metrics

__all__ = ["MetadataCollector", "render_metrics"]
