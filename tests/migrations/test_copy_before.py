"""The copy of SQLite metadata before its upgrade: whole or not there, and nobody else's to read."""

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.db import Database
from migrations.upgrade import copy_before_upgrade, current_revision, upgrade_within

FORMER = "0025"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(where)]
    try:
        subprocess.run(mount, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system may be mounted here")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True, timeout=10)


def _former(directory: Path) -> None:
    database = Database(f"sqlite:///{directory / 'lethe.db'}")
    with database.engine.begin() as connection:
        upgrade_within(connection, FORMER)
    database.close()


def _migrate(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli.main", "migrate", "--data-dir", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, umask=0o022, check=False)


def test_no_room_for_the_copy_is_said_and_leaves_nothing(small: Path) -> None:
    _former(small)
    room = os.statvfs(small)
    (small / "fill").write_bytes(bytes((room.f_bavail - 50) * room.f_frsize))
    before = sorted(path.name for path in small.iterdir())
    for _ in range(2):
        ended = _migrate(small)
        assert ended.returncode == 78, ended.stderr
        assert "cannot be copied before its upgrade, and was not changed" in ended.stderr
        assert "Make room" in ended.stderr
        assert sorted(path.name for path in small.iterdir()) == before
    database = Database(f"sqlite:///{small / 'lethe.db'}")
    assert current_revision(database) == FORMER
    database.close()


def test_what_a_killed_start_has_left_of_a_copy_goes_and_one_that_is_being_made_stays(tmp_path: Path) -> None:
    _former(tmp_path)
    left, held = tmp_path / "lethe.before-0024.11.new", tmp_path / "lethe.before-0025.12.new"
    for path in (left, tmp_path / f"{left.name}-journal", held):
        path.write_bytes(b"a part of a copy")
    with held.open("rb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        database = Database(f"sqlite:///{tmp_path / 'lethe.db'}")
        copy = copy_before_upgrade(database, FORMER)
        database.close()
    assert copy is not None
    with closing(sqlite3.connect(copy)) as copied:
        assert copied.execute("select version_num from alembic_version").fetchall() == [(FORMER,)]
    assert sorted(path.name for path in tmp_path.glob("lethe.before*")) == [held.name, copy.name]


def test_metadata_that_migrate_makes_is_its_owners_alone(tmp_path: Path) -> None:
    assert _migrate(tmp_path).returncode == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes["lethe.db"] == 0o600
    assert not [name for name, mode in modes.items() if mode & 0o077]
