"""Rows of the service's own metadata, read past the service."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from tests.http.service_process import ServiceProcess

# What only a change over HTTP writes; instances and counters live by themselves. Rows with a version get the
# next one with every change.
QUERIES = (
    "select id, version from stores order by id",
    "select id, version from jobs order by id",
    "select id, revoked_at from tokens order by id",
    "select * from global_parameters order by name",
    "select count(*) from job_events where type <> 'progress'",  # those are thinned out by themselves
    "select count(*) from audit_events",
    "select count(*) from idempotency_keys",
)


class MetadataRows:
    """Reads the tables of one service."""

    def __init__(self, service: ServiceProcess) -> None:
        self._service = service

    def query(self, *statements: str) -> list[Any]:
        """All rows of statements that both engines understand."""
        if self._service.metadata_url is None:
            path = self._service.data_dir / "lethe.db"
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                return [row for sql in statements for row in connection.execute(sql)]
        url = make_url(self._service.metadata_url).set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(hide_password=False)) as connection:
            return [row for sql in statements for row in connection.execute(sql)]

    def execute(self, statement: str) -> None:
        """Change rows behind the service's back: time that has passed, a crash that has happened."""
        if self._service.metadata_url is None:
            path = self._service.data_dir / "lethe.db"
            with closing(sqlite3.connect(path, timeout=10)) as connection, connection:
                connection.execute(statement)
            return
        url = make_url(self._service.metadata_url).set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(hide_password=False)) as connection:
            connection.execute(statement)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Assert that the block leaves all these rows as they were."""
        before = self.query(*QUERIES)
        yield
        after = self.query(*QUERIES)
        assert after == before, [row for row in after if row not in before]
