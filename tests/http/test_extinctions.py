"""Extinctions over HTTP: both kinds of store, status, bundle, and everything that is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from lethe_client.extinction_filter import ExtinctionBundle

from spark.formats.extinction import Extinction
from tests.http.environments import EnvironmentStore, await_log, make_environment_store
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.writers import WrittenStore, make_written, text64
from tests.je_data import unpack
from tests.spark.extinction.cases import World, naive_status, near, random_extinction, random_key

MakeToken = Callable[..., str]
CONFIRMED = {"label": "test", "confirm_keys_never_reused": True, "reason": "r"}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def store(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> WrittenStore:
    """A replica with three keys."""
    if request.param == "sqlite":
        made = make_written(http, folder=roots)
    else:
        made = make_written(http, url=request.getfixturevalue("postgresql_url"))
    assert made.put_bulk({b"a1": b"one", b"a2": b"two", b"b1": b"three"}).status_code == 200
    return made


@pytest.fixture
def plain_store(sqlite_service: ServiceProcess, http: httpx.Client, roots: Path) -> WrittenStore:
    made = make_written(http, folder=roots)
    assert made.put_bulk({b"a1": b"one", b"a2": b"two", b"b1": b"three"}).status_code == 200
    return made


@pytest.fixture
def environment(http: httpx.Client, roots: Path, tmp_path: Path) -> EnvironmentStore:
    sample = unpack("closed", tmp_path / "closed")
    return make_environment_store(http, roots, sample, extinction_filter="INSTALLED")


def _discard(http: httpx.Client, store_id: str, *, key: str = "", **body: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return http.post(f"/v1/stores/{store_id}/extinctions", json=CONFIRMED | body, headers=headers)


def _discarded(http: httpx.Client, store_id: str, **body: Any) -> dict[str, Any]:
    answer = _discard(http, store_id, **body)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def _status(http: httpx.Client, store_id: str, database: str, *keys: bytes) -> dict[str, Any]:
    body = {"database": database, "keys": [text64(key) for key in keys]}
    answer = http.post(f"/v1/stores/{store_id}/extinction-status:query", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _range(start: bytes, end: bytes) -> dict[str, str]:
    return {"start_key": text64(start), "end_key": text64(end)}


def test_extinction_of_a_replica_is_committed_when_it_answers(
    http: httpx.Client, store: WrittenStore, metadata: MetadataRows
) -> None:
    before = _status(http, store.id, text64(b"orders"), b"a1", b"b1")
    assert (before["statuses"], before["maybe_because"]) == (["NOT_EXTINCT", "NOT_EXTINCT"], [])
    changes = len(store.records())
    job = _discarded(http, store.id, databases=[text64(b"orders")], **_range(b"a", b"b"))
    assert (job["kind"], job["store"], job["subject"]["type"]) == ("EXTINCTION", store.id, "extinction")
    after = _status(http, store.id, text64(b"orders"), b"a1", b"a\xff", b"b1")
    assert after["statuses"] == ["EXTINCT", "EXTINCT", "NOT_EXTINCT"]
    assert after["version"] > before["version"]
    records = store.records()
    assert [record["kind"] for record in records[changes:]] == ["EXTINCTION"]
    shown = http.get(job["subject"]["href"]).json()
    expected = {"store": store.id, "origin": "LOCAL", "databases": [text64(b"orders")], "label": "test"}
    expected |= {"start_key": text64(b"a"), "end_key": text64(b"b"), "filter": None, "reason": "r"}
    assert {name: shown[name] for name in expected} == expected
    assert (shown["csn"], shown["job_id"]) == (records[-1]["csn"], job["id"])
    audited = metadata.query(
        "select action, subject_id from audit_events where action = 'extinction.create'"
        f" and store = '{store.id}'"
    )
    assert [tuple(row) for row in audited] == [("extinction.create", shown["id"])]


def test_repeated_request_answers_the_same_and_writes_once(http: httpx.Client, store: WrittenStore) -> None:
    body = {"databases": [text64(b"orders")], **_range(b"a", b"b")}
    first = _discard(http, store.id, key="once", **body)
    again = _discard(http, store.id, key="once", **body)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert [record["kind"] for record in store.records()].count("EXTINCTION") == 1
    other = _discard(http, store.id, key="once", **body | {"label": "other"})
    problem(other, 422, "IDEMPOTENCY_KEY_REUSED")


def test_plan_of_a_replica_counts_and_writes_nothing(http: httpx.Client, store: WrittenStore) -> None:
    before = store.records()
    body = CONFIRMED | {"databases": [text64(b"orders")], **_range(b"a", b"b")}
    answer = http.post(f"/v1/stores/{store.id}/extinctions", params={"validate_only": "true"}, json=body)
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert (plan["store"], plan["records"], plan["bytes"]) == (store.id, 2, 2 + 3 + 2 + 3)
    assert "many, very small sets" in plan["hint"]
    assert store.records() == before
    assert http.get(f"/v1/stores/{store.id}/extinctions").json()["items"] == []


def test_bundle_has_a_version_an_etag_and_the_same_verdicts(http: httpx.Client, store: WrittenStore) -> None:
    dice = random.Random(7)
    keys = [random_key(dice, least=1) for _ in range(30)]
    world = World((), ())
    versions = []
    for number in range(8):
        extinction = random_extinction(dice, keys, number)
        row = extinction.fields()
        named = {"databases": [text64(b"orders")]}
        body = {name: row[name] for name in ("start_key", "end_key", "filter")} | named
        shown = _discarded(http, store.id, **body)
        held = Extinction(
            shown["subject"]["id"],
            frozenset({b"orders"}),
            extinction.start_key,
            extinction.end_key,
            extinction.filter,
            "test",
        )
        world = World((*world.extinctions, held), ())
        places = [*keys, *(near(dice, key) or b"k" for key in keys)]
        found = _status(http, store.id, text64(b"orders"), *places)
        answer = http.get(f"/v1/stores/{store.id}/extinctions/filter")
        bundle = ExtinctionBundle.parse(answer.content)
        assert bundle.complete
        expected = [naive_status(world, b"orders", key) for key in places]
        assert found["statuses"] == expected
        assert bundle.status_many(b"orders", places) == expected
        assert bundle.version == found["version"]
        assert answer.headers["etag"] == f'"{bundle.version}"'
        etag = {"If-None-Match": answer.headers["etag"]}
        assert http.get(f"/v1/stores/{store.id}/extinctions/filter", headers=etag).status_code == 304
        versions.append(bundle.version)
    assert versions == sorted(set(versions))


def test_target_that_is_away_makes_every_key_maybe(
    http: httpx.Client, plain_store: WrittenStore, roots: Path
) -> None:
    _discarded(http, plain_store.id, databases=[text64(b"orders")], **_range(b"a", b"b"))
    assert plain_store.path is not None
    _status(http, plain_store.id, text64(b"orders"), b"b1")
    aside = plain_store.path.with_suffix(".aside")
    for job in http.get("/v1/jobs", params={"store": plain_store.id}).json()["items"]:
        http.post(f"/v1/jobs/{job['id']}:abort", json={})
    plain_store.path.rename(aside)
    plain_store.path.mkdir()
    try:
        found = _status(http, plain_store.id, text64(b"orders"), b"a1", b"b1")
        assert found["statuses"] == ["MAYBE_EXTINCT", "MAYBE_EXTINCT"]
        assert [each["code"] for each in found["maybe_because"]] == ["TARGET"]
    finally:
        plain_store.path.rmdir()
        aside.rename(plain_store.path)
    again = _status(http, plain_store.id, text64(b"orders"), b"a1", b"b1")
    assert again["statuses"] == ["EXTINCT", "NOT_EXTINCT"]
    assert again["version"] > found["version"]


def test_extinction_of_an_environment_is_counted(http: httpx.Client, environment: EnvironmentStore) -> None:
    await_log(http, environment.id)
    job = _discarded(http, environment.id, databases=["users", "ttl"])
    ended = wait_for(http, job["id"], timeout_s=90)
    assert (ended["state"], ended["result"]["records"]) == ("SUCCEEDED", 4_125 + 40)
    shown = http.get(job["subject"]["href"]).json()
    assert (shown["state"], shown["active"], shown["databases"]) == ("DONE", False, ["ttl", "users"])
    assert (shown["records"], shown["bytes"]) == (4_165, 453_205 + 1_780)
    found = _status(http, environment.id, "users", b"any")
    assert found["statuses"] == ["EXTINCT"]
    assert _status(http, environment.id, "orders", b"any")["statuses"] == ["NOT_EXTINCT"]
    available = http.get(f"/v1/stores/{environment.id}/extinction-availability").json()
    assert available == {"available": True, "lacking": []}


def test_environment_that_always_says_maybe_gets_maybe(
    http: httpx.Client, roots: Path, tmp_path: Path
) -> None:
    sample = unpack("closed", tmp_path / "closed")
    made = make_environment_store(http, roots, sample, extinction_filter="ALWAYS_MAYBE")
    _discarded(http, made.id, databases=["ttl"])
    for database in ("ttl", "users"):
        found = _status(http, made.id, database, b"k")
        assert found["statuses"] == ["MAYBE_EXTINCT"]
        assert [each["code"] for each in found["maybe_because"]] == ["ALWAYS_MAYBE"]
    bundle = http.get(f"/v1/stores/{made.id}/extinctions/filter").json()
    assert (bundle["everything_maybe"], bundle["databases_are"]) == (True, "UTF8")
