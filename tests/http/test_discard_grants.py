"""A peer that asked to discard emptied a replica: now an admin of the consumer grants it, once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from app.kit.ids import new_id
from spark.formats.csn import Csn
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, grant_discard, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.supplying import GENERATION, entries, make_pair, write
from tests.http.test_replicas import now_csn

OTHER_GENERATION = "65000000000000010000"
MakeToken = Callable[..., str]


@pytest.fixture
def written(http: httpx.Client, roots: Path) -> ConsumerStore:
    """A replica with changes of its own."""
    store = make_replica(http, rid=2, folder=roots, generation=GENERATION)
    write(store, 3)
    return store


def _total(store: ConsumerStore, session: str | None = None, *, rid: int = 1) -> httpx.Response:
    return store.acquire(
        session_id=session or new_id("rps"),
        generation=Csn(OTHER_GENERATION),
        csn_now=now_csn(),
        rid=rid,
        mode="TOTAL",
        discard_consumer_changes=True,
    )


def test_a_peer_without_a_grant_discards_nothing(written: ConsumerStore) -> None:
    found = problem(_total(written), 409, "DISCARD_NOT_GRANTED")
    assert f"lethe replication discard-grant create {written.id} --supplier-rid 1" in found["detail"]
    assert len(entries(written)) == 3


def test_a_grant_is_spent_by_one_acquire_of_its_supplier(written: ConsumerStore) -> None:
    grant = grant_discard(written, supplier_rid=1)
    problem(_total(written, rid=3), 409, "DISCARD_NOT_GRANTED")
    session = new_id("rps")
    assert _total(written, session).status_code == 201
    path = f"/v1/stores/{written.id}/discard-grants/{grant['id']}"
    shown = written.http.get(path).json()
    assert (shown["state"], shown["consumed_by"]) == ("CONSUMED", session)
    problem(written.http.post(f"{path}:revoke"), 409, "DISCARD_GRANT_OVER")
    rows = written.http.get("/v1/audit-events", params={"store": written.id}).json()["items"]
    told = {row["action"]: row for row in rows if row["subject_id"] == grant["id"]}
    assert set(told) == {"discard-grant.create", "discard-grant.consume"}
    assert told["discard-grant.consume"]["detail"] == {"supplier_rid": 1, "session_id": session}


def test_of_many_acquires_at_once_one_has_it(http: httpx.Client, roots: Path) -> None:
    stores = [make_replica(http, rid=2, folder=roots, generation=GENERATION) for _ in range(3)]
    for store in stores:
        write(store, 1)
        grant_discard(store, supplier_rid=1)
        begin = threading.Barrier(6)

        def ask(_: int, store: ConsumerStore = store, begin: threading.Barrier = begin) -> int:
            begin.wait()
            return _total(store).status_code

        with ThreadPoolExecutor(6) as pool:
            codes = sorted(pool.map(ask, range(6)))
        assert codes == [201, *[409] * 5]
        listed = http.get(f"/v1/stores/{store.id}/discard-grants").json()["items"]
        assert [each["state"] for each in listed] == ["CONSUMED"]


def test_a_grant_that_is_over_is_none(written: ConsumerStore) -> None:
    path = f"/v1/stores/{written.id}/discard-grants"
    revoked = grant_discard(written, supplier_rid=1)
    assert written.http.post(f"{path}/{revoked['id']}:revoke").json()["state"] == "REVOKED"
    assert written.http.post(f"{path}/{revoked['id']}:revoke").status_code == 200
    grant_discard(written, supplier_rid=1, expires_in="PT1S")
    grant_discard(written, supplier_rid=1, peer_token_id="tok_of_somebody_else")
    threading.Event().wait(1.1)
    problem(_total(written), 409, "DISCARD_NOT_GRANTED")
    states = [each["state"] for each in written.http.get(path).json()["items"]]
    assert states == ["OPEN", "EXPIRED", "REVOKED"]


def test_where_nothing_is_lost_none_is_spent(http: httpx.Client, roots: Path) -> None:
    empty = make_replica(http, rid=2, folder=roots, generation=GENERATION)
    grant = grant_discard(empty, supplier_rid=1)
    assert _total(empty).status_code == 201
    shown = http.get(f"/v1/stores/{empty.id}/discard-grants/{grant['id']}").json()
    assert shown["state"] == "OPEN"


def test_it_is_an_admins_word(service: ServiceProcess, written: ConsumerStore, make_token: MakeToken) -> None:
    path = f"/v1/stores/{written.id}/discard-grants"
    body = {"supplier_rid": 1, "reason": "no admin"}
    scopes = ("replication:peer", "replication:write", "stores:write", "stores:read")
    with service.http(make_token(*scopes)) as peer:
        problem(peer.post(path, json=body), 403, "SCOPE_MISSING")
        assert peer.get(path).json()["items"] == []
    for wrong in ({"reason": ""}, {"expires_in": "P30D"}, {"supplier_rid": 0}, {"supplier_rid": 65535}):
        problem(written.http.post(path, json=body | wrong), 422, "INVALID_REQUEST")


def test_a_session_waits_for_the_grant_and_says_who_gives_it(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, generations=(GENERATION, OTHER_GENERATION))
    write(pair.supplier, 5)
    write(pair.consumer, 3, prefix="own")
    job_id = pair.begin(mode="TOTAL", discard_consumer_changes=True)
    waiting = wait_for(http, job_id, "WAITING")
    assert waiting["waiting_on"][0]["ref"].endswith("DISCARD_NOT_GRANTED")
    assert "discard-grant create" in pair.session_of(waiting)["problem"]["detail"]
    assert len(entries(pair.consumer)) == 3
    grant_discard(pair.consumer, supplier_rid=1)
    wait_for(http, job_id, "SUCCEEDED")
    assert entries(pair.consumer) == entries(pair.supplier)
