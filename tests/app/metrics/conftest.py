"""The workbench of jobs."""

from tests.app.jobs.conftest import bench, sqlite_bench

__all__ = ["bench", "sqlite_bench"]
