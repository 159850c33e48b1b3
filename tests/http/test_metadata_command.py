"""`lethe metadata` as a process: killed at any moment, on a full disk, and what it says to whom."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.keeping.check import check_backup
from app.keeping.errors import NotKept
from app.keeping.restore import restore
from app.settings import Settings
from tests.forge import start_lethe
from tests.http.service_process import LETHE, ServiceProcess, environment, run_to_end

KILLS = 3
KILLS_LONG = 100
WITHIN_S = 0.35
FILLING_ROWS = 40_000


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a service has left, with some megabytes of metadata."""
    service = ServiceProcess(tmp_path_factory.mktemp("service")).start()
    assert service.stop() == 0
    with closing(sqlite3.connect(service.data_dir / "lethe.db")) as database, database:
        database.executemany(
            "insert into audit_events (id, at, actor, action, subject_type, subject_id, detail)"
            " values (?, '2026-01-01 00:00:00', 'somebody', 'store.change', 'store', 'x', ?)",
            ((f"aud_{number}", json.dumps("x" * 100)) for number in range(FILLING_ROWS)),
        )
    return service.data_dir


def _metadata(*words: str | Path) -> tuple[int, dict[str, Any], str]:
    done = run_to_end(["metadata", *map(str, words), "--json"])
    return done.returncode, dict(json.loads(done.stdout)), done.stderr


@pytest.mark.parametrize("kills", [KILLS, pytest.param(KILLS_LONG, marks=pytest.mark.long)])
def test_backup_that_is_killed_is_whole_or_none(data_dir: Path, tmp_path: Path, kills: int) -> None:
    rng = Random(kills)
    found = set()
    elsewhere = Settings(data_dir=tmp_path / "restored")
    for number in range(kills):
        place = tmp_path / f"backup{number}"
        with (tmp_path / "log").open("ab") as log:
            command = [LETHE, "metadata", "backup", place, "--data-dir", data_dir]
            process = start_lethe(command, env=environment({}), log=log)
            deadline = time.monotonic() + 20
            while not place.exists() and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, WITHIN_S))
            process.kill()
            process.wait(20)
        whole = (place / "manifest.json").exists()
        found.add(whole)
        if whole:
            assert check_backup(place).ok
            continue
        for refused in (partial(check_backup, place), partial(restore, elsewhere, place, print)):
            with pytest.raises(NotKept) as error:
                refused()
            assert error.value.code == "BACKUP_UNFINISHED"
        assert not elsewhere.data_dir.exists()
    assert found == {True, False} or kills < KILLS_LONG


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(where)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("it takes the right to mount a file system")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_full_disk_leaves_no_backup_and_no_data_directory(
    data_dir: Path, small_disk: Path, tmp_path: Path
) -> None:
    code, said, errors = _metadata("backup", small_disk / "backup", "--data-dir", data_dir)
    assert (code, said["code"]) in [(1, "SQLITE_REFUSED"), (1, "FILE_REFUSED")], said
    assert "Make room" in errors
    assert not (small_disk / "backup" / "manifest.json").exists()
    for path in (small_disk / "backup").iterdir():
        path.unlink()
    whole = tmp_path / "whole"
    assert _metadata("backup", whole, "--data-dir", data_dir)[0] == 0
    code, said, _ = _metadata("restore", whole, "--data-dir", small_disk / "restored")
    assert (code, said["code"]) == (1, "FILE_REFUSED"), said
    assert list((small_disk / "restored").iterdir()) == []


def test_command_tells_people_what_to_do_next(data_dir: Path, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    done = run_to_end(["metadata", "backup", backup, "--data-dir", str(data_dir)])
    assert done.returncode == 0
    assert "archives" in done.stderr
    assert "revision" in done.stdout
    done = run_to_end(["metadata", "restore", backup, "--data-dir", str(tmp_path / "restored")])
    assert done.returncode == 0
    assert "former service does not run" in done.stdout
    code, said, _ = _metadata("check", tmp_path / "nothing")
    assert (code, said["code"]) == (78, "BACKUP_NOT_FOUND")


def test_there_is_no_way_down_and_what_to_do_is_said(tmp_path: Path) -> None:
    done = run_to_end(["migrate", "--down", "--data-dir", str(tmp_path / "none"), "--json"])
    assert (done.returncode, json.loads(done.stdout)["code"]) == (78, "NO_WAY_DOWN")
    assert "lethe metadata restore" in done.stderr
    assert not (tmp_path / "none").exists()
