"""A replica whose CSNs stand ahead of the clock is brought back; peers that are ahead are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.kit.ids import new_id
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.supplying import GENERATION, entries, make_pair, write
from tests.http.test_replicas import now_csn

DAY_S = 86_400
REASON = {"reason": "a test"}


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """Its metadata is a file, which a test puts back."""
    return sqlite_service


def _lead_astray(store: ConsumerStore, ahead_s: int) -> None:
    """What one acquire with such a clock left before there was a bound."""
    assert store.path is not None
    with closing(sqlite3.connect(store.path)) as raw, raw:
        raw.execute("update replica_generator set remote_offset_s = ?", (ahead_s,))


def _clock(store: ConsumerStore) -> str:
    return f"/v1/stores/{store.id}/clock"


def test_a_clock_a_day_ahead_is_refused_until_the_store_says_otherwise(
    http: httpx.Client, roots: Path
) -> None:
    store = make_replica(http, rid=2, folder=roots, generation=GENERATION)
    write(store, 1)
    ahead = {"generation": GENERATION, "csn_now": now_csn(ahead_s=3_600)}
    found = problem(store.acquire(session_id=new_id("rps"), **ahead), 409, "CLOCK_SKEW")
    assert (found["ahead_max_s"], found["rid"]) == (300, 1)
    assert http.get(_clock(store)).json()["standing"]["ahead"] == "PT0S"
    path = f"/v1/stores/{store.id}"
    etag = http.get(path).headers["etag"]
    wider = {"parameters": {"replication.clock.ahead.max": "PT2H"}}
    assert http.patch(path, json=wider, headers={"If-Match": etag}).status_code == 200
    assert store.acquire(session_id=new_id("rps"), **ahead).status_code == 201


def test_a_replica_that_is_ahead_is_brought_back(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots)
    write(pair.supplier, 2)
    pair.run("SUCCEEDED")
    _lead_astray(pair.supplier, DAY_S - 60)
    shown = http.get(_clock(pair.supplier)).json()
    assert shown["standing"]["by_peers"] == "PT23H59M"
    refused = pair.run("FAILED")
    assert refused["error"]["code"] == "CLOCK_SKEW"
    assert "clock repair" in refused["error"]["detail"]
    done = http.post(f"{_clock(pair.supplier)}:repair", json=REASON)
    assert done.status_code == 200, done.text
    assert done.json()["after"]["ahead"] == "PT0S"
    assert done.json()["consumers_asked"] == [pair.agreement["id"]]
    write(pair.supplier, 2, prefix="after")
    pair.run("SUCCEEDED")
    assert entries(pair.consumer) == entries(pair.supplier)
    rows = http.get("/v1/audit-events", params={"store": pair.supplier.id}).json()["items"]
    [told] = [row for row in rows if row["action"] == "store.repair-clock"]
    assert told["detail"]["reason"] == "a test"


def test_a_repair_does_not_go_below_what_a_consumer_knows(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    """A target that was put back does not know what it has given; its consumer does."""
    pair = make_pair(http, service, roots)
    _lead_astray(pair.supplier, 200)
    write(pair.supplier, 1)
    pair.run("SUCCEEDED")
    given = pair.consumer.ruv()["ruv"]["1"]
    assert pair.supplier.path is not None
    with closing(sqlite3.connect(pair.supplier.path)) as raw, raw:
        for table in ("changelog", "entries", "ruv", "agreement_ruv"):
            raw.execute(f"delete from replica_{table}")
    with closing(sqlite3.connect(service.data_dir / "lethe.db")) as raw, raw:
        raw.execute("update replicas set own_max_csn = null where store = ?", (pair.supplier.id,))
    done = http.post(f"{_clock(pair.supplier)}:repair", json=REASON).json()
    assert done["floor"] == given


def test_a_consumer_that_does_not_tell_is_not_passed_over(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots)
    write(pair.supplier, 1)
    gone = {"consumer": {"url": "http://127.0.0.1:9"}}
    path = f"{pair.store}/agreements/{pair.agreement['id']}"
    assert http.patch(path, json=gone, headers={"If-Match": "*"}).status_code == 200
    problem(http.post(f"{_clock(pair.supplier)}:repair", json=REASON), 503, "CONSUMER_UNREACHABLE")
    alone = REASON | {"without_consumers": True}
    assert http.post(f"{_clock(pair.supplier)}:repair", json=alone).status_code == 200


def test_a_consumer_that_is_ahead_is_not_followed(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots)
    write(pair.supplier, 1)
    pair.run("SUCCEEDED")
    _lead_astray(pair.consumer, 7_200)
    write(pair.consumer, 1, prefix="ahead")
    write(pair.supplier, 1, prefix="more")
    failed = pair.run("FAILED")
    assert failed["error"]["code"] == "CLOCK_SKEW"
    assert "the consumer's" in failed["error"]["detail"]
    assert http.get(_clock(pair.supplier)).json()["standing"]["ahead"] == "PT0S"
    free = pair.consumer.acquire(session_id=new_id("rps"), generation=GENERATION, csn_now=now_csn())
    assert free.status_code == 201, free.text
