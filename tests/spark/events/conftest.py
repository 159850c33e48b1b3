"""The recorded catalogs as fixtures."""

from tests.spark.events.catalogs import catalogs, slony_templates  # noqa: F401
