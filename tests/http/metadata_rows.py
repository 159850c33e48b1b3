"""Rows of the service's own metadata, read past the service."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from tests.http.service_process import ServiceProcess

# What only a change over HTTP writes; instances and counters live by themselves.
TABLES = ("stores", "jobs", "job_events", "tokens", "global_parameters", "audit_events", "idempotency_keys")


class MetadataRows:
    """Reads the tables of one service."""

    def __init__(self, service: ServiceProcess) -> None:
        self._service = service

    def query(self, sql: str) -> list[Any]:
        """Rows of a statement that both engines understand."""
        if self._service.metadata_url is None:
            path = self._service.data_dir / "lethe.db"
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                return connection.execute(sql).fetchall()
        url = make_url(self._service.metadata_url).set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(hide_password=False)) as connection:
            return connection.execute(sql).fetchall()

    def digest(self) -> str:
        """Hash of every row that a change over HTTP writes."""
        rows = {table: sorted(map(repr, self.query(f"select * from {table}"))) for table in TABLES}
        return hashlib.sha256(repr(rows).encode()).hexdigest()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Assert that the block leaves all these rows as they were."""
        before = self.digest()
        yield
        assert self.digest() == before
