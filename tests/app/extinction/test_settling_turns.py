"""Which replicas a look asks: with a reason first, all in the end, and who does not answer less often."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest

from app.db import Database
from app.extinction.rows import ExtinctionRow, ExtinctionState
from app.extinction.scan.settling import ASKED_PER_LOOK_MAX, REST_MAX, Settling
from app.kit.rests import Rest
from app.replication.replica.replicas import note_supplied
from app.settings import Settings
from app.stores.rows import Store, StoreKind

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
MANY = 3 * ASKED_PER_LOOK_MAX + 7


@dataclass(frozen=True, slots=True)
class Watched(Settling):
    """A look that tells whom it has asked; some do not answer."""

    asked: list[str] = field(default_factory=list)
    away: frozenset[str] = frozenset()

    def _settle(self, store: Store) -> list[str] | None:
        self.asked.append(store.id)
        return None if store.id in self.away else []


@dataclass(frozen=True)
class Looks:
    """Looks that follow each other."""

    database: Database
    settings: Settings
    rests: dict[str, Rest] = field(default_factory=dict)

    def asked(self, second: float, *, away: frozenset[str] = frozenset()) -> list[str]:
        now = NOON + timedelta(seconds=second)
        look = Watched(self.database, self.settings, now, rests=self.rests, away=away)
        assert look.run() == []
        return sorted(look.asked)


@pytest.fixture
def looks(database: Database, settings: Settings) -> Looks:
    return Looks(database, settings)


def _add(database: Database, *names: str, **fields: Any) -> None:
    with database.transaction() as db:
        db.add_all(
            Store(
                id=name,
                kind=StoreKind.REPLICA,
                url=f"sqlite:////nowhere/{name}.db",
                table_prefix="replica_",
                rid=1,
                created_at=NOON,
                updated_at=NOON,
                **fields,
            )
            for name in names
        )


def _open_extinction(database: Database, store: str) -> None:
    with database.transaction() as db:
        db.add(
            ExtinctionRow(
                id=f"ext_{store}",
                store=store,
                databases=["ZGI="],
                start_key="YQ==",
                end_key=None,
                label="old",
                state=ExtinctionState.SCANNING,
                created_at=NOON,
            )
        )


def test_every_replica_has_its_turn_however_many_there_are(looks: Looks) -> None:
    names = [f"r{number:04}" for number in range(MANY)]
    _add(looks.database, *names)
    turns = [looks.asked(3 * number) for number in range(5)]
    assert [len(turn) for turn in turns] == [ASKED_PER_LOOK_MAX] * 3 + [7, 0]
    assert sorted(chain.from_iterable(turns)) == names


def test_who_has_a_reason_goes_before_those_who_have_waited(looks: Looks) -> None:
    _add(looks.database, *(f"r{number:04}" for number in range(MANY)), "zz-open", "zz-supplied")
    _open_extinction(looks.database, "zz-open")
    note_supplied("zz-supplied")
    first, second, third = (looks.asked(3 * number) for number in range(3))
    assert {"zz-open", "zz-supplied"} <= set(first)
    assert "zz-open" in second
    assert "zz-supplied" not in second
    note_supplied("zz-supplied")
    assert {"zz-open", "zz-supplied"} <= set(looks.asked(9))
    assert len(first) == len(second) == len(third) == ASKED_PER_LOOK_MAX


def test_of_too_many_with_a_reason_none_is_forgotten(looks: Looks) -> None:
    names = [f"r{number:04}" for number in range(MANY)]
    _add(looks.database, *names)
    for number in range(4):
        looks.asked(3 * number)
    for name in names:
        note_supplied(name)
    turns = [looks.asked(12 + 3 * number) for number in range(5)]
    assert [len(turn) for turn in turns] == [ASKED_PER_LOOK_MAX] * 3 + [7, 0]
    assert sorted(chain.from_iterable(turns)) == names


def test_one_with_something_open_that_does_not_answer_is_asked_less_often_until_it_does(looks: Looks) -> None:
    _add(looks.database, "gone")
    _open_extinction(looks.database, "gone")
    gone = frozenset({"gone"})
    assert [second for second in range(100) if looks.asked(second, away=gone)] == [0, 5, 15, 35, 65, 95]
    note_supplied("gone")
    assert [second for second in range(100, 104) if looks.asked(second)] == [100, 101, 102, 103]


def test_one_without_anything_open_that_does_not_answer_rests_like_any_other(looks: Looks) -> None:
    _add(looks.database, "gone")
    gone = frozenset({"gone"})
    assert [second for second in range(100) if looks.asked(second, away=gone)] == [0, 30, 90]
    for _ in range(6):
        looks.asked((looks.rests["gone"].until - NOON).total_seconds(), away=gone)
    assert looks.rests["gone"].length == REST_MAX


def test_suspended_and_distant_stores_are_nobodys_turn(looks: Looks) -> None:
    _add(looks.database, *(f"a{number:04}" for number in range(MANY)), runs_on=["elsewhere"])
    _add(looks.database, "still", is_suspended=True)
    _add(looks.database, "zz")
    assert looks.asked(0) == ["zz"]
    assert looks.asked(30) == ["zz"]
    with looks.database.transaction() as db:
        db.delete(db.get_one(Store, "zz"))
    assert looks.asked(500) == []
    assert looks.rests == {}
