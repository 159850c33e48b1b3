"""A consumer that was restored while its supplier had nothing new is asked, and a session begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from app.db import Database
from app.replication.agreements import tick
from app.replication.agreements.silent import HEARD, REST_AWAY_MAX, SilentConsumers
from app.replication.agreements.tick import REST, Look
from app.replication.peer.answers import PeerReplica, PeerUnanswered
from app.replication.rows import Agreement
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from spark.formats.csn import Csn
from spark.replication.agreements import acknowledge, register_agreement
from spark.replication.records import local_schema
from spark.replication.replica.local_write import Expected, LocalRequest, write_group
from spark.replication.replica.replica import create_file, ensure_layout, read_vectors
from spark.targets.connection import Target, connect
from tests.app.agreements import agreement_of

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
GENERATION = "64000000000000010000"
TIMES = {"created_at": NOON, "updated_at": NOON}


@dataclass(frozen=True)
class Watched(Look):
    """A look that tells which sessions it would begin."""

    begun: list[str] = field(default_factory=list)

    def _begin(self, store_id: str, agreement: Agreement) -> str | None:
        self.begun.append(agreement.id)
        return None


@pytest.fixture
def ruv(database: Database, tmp_path: Path) -> dict[int, Csn]:
    """Of a supplier whose only consumer has acknowledged all of it at noon."""
    target = Target(f"sqlite:///{tmp_path}/replica.db", table_prefix="replica_")
    create_file(target)
    columns = [pa.array([value], pa.binary()) for value in (b"db", b"key", b"value")]
    request = LocalRequest(pa.RecordBatch.from_arrays(columns, schema=local_schema()))
    with connect(target, application_name="test") as conn:
        ensure_layout(conn, rid=1, generation=GENERATION, incarnation="first")
        write_group(conn, [request], now_s=int(NOON.timestamp()), expected=Expected("first", None))
        found = dict(read_vectors(conn).ruv)
        register_agreement(conn, "agr_one", now_s=int(NOON.timestamp()))
        acknowledge(conn, "agr_one", found, consumer_rid=2)
    with database.transaction() as db:
        db.add(
            Store(id="one", kind=StoreKind.REPLICA, url=target.url, table_prefix="replica_", rid=1, **TIMES)
        )
        db.flush()
        db.add(agreement_of("one", NOON, interval_s=1.0, last_ended_at=NOON))
    return found


def _peer(ruv: dict[int, Csn] | None, *, generation: str = GENERATION, status: str = "ONLINE") -> PeerReplica:
    return PeerReplica(2, status, generation, ruv)


class _Consumer:
    """Answers, and counts how often it was asked."""

    def __init__(self, answer: Callable[[], PeerReplica]) -> None:
        self.answer = answer
        self.asked: list[datetime] = []
        self.now = NOON

    def __call__(self, *_: object) -> PeerReplica:
        self.asked.append(self.now)
        return self.answer()


def _looks(
    database: Database, settings: Settings, consumer: _Consumer, *, until: timedelta, step: timedelta = REST
) -> list[datetime]:
    """Look from noon on; when a session was begun."""
    silent, begun = SilentConsumers(), []
    while consumer.now < NOON + until:
        asked = len(consumer.asked)
        look = Watched(database, settings, consumer.now, silent=silent)
        look.run()
        begun += [consumer.now for _ in look.begun]
        deadline = time.monotonic() + 5
        while silent._asked and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(consumer.asked) <= asked + 1
        consumer.now += step
    return begun


@pytest.mark.parametrize("lacks", ["changes", "all", "generation"])
def test_a_consumer_that_has_less_than_it_had_gets_a_session(
    database: Database,
    settings: Settings,
    ruv: dict[int, Csn],
    monkeypatch: pytest.MonkeyPatch,
    lacks: str,
) -> None:
    answers = {"changes": _peer({}), "all": _peer(None), "generation": _peer(ruv, generation="6" * 20)}
    consumer = _Consumer(lambda: answers[lacks])
    monkeypatch.setattr(tick, "ask_consumer", consumer)
    begun = _looks(database, settings, consumer, until=HEARD + timedelta(seconds=30))
    assert consumer.asked == [NOON + HEARD]
    assert begun == [NOON + HEARD + REST]


@pytest.mark.parametrize("status", ["ONLINE", "INITIALIZING"])
def test_a_consumer_that_has_all_or_is_copied_gets_none(
    database: Database,
    settings: Settings,
    ruv: dict[int, Csn],
    monkeypatch: pytest.MonkeyPatch,
    status: str,
) -> None:
    shown = ruv if status == "ONLINE" else None
    consumer = _Consumer(lambda: _peer(shown, status=status))
    monkeypatch.setattr(tick, "ask_consumer", consumer)
    assert _looks(database, settings, consumer, until=3 * HEARD + REST, step=HEARD / 10) == []
    assert consumer.asked == [NOON + HEARD, NOON + 2 * HEARD, NOON + 3 * HEARD]


def test_a_consumer_that_is_away_is_asked_ever_less_often(
    database: Database, settings: Settings, ruv: dict[int, Csn], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> PeerReplica:
        raise PeerUnanswered("nobody there")

    consumer = _Consumer(away)
    monkeypatch.setattr(tick, "ask_consumer", consumer)
    assert _looks(database, settings, consumer, until=timedelta(hours=4), step=HEARD / 5) == []
    pauses = [after - before for before, after in zip(consumer.asked, consumer.asked[1:], strict=False)]
    assert pauses[:3] == [HEARD, 2 * HEARD, 4 * HEARD]
    assert set(pauses[4:]) == {REST_AWAY_MAX}
