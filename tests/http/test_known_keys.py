"""The keys that a replica knows: shown, pinned and forgotten over HTTP and by the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.http.problem import problem
from tests.http.replica_stores import make_replica
from tests.http.service_process import ServiceProcess
from tests.http.supplying import GENERATION, make_pair, write

OTHER = "9a" * 32
MakeToken = Callable[..., str]


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """Keys lie at the target."""
    return sqlite_service


def test_a_pinned_key_keeps_another_replica_of_that_number_out(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots)
    write(pair.supplier, 2)
    keys = f"/v1/stores/{pair.consumer.id}/known-keys"
    pin = {"rid": 1, "key": OTHER, "reason": "a test"}
    assert http.post(keys, json=pin).status_code == 201
    assert pair.run("FAILED")["error"]["code"] == "DUPLICATE_RID"
    own = http.get(f"/v1/stores/{pair.supplier.id}/known-keys").json()["own"]
    assert own["rid"] == 1
    found = problem(http.post(keys, json=pin | {"key": own["key"]}), 409, "KEY_KNOWN")
    assert OTHER in found["detail"]
    right = pin | {"key": own["key"], "instead_of": OTHER}
    assert http.post(keys, json=right).json() == own
    pair.run("SUCCEEDED")
    assert http.get(keys).json()["known"] == [own]
    rows = http.get("/v1/audit-events", params={"store": pair.consumer.id}).json()["items"]
    told = [row["detail"] for row in rows if row["action"] == "known-key.pin"]
    assert told == [right, pin | {"instead_of": None}]


def test_a_key_is_forgotten_with_a_reason_by_an_admin(
    http: httpx.Client, service: ServiceProcess, roots: Path, make_token: MakeToken
) -> None:
    store = make_replica(http, rid=2, folder=roots, generation=GENERATION)
    write(store, 1)
    keys = f"/v1/stores/{store.id}/known-keys"
    why = {"reason": "lost"}
    problem(http.post(f"{keys}/7:forget", json=why), 404, "KEY_NOT_FOUND")
    problem(http.post(f"{keys}/2:forget", json=why), 409, "KEY_KNOWN")
    problem(http.post(f"{keys}/7:forget", json={}), 422, "INVALID_REQUEST")
    pin = {"rid": 7, "key": OTHER, "reason": "a test"}
    problem(http.post(keys, json=pin | {"key": "9A" * 32}), 422, "INVALID_REQUEST")
    assert http.post(keys, json=pin).status_code == 201
    with service.http(
        make_token("replication:peer", "replication:write", "stores:write", "stores:read")
    ) as other:
        assert len(other.get(keys).json()["known"]) == 1
        problem(other.post(keys, json=pin), 403, "SCOPE_MISSING")
        problem(other.post(f"{keys}/7:forget", json=why), 403, "SCOPE_MISSING")
    assert http.post(f"{keys}/7:forget", json=why).json() == {"rid": 7, "key": OTHER}
    rows = http.get("/v1/audit-events", params={"store": store.id}).json()["items"]
    [told] = [row["detail"] for row in rows if row["action"] == "known-key.forget"]
    assert told == {"rid": 7, "key": OTHER, "reason": "lost"}
    assert http.get(keys).json()["known"] == []
