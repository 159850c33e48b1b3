"""The consumer's side over HTTP: a session from its lease to its release, on either kind of target."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest

from app.kit.ids import new_id
from spark.formats.csn import Csn
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess
from tests.spark.replication.consumer_side import Row, entries, records
from tests.spark.replication.consumer_side import chain as chain_of

CONSUMER_RID = 9
PAST_S = 1_750_000_000


def chain(rid: int, numbers: Sequence[int], *, after: Csn | None = None) -> list[Row]:
    """Changes of one replica, made in the past by the clock of the services."""
    return chain_of(rid, numbers, after=after, csn_of=lambda number, rid: Csn.of(PAST_S + number, 0, rid))


def now_csn(rid: int = 1, *, ahead_s: int = 0) -> Csn:
    """A CSN of this moment."""
    return Csn.of(int(time.time()) + ahead_s, 0, rid)


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the protocol's state lies in the target."""
    return sqlite_service


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def make_consumer(
    request: pytest.FixtureRequest, http: httpx.Client, roots: Path
) -> Callable[..., ConsumerStore]:
    """Makes a replica on either kind of target."""

    def make(*, rid: int = CONSUMER_RID, **fields: object) -> ConsumerStore:
        if request.param == "sqlite":
            return make_replica(http, rid=rid, folder=roots, **fields)
        return make_replica(http, rid=rid, url=request.getfixturevalue("postgresql_url"), **fields)

    return make


@pytest.fixture
def generation() -> Csn:
    """What the consumers of this module begin with."""
    return Csn.of(1_700_000_000, 0, 1)


@pytest.fixture
def consumer(make_consumer: Callable[..., ConsumerStore], generation: Csn) -> ConsumerStore:
    """An empty replica of that generation."""
    return make_consumer(generation=generation)


def test_a_session_brings_changes_and_is_released(consumer: ConsumerStore, generation: Csn) -> None:
    session = new_id("rps")
    granted = consumer.acquire(session_id=session, generation=generation, csn_now=now_csn())
    assert granted.status_code == 201, granted.text
    body = granted.json()
    assert body["consumer"] == {
        "rid": CONSUMER_RID,
        "status": "ONLINE",
        "generation": generation,
        "ruv": {},
        "purged": {},
        "part": None,
    }
    assert (body["epoch"], body["session_id"], body["total"]) == (1, session, None)
    assert set(body["capabilities"]) == {
        "CHANGE",
        "KEEPALIVE",
        "TOTAL",
        "ARROW_ZSTD",
        "EXTINCTION",
        "HISTORY",
        "PART",
        "TOMBSTONES",
    }
    rows = chain(1, [1, 2]) + chain(3, [1])
    done = consumer.send(session, records(rows), epoch=1, seq=1)
    assert done.status_code == 200, done.text
    acknowledged = {"1": str(rows[1][0]), "3": str(rows[2][0])}
    assert {name: done.json()[name] for name in ("applied", "covered", "rejected", "ruv", "replayed")} == {
        "applied": 3,
        "covered": 0,
        "rejected": [],
        "ruv": acknowledged,
        "replayed": False,
    }
    for _ in range(2):
        released = consumer.release(session, epoch=1)
        assert (released.status_code, released.json()) == (200, {"ruv": acknowledged, "status": "ONLINE"})
    shown = consumer.ruv()
    assert shown["ruv"] == acknowledged
    assert f"{{replica 3}} {rows[2][0]} {rows[2][0]}" in " ".join(shown["lines"])
    problem(consumer.send(session, records(rows), epoch=1, seq=2), 410, "SESSION_ENDED")


def test_who_acquired_and_released_is_audited(consumer: ConsumerStore, generation: Csn) -> None:
    session = new_id("rps")
    consumer.acquire(session_id=session, generation=generation, csn_now=now_csn())
    consumer.release(session, epoch=1)
    rows = consumer.http.get("/v1/audit-events", params={"store": consumer.id}).json()["items"]
    found = {row["action"]: row for row in rows if row["subject_id"] == session}
    assert set(found) == {"replica.acquire", "replica.release"}
    assert found["replica.acquire"]["detail"] == {
        "mode": "INCREMENTAL",
        "discard_consumer_changes": False,
        "supplier": "supplier-1",
        "supplier_rid": 1,
        "epoch": 1,
    }
    assert found["replica.release"]["detail"] == {"epoch": 1, "complete": False, "status": "ONLINE"}


def test_a_total_initialisation_ends_online(
    make_consumer: Callable[..., ConsumerStore], generation: Csn
) -> None:
    consumer, session = make_consumer(), new_id("rps")
    copied = chain(1, [1, 2])
    begun_at = {1: copied[1][0]}
    granted = consumer.acquire(
        session_id=session, generation=generation, csn_now=now_csn(), mode="TOTAL", ruv=begun_at
    )
    assert granted.status_code == 201, granted.text
    nothing = {"resume_after": None, "is_copied": False, "copied": {}, "entries": 0, "buried": None}
    assert granted.json()["total"] == nothing
    assert granted.json()["consumer"]["status"] == "INITIALIZING"
    batch = entries(sorted((row[3], row[4], row[5], row[0]) for row in copied))
    assert consumer.send(session, batch, epoch=1, seq=1).status_code == 200
    problem(consumer.http.get(f"/v1/stores/{consumer.id}/entries?database=ZGI="), 409, "REPLICA_INITIALIZING")
    completed = consumer.complete_total(session, epoch=1, ruv=begun_at, generation=generation)
    assert completed.json() == {"ruv": {"1": str(copied[1][0])}}, completed.text
    later = records(chain(1, [3], after=copied[1][0]))
    assert consumer.send(session, later, epoch=1, seq=2).status_code == 200
    before = consumer.ruv()
    released = consumer.release(session, epoch=1, complete=True)
    assert released.json()["status"] == "ONLINE", released.text
    assert consumer.ruv()["incarnation"] != before["incarnation"]
    assert consumer.http.get(f"/v1/stores/{consumer.id}/entries?database=ZGI=").status_code == 200
