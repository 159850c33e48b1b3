"""Two versions that upgrade one database at once: the older one finds what the newer one has made."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from app.db import Database
from migrations.upgrade import ADVISORY_KEY, upgrade_within
from tests.journeys.service import environment
from tests.spark.events.catalogs import conninfo_of

FORMER, NEWER = "0025", "9999"
WAITED_S = 60.0
LONG_S = 9.0
"""Longer than a statement waits for the writer of a file."""


@contextmanager
def _newer_at_work(database: Database) -> Iterator[None]:
    """Keep the turn for the block, then leave a revision that this version does not know."""
    newer = f"update alembic_version set version_num = '{NEWER}'"
    if database.is_sqlite:
        with closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as file:
            file.execute("begin immediate")
            file.execute(newer)
            yield
            file.execute("commit")
        return
    with psycopg.connect(conninfo_of(database.url.render_as_string(hide_password=False))) as server:
        server.execute("select pg_advisory_xact_lock(%s)", (ADVISORY_KEY,))
        server.execute(newer)
        yield


def _waits(database: Database) -> bool:
    """Whether it is in the queue of the server; on a file nobody can tell."""
    if database.is_sqlite:
        time.sleep(LONG_S)
        return True
    with database.engine.connect() as connection:
        found = connection.exec_driver_sql(
            "select 1 from pg_locks where locktype = 'advisory' and not granted"
        )
        return found.first() is not None


def test_an_older_version_that_waits_while_a_newer_one_upgrades_says_so(
    empty_database: Database, tmp_path: Path
) -> None:
    """It ended with a traceback of Alembic: no such revision 9999."""
    with empty_database.engine.begin() as connection:
        upgrade_within(connection, FORMER)
    url = empty_database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "app.cli.main", "migrate", "--data-dir", str(tmp_path / "data")]
    with _newer_at_work(empty_database):
        older = subprocess.Popen(
            command,
            env=environment({"LETHE_METADATA_URL": url}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until = time.monotonic() + WAITED_S
        while not _waits(empty_database):
            assert older.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
    _, said = older.communicate(timeout=WAITED_S)
    assert (older.returncode, "made by a newer Lethe" in said, "Traceback" in said) == (78, True, False), said
