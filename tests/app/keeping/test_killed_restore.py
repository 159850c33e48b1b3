"""`lethe metadata restore`, killed before any step: nothing is there, or all, or it says what to do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from app.db import Database
from app.keeping.check import check_live
from app.keeping.postgresql_copy import check_empty
from app.keeping.restore import SIDE_FILES, restore
from app.settings import Settings
from app.starting import Misconfigured, open_metadata, using
from tests.app.keeping.conftest import rows_of

ROOT = Path(__file__).parents[3]
KILLS = 4
NEVER = 10**9


class Restorer:
    """The program that forks them."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._order = {
            "data_dir": str(settings.data_dir),
            "metadata_url": settings.metadata_url,
            "backup": str(folder),
        }
        command = [sys.executable, "-m", "tests.app.keeping.killed_restore"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
        )

    def restore(self, step: int) -> list[Any]:
        """What became of one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(self._order | {"step": step}) + "\n")
        self.process.stdin.flush()
        return list(json.loads(self.process.stdout.readline()))


@pytest.fixture
def elsewhere(database: Database, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = None if database.is_sqlite else request.getfixturevalue("postgresql_url")
    return Settings(data_dir=tmp_path / "restored", metadata_url=url)


@pytest.fixture
def restorer(elsewhere: Settings, folder: Path) -> Iterator[Restorer]:
    found = Restorer(elsewhere, folder)
    yield found
    found.process.communicate()


def _empty(settings: Settings) -> None:
    """What a start says is to be done."""
    shutil.rmtree(settings.data_dir, ignore_errors=True)
    database = open_metadata(settings)
    if not database.is_sqlite:
        with database.engine.begin() as connection:
            connection.execute(sa.text("drop schema public cascade"))
            connection.execute(sa.text("create schema public"))
    database.close()


def _state(settings: Settings, whole: dict[str, list[str]]) -> str:
    """What a start finds: NOTHING, UNFINISHED (and it says what to do) or WHOLE; anything else fails."""
    try:
        with using(settings.data_dir):
            pass
    except Misconfigured as error:
        return "UNFINISHED" if "did not end: empty it" in str(error) else str(error)
    database = open_metadata(settings)
    try:
        if not any(settings.data_dir.iterdir()):
            if not database.is_sqlite:
                check_empty(database)
            assert not any(Path(f"{database.url.database}{suffix}").exists() for suffix in SIDE_FILES)
            return "NOTHING"
        assert rows_of(database) == whole
    finally:
        database.close()
    assert check_live(settings).ok
    return "WHOLE"


def _each_ends_well(
    restorer: Restorer, settings: Settings, whole: dict[str, list[str]], *, kills: int | None
) -> set[str]:
    _empty(settings)
    ended, steps = restorer.restore(NEVER)
    assert ended == "ended"
    assert _state(settings, whole) == "WHOLE"
    found = set()
    last = range(steps - 12, steps + 1)
    chosen = range(1, steps + 1)
    if kills is not None:
        rng = Random(kills)
        chosen = sorted({*rng.sample(range(1, steps - 12), kills - 2), *rng.sample(last, 2)})  # type: ignore[assignment]
    for step in chosen:
        _empty(settings)
        assert restorer.restore(step)[0] == "killed"
        found.add(_state(settings, whole))
    return found


def test_restore_that_is_killed_leaves_all_or_nothing_or_says_so(
    database: Database, folder: Path, restorer: Restorer, elsewhere: Settings
) -> None:
    _each_ends_well(restorer, elsewhere, rows_of(database), kills=KILLS)
    _empty(elsewhere)
    restore(elsewhere, folder, lambda _text: None)
    assert _state(elsewhere, rows_of(database)) == "WHOLE"


@pytest.mark.long
def test_restore_that_is_killed_at_any_step_leaves_all_or_nothing_or_says_so(
    database: Database, restorer: Restorer, elsewhere: Settings
) -> None:
    kills = None if database.is_sqlite else 60  # one on PostgreSQL takes a second
    found = _each_ends_well(restorer, elsewhere, rows_of(database), kills=kills)
    assert found >= ({"NOTHING", "UNFINISHED", "WHOLE"} if kills is None else {"UNFINISHED"})
