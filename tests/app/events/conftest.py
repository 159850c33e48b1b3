"""Recorded catalogs, and a workbench of jobs on SQLite metadata, whose clock is the fake one."""

from tests.app.jobs.conftest import postgresql_bench, sqlite_bench  # noqa: F401
from tests.spark.events.catalogs import catalogs, slony_templates  # noqa: F401
