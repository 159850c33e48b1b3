"""Requests that are malformed, too large, or say what the service does not take; none changes anything."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop

BODY_MAX_BYTES = 1_048_576
STORE = {"id": "refused", "kind": "SYMMETRICDS", "url": "sqlite:////nowhere.db"}
JSON = {"Content-Type": "application/json"}

Raw = Callable[..., httpx.Response]


@pytest.fixture(scope="session")
def service(postgresql_service: ServiceProcess) -> ServiceProcess:
    """PostgreSQL metadata alone: it is the stricter of the two about what it takes."""
    return postgresql_service


@pytest.fixture
def post_raw(http: httpx.Client, metadata: MetadataRows) -> Raw:
    """Send bytes to a path, and assert that nothing was changed by them."""

    def post(content: Any, path: str = "/v1/stores", **headers: str) -> httpx.Response:
        with metadata.unchanged():
            return http.post(path, content=content, headers=JSON | headers)

    return post


@pytest.mark.parametrize("duration", ["8h", "8 hours", "PT"])
def test_duration_that_is_none_is_shown_one(post_raw: Raw, duration: str) -> None:
    """The detail was of the parser: `"day" identifier in duration not correctly formatted`."""
    window = {"kind": "ALLOW", "cron": "0 22 * * *", "duration": duration}
    refused = problem(post_raw(json.dumps(window), "/v1/windows"), 422, "INVALID_REQUEST")
    [fault] = refused["errors"]
    assert fault == {
        "pointer": "/duration",
        "detail": "not a duration of ISO 8601, such as P90D, PT8H or PT30M",
    }


def test_id_of_a_store_that_is_none_is_said_in_words(post_raw: Raw) -> None:
    """It was the pattern, which says little to who runs databases."""
    refused = problem(post_raw(json.dumps(STORE | {"id": "Shop_X"})), 422, "INVALID_REQUEST")
    words = "small letters, digits and hyphens, a letter first; 63 at most"
    assert {"pointer": "/id", "detail": words} in refused["errors"]


def test_declared_huge_body_is_refused(post_raw: Raw) -> None:
    problem(post_raw(b" " * (BODY_MAX_BYTES + 1)), 413, "BODY_TOO_LARGE")


def test_chunked_huge_body_is_refused_while_it_comes(post_raw: Raw) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b"[" + b" " * 65_536

    problem(post_raw(chunks()), 413, "BODY_TOO_LARGE")


def test_body_just_below_the_limit_is_read(post_raw: Raw) -> None:
    body = json.dumps(STORE).encode()
    problem(post_raw(body.ljust(BODY_MAX_BYTES - 1) + b"!"), 400, "INVALID_JSON")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"id": "x",}',
        b"\xff\xfe\xfa",
        b'{"id": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"kind": "OUTGOING", "retention_minutes": ' + b"9" * 10_000 + b"}",
    ],
    ids=["cut", "comma", "not-utf8", "not-utf8-text", "deep-list", "deep-object", "endless-number"],
)
def test_body_that_is_no_json_is_refused(post_raw: Raw, content: bytes) -> None:
    problem(post_raw(content), 400, "INVALID_JSON")


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_number_that_json_does_not_have_is_refused(post_raw: Raw, shop: Shop, number: bytes) -> None:
    body = b'{"kind": "OUTGOING", "throttle": {"rows_per_s": ' + number + b"}}"
    answer = post_raw(body, f"/v1/stores/{shop.id}/purges")
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["code"] in ("INVALID_JSON", "INVALID_REQUEST")


def test_body_of_another_type_is_refused(post_raw: Raw) -> None:
    body = problem(post_raw(b"hello", **{"Content-Type": "text/plain"}), 422, "INVALID_REQUEST")
    assert pointers(body) == {"/"}


def test_missing_body_is_refused(post_raw: Raw) -> None:
    problem(post_raw(b""), 422, "INVALID_REQUEST")


def test_every_wrong_field_is_named_by_its_pointer(http: httpx.Client, metadata: MetadataRows) -> None:
    body = STORE | {
        "id": "Not An Id",
        "time_zone": "Mars/Olympus",
        "limits": {"max_fraction": 1.5, "max_rows": -1},
        "labels": {"bad label!": "x"},
        "surprise": 1,
    }
    with metadata.unchanged():
        found = problem(http.post("/v1/stores", json=body), 422, "INVALID_REQUEST")
    assert pointers(found) >= {"/id", "/time_zone", "/limits/max_fraction", "/limits/max_rows", "/surprise"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/stores", STORE | {"colour": "red"}),
        ("/v1/stores/{shop}/purges", {"kind": "OUTGOING", "colour": "red"}),
        ("/v1/stores/{shop}:suspend", {"reason": "r", "colour": "red"}),
        ("/v1/tokens", {"name": "n", "scopes": ["jobs:read"], "colour": "red"}),
        ("/v1/jobs:batch", {"kind": "PURGE", "params": {}, "stores": ["a"], "colour": "red"}),
    ],
)
def test_unknown_field_is_refused(
    http: httpx.Client, metadata: MetadataRows, shop: Shop, path: str, body: dict[str, Any]
) -> None:
    with metadata.unchanged():
        found = problem(http.post(path.format(shop=shop.id), json=body), 422, "INVALID_REQUEST")
    assert "/colour" in pointers(found)


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["nul", "lone-surrogate"])
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/stores/{shop}/purges", "reason"),
        ("/v1/stores/{shop}:suspend", "reason"),
        ("/v1/tokens", "name"),
        ("/v1/stores", "url"),
        ("/v1/stores", "time_zone"),
        ("/v1/jobs:batch", "reason"),
    ],
)
def test_text_that_no_database_takes_is_refused(
    http: httpx.Client, metadata: MetadataRows, shop: Shop, path: str, field: str, text: str
) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/v1/stores/{shop}/purges": {"kind": "OUTGOING"},
        "/v1/stores/{shop}:suspend": {},
        "/v1/tokens": {"scopes": ["jobs:read"]},
        "/v1/stores": STORE,
        "/v1/jobs:batch": {"kind": "PURGE", "params": {"kind": "OUTGOING"}, "stores": [shop.id]},
    }
    content = json.dumps(bodies[path] | {field: text})
    with metadata.unchanged():
        answer = http.post(path.format(shop=shop.id), content=content, headers=JSON)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["code"] in ("INVALID_JSON", "INVALID_REQUEST")


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["nul", "lone-surrogate"])
def test_label_that_no_database_takes_is_refused(
    http: httpx.Client, metadata: MetadataRows, text: str
) -> None:
    content = json.dumps(STORE | {"labels": {"region": text}})
    with metadata.unchanged():
        answer = http.post("/v1/stores", content=content, headers=JSON)
    problem(answer, 422, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs?parent=a%00b",
        "/v1/jobs?kind=a%00b",
        "/v1/jobs?store=a%00b",
        "/v1/audit-events?action=a%00b",
        "/v1/audit-events?subject_id=a%00b",
        "/v1/stores?label=a%3Da%00b",
        "/v1/stores?label=a%00%3Db",
        "/v1/jobs?page_token=a%00b",
        "/v1/jobs?kind=%ff%fe",
    ],
)
def test_nul_or_broken_text_in_a_query_is_no_bug(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code in (200, 400, 422), answer.text


@pytest.mark.parametrize("key", ["a\0b", "\ud800"], ids=["nul", "lone-surrogate"])
def test_page_token_that_somebody_has_changed_is_refused(http: httpx.Client, key: str) -> None:
    for name in ("one", "two"):
        assert http.post("/v1/tokens", json={"name": name, "role": "viewer"}).status_code == 201
    given = http.get("/v1/tokens?page_size=1").json()["next_page_token"]
    content = json.loads(base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)))
    forged = base64.urlsafe_b64encode(json.dumps(content | {"k": [key]}).encode()).decode()
    answer = http.get("/v1/tokens", params={"page_size": 1, "page_token": forged.rstrip("=")})
    problem(answer, 400, "INVALID_PAGE_TOKEN")


@pytest.mark.parametrize(
    "path", ["/v1/stores/a%00b", "/v1/stores/%ff", "/v1/parameters/a%00b", "/v1/jobs/%00"]
)
def test_nul_or_broken_text_in_a_path_is_refused(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code in (404, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "field",
    [
        {"retention_minutes": 10**30},
        {"retention_minutes": -1},
        {"retention_minutes": 1.5},
        {"retention_minutes": "ten"},
        {"max_rows_in_tx": 10**18},
        {"max_rows_in_tx": 0},
        {"throttle": {"rows_per_s": 0}},
        {"throttle": {"intensity": 2}},
        {"cutoff": "2026-11-01T10:00:00"},
        {"cutoff": "yesterday"},
        {"cutoff": "0001-01-01T00:00:00+14:00"},
        {"cutoff": "9999-12-31T23:59:59-14:00"},
        {"cutoff": 10**300},
        {"cutoff": 1793000000},
        {"cutoff": "1793000000"},
        {"cutoff": True},
        {"retention_minutes": "60"},
        {"retention_minutes": True},
        {"max_rows_in_tx": "1000"},
        {"force": "yes"},
        {"strict": 1},
        {"stranded": "DELETE"},
        {"strategy": "FAST"},
        {"overlap": "IGNORE"},
        {"archive": {"format": "CSV"}},
        {"plan_id": "job_1"},
        {"reason": "x" * 501},
        {"retention_minutes": 60, "cutoff": "2026-11-01T10:00:00Z"},
    ],
    ids=lambda field: "-".join(f"{key}={str(value)[:12]}" for key, value in field.items()),
)
def test_purge_field_out_of_range_is_refused(
    http: httpx.Client, metadata: MetadataRows, shop: Shop, field: dict[str, Any]
) -> None:
    body = {"kind": "OUTGOING"} | field
    with metadata.unchanged():
        for query in ({}, {"validate_only": "true"}):
            problem(
                http.post(f"/v1/stores/{shop.id}/purges", json=body, params=query), 422, "INVALID_REQUEST"
            )


@pytest.mark.parametrize(
    "query",
    [
        "/v1/jobs?created_after=0001-01-01T00:00:00%2B14:00",
        "/v1/jobs?created_after=9999-12-31T23:59:59-14:00",
        "/v1/audit-events?created_after=0001-01-01T00:00:00%2B14:00",
        "/v1/jobs?created_after=2026-11-01T10:00:00",
        "/v1/jobs?page_size=0",
        "/v1/jobs?page_size=501",
        "/v1/jobs?page_size=" + "9" * 5000,
        "/v1/jobs?state=DONE",
        "/v1/stores?kind=MYSQL",
    ],
)
def test_query_out_of_range_is_refused(http: httpx.Client, query: str) -> None:
    problem(http.get(query), 422, "INVALID_REQUEST")


def test_label_filter_without_a_value_is_refused(http: httpx.Client) -> None:
    problem(http.get("/v1/stores?label=region"), 422, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "field", [{"expires_in": "P999999999D"}, {"expires_in": "-P1D"}, {"expires_in": "soon"}]
)
def test_token_lifetime_out_of_range_is_refused(
    http: httpx.Client, metadata: MetadataRows, field: dict[str, str]
) -> None:
    with metadata.unchanged():
        answer = http.post("/v1/tokens", json={"name": "n", "scopes": ["jobs:read"]} | field)
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] in ("INVALID_REQUEST", "EXPIRY_IN_THE_PAST")


@pytest.mark.parametrize("expires_at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_token_expiry_out_of_range_is_refused(
    http: httpx.Client, metadata: MetadataRows, expires_at: str
) -> None:
    body = {"name": "n", "scopes": ["jobs:read"], "expires_at": expires_at}
    with metadata.unchanged():
        answer = http.post("/v1/tokens", json=body)
    assert answer.status_code == 422, answer.text


def test_huge_limit_is_kept_or_refused(http: httpx.Client, shop: Shop) -> None:
    answer = shop.change(limits={"max_rows": 10**25})
    assert answer.status_code in (200, 422), answer.text
    assert http.get(f"/v1/stores/{shop.id}").status_code == 200


def test_deeply_nested_value_is_refused(http: httpx.Client, metadata: MetadataRows, shop: Shop) -> None:
    nested = "[" * 900 + "]" * 900
    request = json.dumps({"kind": "PURGE", "stores": [shop.id], "params": {"kind": "OUTGOING", "deep": 0}})
    content = request.replace(": 0", f": {nested}")
    with metadata.unchanged():
        answer = http.post("/v1/jobs:batch", content=content, headers=JSON)
    assert answer.status_code in (400, 422), answer.text


@pytest.mark.parametrize(
    "path", ["/v1/jobs/job_1:abort", "/v1/jobs/a:b", "/v1/stores/a:b", "/v1/jobs/job:batch"]
)
def test_id_with_a_colon_is_no_id(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code in (404, 405, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("verb", [":abort", ":explode", "", "/events:abort"])
def test_post_to_an_unknown_action_changes_nothing(
    http: httpx.Client, metadata: MetadataRows, verb: str
) -> None:
    with metadata.unchanged():
        answer = http.post(f"/v1/jobs/job_{'0' * 26}:x{verb}", json={})
    assert answer.status_code in (404, 405, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/stores/none",
        "/v1/stores/none/purges",
        "/v1/stores/none/parameters",
        "/v1/stores/none/purge-stats",
    ],
)
def test_reading_an_unknown_store_is_not_found(http: httpx.Client, path: str) -> None:
    problem(http.get(path), 404, "STORE_NOT_FOUND")


def test_writing_to_an_unknown_store_is_not_found(http: httpx.Client, metadata: MetadataRows) -> None:
    with metadata.unchanged():
        for path in ("/v1/stores/none/purges", "/v1/stores/none/purges?validate_only=true"):
            problem(http.post(path, json={"kind": "OUTGOING"}), 404, "STORE_NOT_FOUND")
        for verb in ("check", "resume", "recover"):
            problem(http.post(f"/v1/stores/none:{verb}"), 404, "STORE_NOT_FOUND")
        problem(http.post("/v1/stores/none:suspend", json={"reason": "r"}), 404, "STORE_NOT_FOUND")
        problem(http.delete("/v1/stores/none", headers={"If-Match": '"1"'}), 404, "STORE_NOT_FOUND")
        problem(http.patch("/v1/stores/none", json={}, headers={"If-Match": '"1"'}), 404, "STORE_NOT_FOUND")


@pytest.mark.parametrize("path", ["/v1/jobs/{id}", "/v1/jobs/{id}/events", "/v1/archives/{id}"])
def test_unknown_job_is_not_found(http: httpx.Client, path: str) -> None:
    answer = http.get(path.format(id=f"job_{'0' * 26}"))
    problem(answer, 404, "ARCHIVE_NOT_FOUND" if "archives" in path else "JOB_NOT_FOUND")


def test_unknown_parameter_is_not_found(http: httpx.Client) -> None:
    problem(http.get("/v1/parameters/no.such.name"), 404, "PARAMETER_NOT_FOUND")


@pytest.mark.parametrize("kind", ["MYSQL", "outgoing", "", None, 7, "slony"])
def test_store_of_a_wrong_kind_is_refused(http: httpx.Client, metadata: MetadataRows, kind: Any) -> None:
    with metadata.unchanged():
        answer = http.post("/v1/stores", json=STORE | {"kind": kind})
    assert "/kind" in pointers(problem(answer, 422, "KIND_NOT_SUPPORTED"))


@pytest.mark.parametrize("kind", ["EVERYTHING", "incoming", ""])
def test_purge_of_a_wrong_kind_is_refused(metadata: MetadataRows, shop: Shop, kind: str) -> None:
    before = shop.digest
    with metadata.unchanged():
        problem(shop.purge(kind=kind), 422, "KIND_NOT_SUPPORTED")
        problem(shop.plan(kind=kind), 422, "KIND_NOT_SUPPORTED")
    assert shop.digest == before
