"""Metadata that is an older copy of itself, below several processes: the first start makes it safe, once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.audit.witness import Witness
from app.auth.actions import Action
from app.db import Database
from app.stores.resting import resume_store
from app.stores.rows import Store
from tests.app.audit.ledger import Tables, write
from tests.app.fake_clock import FakeClock

PAST = 5
TICK_S = 0.02


@pytest.fixture
def store(database: Database) -> str:
    with database.transaction() as db:
        now = database.now(db)
        db.add(Store(id="shop", kind="SQL", url="sqlite:////n/shop.db", created_at=now, updated_at=now))
    return "shop"


def _rests(database: Database, store: str) -> bool:
    with database.reading() as db:
        return db.get_one(Store, store).is_suspended


def _resume(database: Database, store: str) -> None:
    with database.transaction() as db:
        resume_store(db, store, now=database.now(db))


def _noted(database: Database) -> list[bool]:
    """Of each start that has found an older copy: whether it made it safe."""
    rows = [row for row in Tables.read(database).events if row["action"] == Action.AUDIT_PUT_BACK]
    return ["suspended_stores" in row["detail"] for row in rows]


def _pass(clock: FakeClock) -> None:
    """Some time goes by, for a metadata with a clock of its own and for one without."""
    clock.advance(TICK_S)
    time.sleep(TICK_S)


def _restored(database: Database, clock: FakeClock, witnesses: list[Witness]) -> None:
    """What all have seen is lost."""
    former = Tables.read(database)
    write(database, PAST)
    for witness in witnesses:
        witness.look()
    _pass(clock)
    former.put(database)


def test_process_that_starts_later_holds_nothing_that_goes_on_since(
    database: Database, clock: FakeClock, store: str, tmp_path: Path
) -> None:
    """Each has its own memory of the chain: one that started an hour later paused what ran by then."""
    write(database, PAST)
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (Witness(database, folder, lambda _store: True) for folder in folders)
    _restored(database, clock, [one, two])
    one.begin()
    assert _rests(database, store)
    _resume(database, store)
    two.begin()
    assert not _rests(database, store), "somebody has said that it goes on"
    assert _noted(database) == [True, False]


def test_next_older_copy_is_made_safe_again(
    database: Database, clock: FakeClock, store: str, tmp_path: Path
) -> None:
    write(database, PAST)
    witness = Witness(database, tmp_path, lambda _store: True)
    for _ in range(2):
        _restored(database, clock, [witness])
        witness.begin()
        assert _rests(database, store)
        _resume(database, store)
        _pass(clock)
    assert _noted(database) == [True, True]
