"""`lethe metadata restore`, killed before any step: nothing is there, or all, or it says what to do."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import dataclass
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
from tests.app.forged import ended
from tests.app.keeping.conftest import rows_of
from tests.app.keeping.killed_restore import run

KILLS = 3
NEVER = 10**9


@dataclass(frozen=True)
class Restorer:
    """Restores in processes of their own."""

    settings: Settings
    folder: Path

    def restore(self, step: int) -> list[Any]:
        """What became of one."""
        settings = self.settings
        code, said = ended(
            run, str(settings.data_dir), settings.metadata_url or "", str(self.folder), str(step)
        )
        return ["killed"] if code == -signal.SIGKILL else list(json.loads(said.splitlines()[-1]))


@pytest.fixture
def elsewhere(database: Database, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = None if database.is_sqlite else request.getfixturevalue("postgresql_url")
    return Settings(data_dir=tmp_path / "restored", metadata_url=url)


@pytest.fixture
def restorer(elsewhere: Settings, folder: Path) -> Restorer:
    return Restorer(elsewhere, folder)


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
