"""Agreements that have nothing to send rest; whose target cannot be read is asked about ever less often."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from sqlmodel import col, update

from app.db import Database
from app.kit.rests import Rest
from app.replication.agreements.tick import Look
from app.replication.rows import Agreement, AgreementState
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from tests.app.agreements import agreement_of
from tests.app.many import add_many, padded

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Watched(Look):
    """A look that tells which agreements' targets it has asked."""

    asked: list[str] = field(default_factory=list)

    def _unsent(self, store: Store, due: list[Agreement]) -> list[Agreement]:
        self.asked.extend(each.id for each in due)
        return super()._unsent(store, due)


TIMES = {"created_at": NOON, "updated_at": NOON}


def _store(name: str, url: str) -> Store:
    return Store(id=name, kind=StoreKind.REPLICA, url=url, table_prefix="replica_", rid=1, **TIMES)


def _agreement(
    store: str, *, interval_s: float | None, state: AgreementState = AgreementState.REGISTERED
) -> Agreement:
    return agreement_of(store, NOON, interval_s=interval_s, state=state)


def _add(
    database: Database,
    name: str,
    url: str,
    *,
    interval_s: float | None,
    state: AgreementState = AgreementState.REGISTERED,
) -> None:
    with database.transaction() as db:
        db.add(_store(name, url))
        db.flush()
        db.add(_agreement(name, interval_s=interval_s, state=state))


@pytest.mark.parametrize(
    ("url", "interval_s", "seconds"),
    [
        ("sqlite:////nowhere/gone.db", 600.0, [0, 5, 15, 35, 65, 95]),
        ("sqlite:////nowhere/gone.db", 2.0, [0, 5, 15, 35, 65, 95]),
        ("", 600.0, list(range(0, 100, 5))),
        ("", 2.0, list(range(0, 100, 2))),
    ],
)
def test_target_is_asked_again_after_the_rest_or_a_shorter_interval(
    database: Database, settings: Settings, tmp_path: Path, url: str, interval_s: float, seconds: list[int]
) -> None:
    _add(database, "one", url or f"sqlite:///{tmp_path}/replica.db", interval_s=interval_s)
    rests: dict[str, Rest] = {}
    asked = []
    for second in range(100):
        look = Watched(database, settings, NOON + timedelta(seconds=second), rests=rests)
        assert look.run() == []
        asked += [second for _ in look.asked]
    assert asked == seconds


def test_every_agreement_has_its_turn_however_many_there_are(database: Database, settings: Settings) -> None:
    with database.transaction() as db:
        named: dict[str, Any] = {"id": lambda number: "s" + padded(number, 4)}
        add_many(db, _store("s0000", "sqlite:////nowhere/gone.db"), 1_200, **named)
        named = {"id": lambda number: "agr_s" + padded(number, 4), "store": named["id"]}
        add_many(db, _agreement("s0000", interval_s=None), 1_200, **named)
        db.execute(update(Agreement).where(col(Agreement.id) == "agr_s1199").values(interval_s=60.0))
    look = Watched(database, settings, NOON)
    assert look.run() == []
    assert look.asked == ["agr_s1199"]


def test_targets_are_asked_side_by_side(database: Database, settings: Settings) -> None:
    names = [f"s{number}" for number in range(6)]
    for name in names:
        _add(database, name, "sqlite:////nowhere/gone.db", interval_s=60.0)
    together = Barrier(len(names), timeout=10.0)

    class Meeting(Watched):
        def _unsent(self, store: Store, due: list[Agreement]) -> list[Agreement]:
            together.wait()
            return super()._unsent(store, due)

    look = Meeting(database, settings, NOON)
    assert look.run() == []
    assert sorted(look.asked) == [f"agr_{name}" for name in names]


def test_target_that_cannot_be_told_of_an_agreement_rests_too(database: Database, settings: Settings) -> None:
    _add(
        database,
        "one",
        "sqlite:////nowhere/gone.db",
        interval_s=None,
        state=AgreementState.REGISTERING,
    )
    rests: dict[str, Rest] = {}
    for second, until in ((0, 5), (4, 5), (5, 15), (15, 35), (35, 65), (65, 95)):
        Look(database, settings, NOON + timedelta(seconds=second), rests=rests).run()
        assert rests["agr_one"].until == NOON + timedelta(seconds=until)
    with database.transaction() as db:
        db.delete(db.get_one(Agreement, "agr_one"))
    Look(database, settings, NOON + timedelta(seconds=100), rests=rests).run()
    assert rests == {}
