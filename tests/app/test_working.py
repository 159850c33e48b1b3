"""A process gives back what it holds, whatever becomes of its metadata."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.db import Database
from app.jobs.running.instances import InstanceLock
from app.settings import Settings
from app.working import Worker

ROOT = Path(__file__).parents[2]


def test_worker_without_its_metadata_stops_and_frees_its_directory(
    settings: Settings, tmp_path: Path
) -> None:
    away = Database(f"sqlite:///{tmp_path / 'nowhere' / 'lethe.db'}")
    Worker(settings, away, role="worker").stop()
    InstanceLock(settings.data_dir).release()


GONE = """
import sys
from contextlib import contextmanager
from pathlib import Path
from app import server
from app.db import Database
from app.errors import MetadataUnavailable
from app.settings import Settings
left, whole = [int(sys.argv[2])], Database.transaction
@contextmanager
def transaction(self, **more):
    if left[0]:
        left[0] -= 1
        raise MetadataUnavailable("connection refused")
    with whole(self, **more) as db:
        yield db
Database.transaction = transaction
sys.exit(getattr(server, sys.argv[1])(Settings(data_dir=Path(sys.argv[3]), metadata_url=sys.argv[4], port=0)))
"""
"""A process whose metadata goes away right after its start has looked at it, for so many transactions."""


def _started(verb: str, times: int, directory: Path, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", GONE, verb, str(times), str(directory), url],
        cwd=ROOT, env=os.environ | {"LETHE_SPARK__ENABLED": "false"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.postgresql
def test_worker_whose_metadata_goes_while_it_starts_waits_for_it(
    tmp_path: Path, migrated_postgresql: str
) -> None:
    """The storm: it ended with 70, as by a bug, and a file to report."""
    said = []
    with _started("run_worker", 2, tmp_path, migrated_postgresql) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if '"started"' in line:
                process.terminate()
    assert process.returncode == 0, said
    assert [line for line in said if "metadata away" in line], said


@pytest.mark.postgresql
def test_service_whose_metadata_goes_while_it_starts_says_try_again(
    tmp_path: Path, migrated_postgresql: str
) -> None:
    process = _started("serve", 1, tmp_path, migrated_postgresql)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75, said
    assert said.splitlines()[-1] == "lethe: the metadata database cannot be reached"
