"""An upgrade that waits says for whom."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from app.db import Database
from migrations.upgrade import ADVISORY_KEY, current_revision, head_revision, upgrade_within
from tests.journeys.service import environment
from tests.spark.events.catalogs import conninfo_of

pytestmark = pytest.mark.postgresql

FORMER = "0025"
PATIENCE_S = 30.0
HELD = {
    "a table, by a session that forgot its transaction": "select count(*) from jobs",
    "the turn, by a backup": f"select pg_advisory_xact_lock_shared({ADVISORY_KEY})",
}
SAID = {
    "a table, by a session that forgot its transaction": "sessions that hold its tables",
    "the turn, by a backup": "another migration, a backup or a restore",
}


@pytest.mark.parametrize("what", HELD)
def test_an_upgrade_that_waits_names_whom_and_ends_with_him(
    postgresql_url: str, tmp_path: Path, what: str
) -> None:
    """It waited for up to a quarter of an hour, and said nothing."""
    database = Database(postgresql_url)
    with database.engine.begin() as connection:
        upgrade_within(connection, FORMER)
    errors = tmp_path / "errors"
    command = [sys.executable, "-m", "app.cli.main", "migrate", "--data-dir", str(tmp_path / "data")]
    settings = environment({"LETHE_METADATA_URL": postgresql_url})
    with errors.open("wb") as stderr, psycopg.connect(conninfo_of(postgresql_url)) as holder:
        holder.execute(HELD[what])
        pid = holder.info.backend_pid
        migrating = subprocess.Popen(command, env=settings, stdout=stderr, stderr=stderr)
        until = time.monotonic() + PATIENCE_S
        while SAID[what] not in errors.read_text() and time.monotonic() < until:
            assert migrating.poll() is None, errors.read_text()
            time.sleep(0.1)
    assert migrating.wait(PATIENCE_S) == 0, errors.read_text()
    said = errors.read_text()
    assert SAID[what] in said
    assert "jobs" not in HELD[what] or str(pid) in said
    assert current_revision(database) == head_revision()
    database.close()
