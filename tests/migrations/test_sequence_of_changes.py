"""What had a time for its sequence goes on from it: nobody who remembers the last one misses the next."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from app.db import Database
from app.stores.telling import StoreChange, tell_change
from tests.migrations.steps import step_down, step_up

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
FAR = 4_000_000_000_000_000
"""Of an instance whose clock was years ahead."""


@pytest.fixture
def former(empty_database: Database) -> Database:
    """A metadata database as version 0024 left it, with events."""
    database = empty_database
    step_up(database, "0024")
    event = "insert into feed_events (id, at, type, kind, store, subject, seq, data)"
    with database.transaction() as db:
        for number, (kind, seq) in enumerate({"STORE": FAR, "WINDOW": 7, "PURGE": FAR + 5}.items()):
            text = f"'fev_{number}', '2026-11-20 12:00:00.000000', 'x', '{kind}', null, 'x', {seq}"
            values = text + ", '{}'"
            db.execute(sa.text(f"{event} values ({values})"))
    return database


def _sequence(database: Database) -> int:
    with database.reading() as db:
        return int(db.execute(sa.text("select max(seq) from feed_events where type = 'store'")).scalar_one())


def test_sequence_goes_on_from_the_former_ones(former: Database) -> None:
    step_up(former, "0025")
    with former.transaction() as db:
        tell_change(db, "shop", StoreChange.CHANGED, now=NOON)
    assert _sequence(former) == FAR + 1


def test_way_down_leaves_nothing_of_it(former: Database) -> None:
    step_up(former, "0025")
    step_down(former, "0024")
    with former.reading() as db:
        assert db.execute(sa.text("select count(*) from feed_numbers")).scalar_one() == 0
    step_up(former, "0025")
    with former.reading() as db:
        assert db.execute(sa.text("select last from feed_numbers")).scalar_one() == FAR
