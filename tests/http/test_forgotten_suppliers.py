"""Suppliers that are gone for good: an admin lets a replica forget them, and extinctions wait no more."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.formats.csn import Csn
from tests.http.discarding import b64, discard
from tests.http.environments import make_environment_store
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.supplying import GENERATION, agree, token_file, write

OLD = "supplier-7/7"
REASON = "switched off for good"


@pytest.fixture
def store(http: httpx.Client, roots: Path) -> ConsumerStore:
    """A replica that an old supplier, number 7, has met."""
    made = make_replica(http, rid=1, folder=roots, generation=GENERATION)
    write(made, 1)
    _meet(made, 7)
    return made


def _meet(store: ConsumerStore, rid: int) -> None:
    """A supplier that knows no extinctions has a session."""
    answer = store.acquire(
        session_id=f"rps_{rid}", generation=GENERATION, csn_now=Csn.of(int(time.time()), 0, rid), rid=rid
    )
    assert answer.status_code == 201, answer.text
    assert store.release(f"rps_{rid}", epoch=answer.json()["epoch"]).status_code == 200


def _forget(
    http: httpx.Client, store_id: str, supplier: str = OLD, *, key: str = "", **fields: Any
) -> httpx.Response:
    return http.post(
        f"/v1/stores/{store_id}/extinction-availability:forget",
        json={"supplier": supplier, "reason": REASON} | fields,
        headers={"Idempotency-Key": key} if key else {},
    )


def _lacking(store: ConsumerStore) -> list[str]:
    answer = store.http.get(f"/v1/stores/{store.id}/extinction-availability")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["available"] is (not found["lacking"])
    return [each["peer"] for each in found["lacking"]]


def test_supplier_that_never_announced_is_forgotten_until_it_acquires_again(store: ConsumerStore) -> None:
    problem(discard(store), 409, "EXTINCTION_NOT_AVAILABLE")
    answer = _forget(store.http, store.id)
    assert (answer.status_code, answer.json()) == (200, {"available": True, "lacking": []})
    assert discard(store).status_code == 202
    _meet(store, 7)
    assert _lacking(store) == [OLD]
    problem(discard(store), 409, "EXTINCTION_NOT_AVAILABLE")


def test_peers_that_still_lack_it_are_in_the_answer(store: ConsumerStore) -> None:
    _meet(store, 8)
    answer = _forget(store.http, store.id)
    assert answer.json() == {
        "available": False,
        "lacking": [{"role": "SUPPLIER", "peer": "supplier-8/8", "rid": 8, "heard": True}],
    }
    assert _lacking(store) == ["supplier-8/8"]


def test_who_forgot_whom_and_why_is_in_the_audit(store: ConsumerStore) -> None:
    assert _forget(store.http, store.id).status_code == 200
    wanted = {"action": "supplier.forget", "subject_id": OLD, "page_size": 500}
    answer = store.http.get("/v1/audit-events", params=wanted).json()
    [event] = [each for each in answer["items"] if each["store"] == store.id]
    assert event["subject_type"] == "supplier"
    assert event["detail"] == {"reason": REASON}


def test_extinction_that_it_has_announced_is_awaited_still(store: ConsumerStore) -> None:
    at = Csn.of(int(time.time()), 5, 7)
    supplier = {
        "store": "supplier-7",
        "rid": 7,
        "generation": GENERATION,
        "ruv": {"7": str(at)},
        "csn_now": str(Csn.of(int(time.time()), 9, 7)),
        "capabilities": ["CHANGE"],
        "extinctions": {"7": str(at)},
    }
    body = {"protocol": 1, "session_id": "rps_said", "mode": "INCREMENTAL", "supplier": supplier}
    epoch = store.http.post(f"{store.url}/sessions", json=body).json()["epoch"]
    store.release("rps_said", epoch=epoch)
    assert _forget(store.http, store.id).json()["available"] is True
    query = {"database": b64(b"db"), "dups": False, "keys": [b64(b"k1")]}
    found = store.http.post(f"/v1/stores/{store.id}/extinction-status:query", json=query).json()
    assert found["statuses"] == ["MAYBE_EXTINCT"]
    assert [each["code"] for each in found["maybe_because"]] == ["ANNOUNCED"]


def test_name_that_is_no_suppliers_is_not_found(
    http: httpx.Client, store: ConsumerStore, roots: Path, metadata: MetadataRows
) -> None:
    unused = make_replica(http, rid=2, folder=roots)
    with metadata.unchanged():
        for name in ("supplier-7", "supplier-7/8", "SUPPLIER-7/7", f"agr_{'0' * 26}"):
            problem(_forget(http, store.id, name, key=f"unknown-{store.id}"), 404, "SUPPLIER_NOT_FOUND")
        problem(_forget(http, unused.id), 404, "SUPPLIER_NOT_FOUND")
        problem(_forget(http, "nowhere"), 404, "STORE_NOT_FOUND")
    assert unused.path is not None
    assert not unused.path.exists()
    assert _lacking(store) == [OLD]


def test_consumer_is_forgotten_by_removing_its_agreement(
    store: ConsumerStore, service: ServiceProcess, roots: Path, metadata: MetadataRows
) -> None:
    token = f"file:{token_file(service, roots)}"
    made = agree(store.http, store.id, "elsewhere", url=service.url, token=token).json()
    with metadata.unchanged():
        told = problem(_forget(store.http, store.id, made["id"]), 409, "PEER_IS_CONSUMER")
    assert told["agreement_id"] == made["id"]
    assert "its agreement is removed" in told["detail"]
    assert _lacking(store) == [made["id"], OLD]
    path = f"/v1/stores/{store.id}/agreements/{made['id']}"
    assert store.http.delete(path, headers={"If-Match": "*"}).status_code == 204
    assert _lacking(store) == [OLD]
    problem(_forget(store.http, store.id, made["id"]), 404, "SUPPLIER_NOT_FOUND")


def test_store_without_suppliers_by_its_kind_is_refused(
    http: httpx.Client, shop: Shop, roots: Path, metadata: MetadataRows
) -> None:
    environment = make_environment_store(http, roots)
    with metadata.unchanged():
        for store_id in (shop.id, environment.id):
            problem(_forget(http, store_id), 409, "STORE_KIND_WRONG")


def test_only_an_admin_of_the_store_may_let_it_forget(
    service: ServiceProcess, store: ConsumerStore, make_token: Callable[..., str], metadata: MetadataRows
) -> None:
    writer = make_token("extinctions:write", "replication:write", "stores:write", "stores:read")
    stranger = make_token("admin", stores=["other"])
    with metadata.unchanged():
        with service.http(writer) as client:
            told = problem(_forget(client, store.id), 403, "SCOPE_MISSING")
            assert told["scope"] == "admin"
        with service.http(stranger) as client:
            problem(_forget(client, store.id), 403, "STORE_FORBIDDEN")
    assert _lacking(store) == [OLD]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"reason": REASON}, "/supplier"),
    ({"supplier": OLD}, "/reason"),
    ({"supplier": "", "reason": REASON}, "/supplier"),
    ({"supplier": "s" * 70, "reason": REASON}, "/supplier"),
    ({"supplier": 7, "reason": REASON}, "/supplier"),
    ({"supplier": "a\x00/7", "reason": REASON}, "/supplier"),
    ({"supplier": OLD, "reason": ""}, "/reason"),
    ({"supplier": OLD, "reason": "r" * 501}, "/reason"),
    ({"supplier": OLD, "reason": None}, "/reason"),
    ({"supplier": OLD, "reason": REASON, "force": True}, "/force"),
]


@pytest.mark.parametrize(("body", "pointer"), BAD, ids=[f"{place}-{n}" for n, (_, place) in enumerate(BAD)])
def test_body_that_is_wrong_is_refused_and_changes_nothing(
    store: ConsumerStore, metadata: MetadataRows, body: dict[str, Any], pointer: str
) -> None:
    with metadata.unchanged():
        answer = store.http.post(f"/v1/stores/{store.id}/extinction-availability:forget", json=body)
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {pointer}
    assert _lacking(store) == [OLD]


def test_request_that_is_sent_again_forgets_nothing_that_came_since(store: ConsumerStore) -> None:
    key = f"again-{store.id}"
    first = _forget(store.http, store.id, key=key)
    _meet(store, 7)
    again = _forget(store.http, store.id, key=key)
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert _lacking(store) == [OLD]
    problem(_forget(store.http, store.id, key=key, reason="another"), 422, "IDEMPOTENCY_KEY_REUSED")


def test_request_that_died_after_the_target_forgot_is_taken_up(
    store: ConsumerStore, metadata: MetadataRows
) -> None:
    """Its client asks again by its key: the supplier is gone, and that is no 404 for whoever made it go."""
    key = f"died-{store.id}"
    assert _forget(store.http, store.id, key=key).status_code == 200
    left = json.dumps({"subject_id": OLD, "until": "2026-01-01T00:00:00+00:00", "owner": "ins_dead"})
    metadata.execute(f"update idempotency_keys set status = 0, body = '{left}' where key = '{key}'")
    answer = _forget(store.http, store.id, key=key)
    assert (answer.status_code, answer.json()) == (200, {"available": True, "lacking": []})
    problem(_forget(store.http, store.id, key=f"new-{store.id}"), 404, "SUPPLIER_NOT_FOUND")
