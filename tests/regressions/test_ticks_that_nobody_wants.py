"""A tick submitted purges that the store's owner had said no to: one whose own switch was false, because the
switch of all three was true; and one that was switched off after the look for due ticks had begun.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlmodel import select

from app.db import Database
from app.jobs.rows import Job
from app.purge.models import PurgeKind
from app.purge.tick import list_ticks, tick_once
from app.settings import Settings
from app.stores.rows import Store, StoreKind
from tests.app.fake_clock import FakeClock

ALL_ON = {"start.purge.job": True}


def _add(database: Database, clock: FakeClock, name: str, parameters: dict[str, Any]) -> None:
    with database.transaction() as db:
        store = Store(
            id=name,
            kind=StoreKind.SYMMETRICDS,
            url=f"sqlite:////nowhere/{name}.db",
            created_at=clock.now(),
            updated_at=clock.now(),
            parameters=parameters,
        )
        db.add(store)


def _jobs(database: Database) -> list[tuple[str | None, str]]:
    with database.reading() as db:
        return [(job.store, job.params["kind"]) for job in db.exec(select(Job).order_by(Job.id)).all()]


def test_purge_whose_own_switch_is_off_is_not_submitted_by_the_switch_of_all(
    database: Database, settings: Settings
) -> None:
    clock = FakeClock()
    _add(database, clock, "keeps", ALL_ON | {"start.purge.outgoing.job": False})
    _add(database, clock, "shop", ALL_ON | {"start.purge.incoming.job": False})
    tick_once(database, settings, now=clock.now())
    with database.reading() as db:
        kinds = [item.kind for item in list_ticks(db, db.get_one(Store, "keeps"), now=clock.now())]
    assert kinds == [PurgeKind.INCOMING]
    later = clock.now() + timedelta(days=1)
    assert len(tick_once(database, settings, now=later)) == 3
    assert sorted(_jobs(database)) == [("keeps", "INCOMING"), ("shop", "DATA_GAP"), ("shop", "OUTGOING")]


def test_store_that_is_switched_off_while_others_tick_is_left_alone(
    database: Database, settings: Settings
) -> None:
    clock = FakeClock()
    _add(database, clock, "a", {"start.purge.incoming.job": True})
    _add(database, clock, "b", {"start.purge.incoming.job": True})
    tick_once(database, settings, now=clock.now())

    def switch_the_other_off(changed: str) -> None:
        if changed in ("a", "b"):
            with database.transaction() as db:
                other = db.get_one(Store, {"a": "b", "b": "a"}[changed])
                other.parameters = {}
                db.add(other)

    later = clock.now() + timedelta(days=1)
    made = tick_once(database, settings, now=later, changed=switch_the_other_off)
    assert len(made) == len(_jobs(database)) == 1
