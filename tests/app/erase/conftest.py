"""A store with a log of zeros, fake hands, a fake clock, and a runner that is driven step by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from app.db import Database
from app.settings import Settings
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog
from tests.app.erase.ledger import Ledger
from tests.app.fake_clock import FakeClock


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", erasure_wait_in_job_s=0.0, progress_interval_s=0.0)


@pytest.fixture
def log(tmp_path: Path) -> FakeLog:
    """Three files of a log, of which the last one is never erased."""
    directory = tmp_path / "environment"
    directory.mkdir()
    found = FakeLog(directory)
    for number in range(3):
        found.add(number, rounds=2)
    return found


def _without_fsync(connection: Any, _record: Any) -> None:
    """Hundreds of small transactions: these tests are about rows, not about power cuts."""
    connection.execute("pragma synchronous=off")


@pytest.fixture
def erasers(
    sqlite_database: Database, settings: Settings, clock: FakeClock, log: FakeLog
) -> Iterator[Erasers]:
    event.listen(sqlite_database.engine, "connect", _without_fsync)
    made = Erasers(sqlite_database, settings, clock, log)
    made.add_store()
    yield made
    assert log.open_hands == 0, "hands were not given back"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "environment"
    made.mkdir()
    return made


@pytest.fixture
def ledger(database: Database, settings: Settings, clock: FakeClock, directory: Path) -> Ledger:
    return Ledger(database, settings, clock, directory)
