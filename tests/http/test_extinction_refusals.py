"""Extinctions that are refused: each is a clear problem and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.formats.extinction import DATABASES_MAX
from tests.http.environments import make_environment_store
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.writers import WrittenStore, make_written, text64
from tests.je_data import unpack

MakeToken = Callable[..., str]
CONFIRMED = {"label": "test", "confirm_keys_never_reused": True, "reason": "r"}


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what is refused is refused before anything is written."""
    return sqlite_service


@pytest.fixture
def plain_store(sqlite_service: ServiceProcess, http: httpx.Client, roots: Path) -> WrittenStore:
    made = make_written(http, folder=roots)
    assert made.put_bulk({b"a1": b"one", b"a2": b"two", b"b1": b"three"}).status_code == 200
    return made


def _discard(http: httpx.Client, store_id: str, *, key: str = "", **body: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return http.post(f"/v1/stores/{store_id}/extinctions", json=CONFIRMED | body, headers=headers)


def _status(http: httpx.Client, store_id: str, database: str, *keys: bytes) -> dict[str, Any]:
    body = {"database": database, "keys": [text64(key) for key in keys]}
    answer = http.post(f"/v1/stores/{store_id}/extinction-status:query", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _range(start: bytes, end: bytes) -> dict[str, str]:
    return {"start_key": text64(start), "end_key": text64(end)}


def test_environment_without_a_filter_is_told_the_three_steps(
    http: httpx.Client, roots: Path, tmp_path: Path, metadata: MetadataRows
) -> None:
    sample = unpack("closed", tmp_path / "closed")
    made = make_environment_store(http, roots, sample, extinction_filter="NONE")
    with metadata.unchanged():
        body = problem(_discard(http, made.id, databases=["ttl"]), 422, "EXTINCTION_FILTER_MISSING")
    for part in ("1. the application stops using the keys", "2. its ExtinctionFilter", "3. only then"):
        assert part in body["detail"]


BAD: list[tuple[dict[str, Any], str, str]] = [
    (_range(b"b", b"a"), "START_AFTER_END", "/start_key"),
    ({"databases": [text64(b"nowhere")]}, "UNKNOWN_DATABASE", "/databases/0"),
    ({"databases": [text64(b"orders"), text64(b"none")]}, "UNKNOWN_DATABASE", "/databases/1"),
    ({"databases": ["not base64!"]}, "INVALID_REQUEST", "/databases/0"),
    ({"databases": []}, "INVALID_REQUEST", "/databases"),
    ({"databases": ["YQ=="] * (DATABASES_MAX + 1)}, "INVALID_REQUEST", "/databases"),
    ({"start_key": "%%%"}, "INVALID_REQUEST", "/start_key"),
    ({"end_key": "YR=="}, "INVALID_REQUEST", "/end_key"),
    ({"end_key": text64(b"k" * 2_001)}, "INVALID_REQUEST", "/end_key"),
    ({"confirm_keys_never_reused": False}, "CONFIRMATION_MISSING", "/confirm_keys_never_reused"),
    ({"label": ""}, "INVALID_REQUEST", "/label"),
    ({"label": "l" * 201}, "INVALID_REQUEST", "/label"),
    ({"unknown": 1}, "INVALID_REQUEST", "/unknown"),
    ({"filter": {}}, "FILTER_REFUSED", "/filter"),
    ({"filter": {"prefix": "YQ==", "range": {}}}, "FILTER_REFUSED", "/filter"),
    ({"filter": {"regex": ".*"}}, "FILTER_REFUSED", "/filter"),
    ({"filter": {"all": [{"prefix": "YQ=="}, {"prefix": "?"}]}}, "FILTER_REFUSED", "/filter/all/1/prefix"),
    (
        {"filter": {"not": {"range": {"start": "Yg==", "end": "YQ=="}}}},
        "FILTER_REFUSED",
        "/filter/not/range/start",
    ),
    (
        {"filter": {"modulo": {"offset": 0, "width": 9, "divisor": 2, "remainder": 0}}},
        "FILTER_REFUSED",
        "/filter/modulo/width",
    ),
    (
        {"filter": {"field": {"offset": 0, "width": 2, "op": "EQ", "value": "YQ=="}}},
        "FILTER_REFUSED",
        "/filter/field/value",
    ),
    (
        {"filter": {"field": {"offset": 0, "width": 1, "op": [], "value": "YQ=="}}},
        "FILTER_REFUSED",
        "/filter/field/op",
    ),
]


@pytest.mark.parametrize(
    ("body", "code", "pointer"), BAD, ids=[f"{code}-{n}" for n, (_, code, _) in enumerate(BAD)]
)
def test_request_that_is_wrong_is_refused_and_changes_nothing(
    http: httpx.Client,
    plain_store: WrittenStore,
    metadata: MetadataRows,
    body: dict[str, Any],
    code: str,
    pointer: str,
) -> None:
    before = plain_store.records()
    wanted = {"databases": [text64(b"orders")]} | body
    with metadata.unchanged():
        found = problem(_discard(http, plain_store.id, **wanted), 422, code)
    assert pointer in pointers(found)
    assert plain_store.records() == before
    assert http.get(f"/v1/stores/{plain_store.id}/extinctions").json()["items"] == []


@pytest.mark.parametrize("word", ["range", "modulo"])
def test_a_field_that_is_half_a_character_is_refused_with_its_place(
    http: httpx.Client, plain_store: WrittenStore, word: str
) -> None:
    fields = {"offset": 0, "width": 1, "divisor": 1, "remainder": 0} if word == "modulo" else {}
    body = CONFIRMED | {"databases": [text64(b"orders")], "filter": {word: fields | {"\ud800": "YQ=="}}}
    answer = http.post(
        f"/v1/stores/{plain_store.id}/extinctions",
        content=json.dumps(body),
        headers={"Content-Type": "application/json"},
    )
    assert pointers(problem(answer, 422, "FILTER_REFUSED")) == {f"/filter/{word}/\\ud800"}


def test_confirmation_that_is_left_out_is_asked_for(http: httpx.Client, plain_store: WrittenStore) -> None:
    body = {"databases": [text64(b"orders")], "label": "l"}
    problem(http.post(f"/v1/stores/{plain_store.id}/extinctions", json=body), 422, "CONFIRMATION_MISSING")


def test_store_of_another_kind_is_refused(http: httpx.Client, shop: Shop) -> None:
    problem(_discard(http, shop.id, databases=["YQ=="]), 409, "STORE_KIND_WRONG")
    path = f"/v1/stores/{shop.id}"
    query = {"database": "YQ==", "keys": []}
    problem(http.post(f"{path}/extinction-status:query", json=query), 409, "STORE_KIND_WRONG")
    for name in ("extinctions", "extinctions/filter", "extinction-availability"):
        problem(http.get(f"{path}/{name}"), 409, "STORE_KIND_WRONG")


def test_scope_that_is_missing_is_named(
    service: ServiceProcess, plain_store: WrittenStore, make_token: MakeToken
) -> None:
    with service.http(make_token("stores:read", "jobs:read")) as viewer:
        problem(_discard(viewer, plain_store.id, databases=[text64(b"orders")]), 403, "SCOPE_MISSING")
        assert _status(viewer, plain_store.id, text64(b"orders"), b"k")["statuses"] == ["NOT_EXTINCT"]
    with service.http(make_token("stores:read", stores=["other"])) as stranger:
        answer = stranger.get(f"/v1/stores/{plain_store.id}/extinctions")
        problem(answer, 403, "STORE_FORBIDDEN")


def test_unknown_store_and_unknown_extinction_are_not_found(
    http: httpx.Client, plain_store: WrittenStore
) -> None:
    problem(_discard(http, "nowhere", databases=["YQ=="]), 404, "STORE_NOT_FOUND")
    path = f"/v1/stores/{plain_store.id}/extinctions/ext_{'0' * 26}"
    problem(http.get(path), 404, "EXTINCTION_NOT_FOUND")


def test_more_than_ten_thousand_keys_are_refused(http: httpx.Client, plain_store: WrittenStore) -> None:
    path = f"/v1/stores/{plain_store.id}/extinction-status:query"
    body = {"database": text64(b"orders"), "keys": ["YQ=="] * 10_001}
    found = problem(http.post(path, json=body), 422, "INVALID_REQUEST")
    assert pointers(found) == {"/keys"}
    answer = http.post(path, json=body | {"keys": ["YQ=="] * 10_000})
    assert answer.status_code == 200
    assert answer.json()["statuses"] == ["NOT_EXTINCT"] * 10_000


@pytest.fixture
def suspended(http: httpx.Client, plain_store: WrittenStore) -> Iterator[WrittenStore]:
    http.post(f"/v1/stores/{plain_store.id}:suspend", json={"reason": "rest"})
    yield plain_store
    http.post(f"/v1/stores/{plain_store.id}:resume")


def test_suspended_store_takes_no_extinction(http: httpx.Client, suspended: WrittenStore) -> None:
    problem(_discard(http, suspended.id, databases=[text64(b"orders")]), 409, "STORE_SUSPENDED")
