"""What had a time for its sequence goes on from it: nobody who remembers the last one misses the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from app.db import Database
from app.stores.telling import StoreChange, tell_change

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
FAR = 4_000_000_000_000_000
"""Of an instance whose clock was years ahead."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def former(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A metadata database as version 0024 left it, with events."""
    url = f"sqlite:///{tmp_path / 'lethe.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql_url")
    database = Database(url)
    _migrate(database, "0024", command.upgrade)
    event = "insert into feed_events (id, at, type, kind, store, subject, seq, data)"
    with database.transaction() as db:
        for number, (kind, seq) in enumerate({"STORE": FAR, "WINDOW": 7, "PURGE": FAR + 5}.items()):
            text = f"'fev_{number}', '2026-11-20 12:00:00.000000', 'x', '{kind}', null, 'x', {seq}"
            values = text + ", '{}'"
            db.execute(sa.text(f"{event} values ({values})"))
    yield database
    database.close()


def _migrate(database: Database, revision: str, way: Callable[[Config, str], None]) -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with database.engine.begin() as connection:
        config.attributes["connection"] = connection
        way(config, revision)


def _sequence(database: Database) -> int:
    with database.reading() as db:
        return int(db.execute(sa.text("select max(seq) from feed_events where type = 'store'")).scalar_one())


def test_sequence_goes_on_from_the_former_ones(former: Database) -> None:
    _migrate(former, "0025", command.upgrade)
    with former.transaction() as db:
        tell_change(db, "shop", StoreChange.CHANGED, now=NOON)
    assert _sequence(former) == FAR + 1


def test_way_down_leaves_nothing_of_it(former: Database) -> None:
    _migrate(former, "0025", command.upgrade)
    _migrate(former, "0024", command.downgrade)
    with former.reading() as db:
        assert db.execute(sa.text("select count(*) from feed_numbers")).scalar_one() == 0
    _migrate(former, "0025", command.upgrade)
    with former.reading() as db:
        assert db.execute(sa.text("select last from feed_numbers")).scalar_one() == FAR
