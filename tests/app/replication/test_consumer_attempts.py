"""How often a consumer tries a transaction that others are in the way of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import Database
from app.replication.consumer.service import Consumer
from app.replication.replica.replicas import close_idle_replicas
from app.settings import Settings
from app.stores.models import StoreCreate
from app.stores.rows import Store
from app.stores.service import create_store
from spark.targets.connection import Connection
from spark.targets.errors import TargetLockTimeout
from tests.app.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def consumer(
    sqlite_database: Database, settings: Settings, clock: FakeClock, tmp_path: Path
) -> Iterator[Consumer]:
    request = StoreCreate.model_validate(
        {"id": "r", "kind": "REPLICA", "rid": 1, "url": f"sqlite:///{tmp_path / 'r.db'}"}
    )
    with sqlite_database.transaction() as db:
        store: Store = create_store(db, request, settings=settings, database=sqlite_database, now=clock.now())
    yield Consumer(sqlite_database, settings, clock, store)
    close_idle_replicas()


@pytest.mark.parametrize(
    ("waited_s", "attempts"),
    [pytest.param(0.0, 3, id="deadlocks"), pytest.param(3.0, 2, id="short waits"), (25.0, 1)],
)
def test_after_a_long_wait_for_a_lock_the_supplier_is_told(
    consumer: Consumer, clock: FakeClock, waited_s: float, attempts: int
) -> None:
    tried = 0

    def transact(_conn: Connection) -> None:
        nonlocal tried
        tried += 1
        clock.advance(waited_s)
        raise TargetLockTimeout("somebody else has it")

    with pytest.raises(TargetLockTimeout):
        consumer.attempt(transact)
    assert tried == attempts


def test_what_was_in_the_way_once_is_done_at_the_second_attempt(consumer: Consumer, clock: FakeClock) -> None:
    tried = 0

    def transact(conn: Connection) -> int:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise TargetLockTimeout("somebody else has it")
        return tried

    assert consumer.attempt(transact) == 2
