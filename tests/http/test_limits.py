"""Limits of a store bind every destructive verb, before anything is removed.

With `max_rows: 1` a CHANGELOG purge of 300 entries failed with LIMIT_EXCEEDED, and a discard of the whole
database succeeded with 300. Erasure had no limit at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.environments import EnvironmentStore, await_log, make_environment_store
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.writers import WrittenStore, make_written, text64
from tests.je_data import unpack

CONFIRMED = {"label": "test", "confirm_keys_never_reused": True, "reason": "r"}
AT_ONCE = {"min_file_age": "PT0S", "duration": "PT0S", "reason": "r"}


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One metadata is enough: limits are judged at the target."""
    return sqlite_service


def _set(http: httpx.Client, store_id: str, **limits: Any) -> httpx.Response:
    return http.patch(f"/v1/stores/{store_id}", json={"limits": limits}, headers={"If-Match": "*"})


def _make(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> WrittenStore:
    if request.param == "sqlite":
        return make_written(http, folder=roots)
    return make_written(http, url=request.getfixturevalue("postgresql_url"))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def replica(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> WrittenStore:
    """A replica of 300 entries."""
    made = _make(request, http, roots)
    entries = {f"k{n:04}".encode(): b"value" for n in range(300)}
    assert made.put_bulk(entries).status_code == 200
    return made


@pytest.fixture
def environment(http: httpx.Client, roots: Path, tmp_path: Path) -> EnvironmentStore:
    sample = unpack("closed", tmp_path / "closed")
    made = make_environment_store(http, roots, sample, extinction_filter="INSTALLED")
    await_log(http, made.id)
    return made


def _discard(http: httpx.Client, store_id: str, *, plan: bool = False, **body: Any) -> httpx.Response:
    params = {"validate_only": "true"} if plan else {}
    return http.post(f"/v1/stores/{store_id}/extinctions", params=params, json=CONFIRMED | body)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_rows": 1}, "max_rows: 300 rows would go, 1 may"),
        ({"max_rows": 299}, "max_rows: 300 rows would go, 299 may"),
        ({"max_fraction": 0.5}, "max_fraction: 1.0000 of 300 rows would go, 0.5 may"),
    ],
)
def test_discard_of_a_replica_above_a_limit_is_refused_and_leaves_everything(
    http: httpx.Client, replica: WrittenStore, limits: dict[str, Any], message: str
) -> None:
    assert _set(http, replica.id, **limits).status_code == 200
    before = replica.records()
    whole = {"databases": [text64(b"orders")]}
    shown = problem(_discard(http, replica.id, **whole), 409, "LIMIT_EXCEEDED")
    assert shown["detail"] == message
    assert replica.records() == before
    assert http.get(f"/v1/stores/{replica.id}/extinctions").json()["items"] == []
    plan = _discard(http, replica.id, plan=True, **whole).json()
    assert plan["limits"]["exceeded"] == [message]
    assert {name: plan["limits"][name] for name in limits} == limits


def test_discard_within_its_limits_is_done(http: httpx.Client, replica: WrittenStore) -> None:
    assert _set(http, replica.id, max_rows=10, max_fraction=0.5).status_code == 200
    part = {"databases": [text64(b"orders")], "start_key": text64(b"k0290")}
    job = wait_for(http, accepted(_discard(http, replica.id, **part)))
    assert (job["state"], job["result"]["records"]) == ("SUCCEEDED", 10)


@pytest.mark.parametrize("limits", [{"max_rows": 4_164}, {"max_bytes": 1_000}, {"max_fraction": 0.01}])
def test_discard_of_an_environment_above_a_limit_is_refused(
    http: httpx.Client, environment: EnvironmentStore, limits: dict[str, Any]
) -> None:
    assert _set(http, environment.id, **limits).status_code == 200
    databases = {"databases": ["users", "ttl"]}
    [name] = limits
    shown = problem(_discard(http, environment.id, **databases), 409, "LIMIT_EXCEEDED")
    assert shown["detail"].startswith(name)
    assert http.get(f"/v1/stores/{environment.id}/extinctions").json()["items"] == []
    query = {"database": "users", "keys": [text64(b"any")]}
    verdict = http.post(f"/v1/stores/{environment.id}/extinction-status:query", json=query).json()
    assert verdict["statuses"] == ["NOT_EXTINCT"]
    assert _set(http, environment.id, max_rows=4_165).status_code == 200
    ended = wait_for(http, accepted(_discard(http, environment.id, **databases)), timeout_s=90)
    assert (ended["state"], ended["result"]["records"]) == ("SUCCEEDED", 4_165)


@pytest.mark.parametrize("limits", [{"max_rows": 8_724}, {"max_bytes": 1_000}, {"max_fraction": 0.01}])
def test_cycle_above_a_limit_fails_before_its_first_write(
    http: httpx.Client, environment: EnvironmentStore, limits: dict[str, Any]
) -> None:
    assert _set(http, environment.id, **limits).status_code == 200
    before = {name: (environment.directory / name).read_bytes() for name in environment.names}
    plan = http.post(
        f"{environment.url}/erasure-cycles", params={"validate_only": "true"}, json=AT_ONCE
    ).json()
    [name] = limits
    [message] = plan["limits"]["exceeded"]
    assert message.startswith(name)
    job = wait_for(http, accepted(environment.post("erasure-cycles", AT_ONCE)), timeout_s=90)
    assert (job["state"], job["error"]["code"]) == ("FAILED", "LIMIT_EXCEEDED")
    assert job["error"]["detail"] == message
    assert {name: (environment.directory / name).read_bytes() for name in environment.names} == before


def test_cycle_within_its_limits_erases_everything(http: httpx.Client, environment: EnvironmentStore) -> None:
    assert _set(http, environment.id, max_rows=8_725, max_fraction=0.9).status_code == 200
    job = wait_for(http, accepted(environment.post("erasure-cycles", AT_ONCE)), timeout_s=90)
    assert job["state"] == "SUCCEEDED", job["error"]


def test_limit_of_bytes_is_for_environments(http: httpx.Client, replica: WrittenStore) -> None:
    problem(_set(http, replica.id, max_bytes=1), 422, "INVALID_REQUEST")
    body = {"id": "no-bytes", "kind": "REPLICA", "url": "sqlite:////tmp/x.sqlite", "rid": 1}
    answer = http.post("/v1/stores", json=body | {"limits": {"max_bytes": 1}})
    assert "limits.max_bytes is for stores of kind JE" in answer.text
    assert answer.status_code == 422
