"""ETags, pages, waits and idempotency keys: the headers and tokens that requests bring back."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for

MakeShop = Callable[..., Shop]


_done: dict[int, str] = {}


@pytest.fixture
def done(http: httpx.Client, make_shop: MakeShop, service: ServiceProcess) -> str:
    """The id of a job that has succeeded; one for each service, for nobody changes it."""
    if service.pid not in _done:
        job_id = accepted(make_shop().purge())
        assert wait_for(http, job_id)["state"] == "SUCCEEDED"
        _done[service.pid] = job_id
    return _done[service.pid]


def test_change_without_if_match_is_refused(http: httpx.Client, shop: Shop, metadata: MetadataRows) -> None:
    path = f"/v1/stores/{shop.id}"
    with metadata.unchanged():
        problem(http.patch(path, json={"time_zone": "Europe/Berlin"}), 428, "PRECONDITION_MISSING")
        problem(http.delete(path), 428, "PRECONDITION_MISSING")
        for place in ("/v1/parameters", f"{path}/parameters"):
            name = f"{place}/purge.retention.minutes"
            problem(http.put(name, json={"value": 60}), 428, "PRECONDITION_MISSING")
            problem(http.delete(name), 428, "PRECONDITION_MISSING")


def test_change_with_a_stale_etag_is_refused(http: httpx.Client, shop: Shop, metadata: MetadataRows) -> None:
    stale = {"If-Match": shop.etag()}
    assert shop.change(labels={"a": "b"}).status_code == 200
    path = f"/v1/stores/{shop.id}"
    with metadata.unchanged():
        answer = http.patch(path, json={"labels": {}}, headers=stale)
        problem(answer, 412, "ETAG_MISMATCH")
        assert answer.headers["etag"] == shop.etag()
        problem(http.delete(path, headers=stale), 412, "ETAG_MISMATCH")
        problem(http.delete(path, headers={"If-Match": "W/" + shop.etag()}), 412, "ETAG_MISMATCH")
        name = f"{path}/parameters/purge.retention.minutes"
        problem(http.put(name, json={"value": 60}, headers=stale), 412, "ETAG_MISMATCH")
    assert http.delete(path, headers={"If-Match": f'"other", {shop.etag()}'}).status_code == 204
    problem(http.get(path), 404, "STORE_NOT_FOUND")


def test_etag_of_a_removed_store_is_none_of_its_successor(
    http: httpx.Client, make_shop: MakeShop, metadata: MetadataRows
) -> None:
    """Whoever has read the former one would change, remove or go on showing another target."""
    former, target = make_shop(), make_shop()
    path, stale = f"/v1/stores/{former.id}", former.etag()
    assert http.delete(path, headers={"If-Match": stale}).status_code == 204
    body = {"id": former.id, "kind": "SYMMETRICDS", "url": f"sqlite:///{target.path}"}
    assert http.post("/v1/stores", json=body).status_code == 201
    assert http.get(path, headers={"If-None-Match": stale}).status_code == 200
    with metadata.unchanged():
        answer = http.patch(path, json={"labels": {}}, headers={"If-Match": stale})
        problem(answer, 412, "ETAG_MISMATCH")
        problem(http.delete(path, headers={"If-Match": stale}), 412, "ETAG_MISMATCH")
        name = f"{path}/parameters/purge.retention.minutes"
        problem(http.put(name, json={"value": 60}, headers={"If-Match": stale}), 412, "ETAG_MISMATCH")
    assert http.delete(path, headers={"If-Match": answer.headers["etag"]}).status_code == 204


def test_what_a_check_learns_of_the_target_does_not_make_an_etag_stale(
    http: httpx.Client, make_shop: MakeShop
) -> None:
    """A check that came by itself raised the version: a PATCH with the ETag of the POST was 412 then."""
    shop = make_shop()
    path = f"/v1/stores/{shop.id}"
    read = http.get(path)
    assert read.json()["target_identity"] is None
    assert http.post(f"{path}:check").json()["identity"]
    known = http.get(path, headers={"If-None-Match": read.headers["etag"]})
    assert known.status_code == 200, "it shows more than was read"
    assert known.json()["target_identity"]
    assert http.get(path, headers={"If-None-Match": known.headers["etag"]}).status_code == 304
    changed = http.patch(path, json={"labels": {"a": "b"}}, headers={"If-Match": read.headers["etag"]})
    assert changed.status_code == 200
    problem(
        http.patch(path, json={"labels": {}}, headers={"If-Match": known.headers["etag"]}),
        412,
        "ETAG_MISMATCH",
    )


@pytest.mark.parametrize("value", ["1", "abc", '"1', "W/1", '"a" "b"', ",", '"²"'])
def test_if_match_that_is_no_entity_tag_is_refused(
    shop: Shop, metadata: MetadataRows, http: httpx.Client, value: str
) -> None:
    headers = [(b"If-Match", value.encode("latin-1"))]
    with metadata.unchanged():
        answer = http.patch(f"/v1/stores/{shop.id}", json={"labels": {}}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) in {(400, "INVALID_HEADER"), (412, "ETAG_MISMATCH")}


def test_representation_that_is_known_already_is_not_sent_again(
    http: httpx.Client, shop: Shop, done: str
) -> None:
    for path in (f"/v1/stores/{shop.id}", f"/v1/jobs/{done}", "/v1/parameters/purge.retention.minutes"):
        first = http.get(path)
        again = http.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert not first.headers["etag"].startswith("W/")
        assert http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
        problem(http.get(path, headers={"If-None-Match": "other"}), 400, "INVALID_HEADER")


def test_etag_changes_with_the_job_and_only_with_it(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge()
    seen: dict[str, Any] = {}
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        answer = http.get(f"/v1/jobs/{job_id}")
        assert seen.setdefault(answer.headers["etag"], answer.json()) == answer.json()
    assert len(seen) > 1
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    wait_for(http, job_id)


@pytest.mark.parametrize(
    ("prefer", "status"),
    [
        ("wait=0", 200),
        ("wait=1", 200),
        ("wait=2;foo=bar, respond-async", 200),
        ('wait="1"', 200),
        ("respond-async", 200),
        ("wait", 200),
        ("wait=abc", 200),
        ("wait=1.5", 200),
        ("", 200),
        ("wait=-1", 400),
        ("wait=99999999999", 200),
        ("wait=" + "9" * 5000, 200),
    ],
)
def test_prefer_follows_its_grammar(http: httpx.Client, done: str, prefer: str, status: int) -> None:
    answer = http.get(f"/v1/jobs/{done}", headers={"Prefer": prefer})
    assert answer.status_code == status, answer.text
    if status == 400:
        problem(answer, 400, "INVALID_HEADER")


def test_wait_is_cut_to_the_services_maximum_and_said(http: httpx.Client, done: str) -> None:
    answer = http.get(f"/v1/jobs/{done}", headers={"Prefer": "wait=3600"})
    assert answer.headers["preference-applied"] == "wait=60"
    answer = http.get(f"/v1/jobs/{done}?wait_for=weather", headers={"Prefer": "wait=1"})
    problem(answer, 422, "INVALID_REQUEST")


@pytest.mark.parametrize("value", [b"abc", b"-1", b"1.5", b"9" * 16, b"\xb2", b"0x1", b"1 2"])
def test_last_event_id_that_is_none_is_refused(http: httpx.Client, done: str, value: bytes) -> None:
    headers = [(b"Accept", b"text/event-stream"), (b"Last-Event-ID", value)]
    problem(http.get(f"/v1/jobs/{done}/events", headers=headers), 400, "INVALID_HEADER")


def test_last_event_id_beyond_the_last_event_ends_at_once(http: httpx.Client, done: str) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "999999"}
    answer = http.get(f"/v1/jobs/{done}/events", headers=headers)
    assert answer.status_code == 200
    assert "id:" not in answer.text


def _tampered(key: list[Any]) -> str:
    raw = json.dumps({"k": key, "f": "0" * 16})
    return base64.urlsafe_b64encode(raw.encode()).decode()


@pytest.mark.parametrize(
    "token", ["abc", "!", "e30", "bnVsbA", "MQ", "W10", _tampered(["a"]), _tampered([1]), "%00"]
)
def test_page_token_that_was_not_given_is_refused(http: httpx.Client, done: str, token: str) -> None:
    for path in (
        "/v1/jobs",
        "/v1/stores",
        "/v1/tokens",
        "/v1/audit-events",
        "/v1/archives",
        f"/v1/jobs/{done}/events",
    ):
        problem(http.get(f"{path}?page_token={token}"), 400, "INVALID_PAGE_TOKEN")


def test_page_token_of_another_list_is_refused(
    http: httpx.Client,
    make_shop: MakeShop,
    done: str,
    service: ServiceProcess,
    make_token: Callable[..., str],
) -> None:
    make_shop()
    make_shop()
    token = http.get("/v1/stores?page_size=1").json()["next_page_token"]
    assert token
    problem(http.get("/v1/jobs", params={"page_token": token}), 400, "INVALID_PAGE_TOKEN")
    problem(http.get("/v1/stores", params={"page_token": token, "label": "a=b"}), 400, "INVALID_PAGE_TOKEN")
    problem(http.get("/v1/stores", params={"page_token": token + "x"}), 400, "INVALID_PAGE_TOKEN")
    with service.http(make_token("stores:read", stores=["another"])) as other:
        problem(other.get("/v1/stores", params={"page_token": token}), 400, "INVALID_PAGE_TOKEN")
    events = http.get(f"/v1/jobs/{done}/events?page_size=1").json()["next_page_token"]
    assert events
    again = http.get(f"/v1/jobs/job_{'0' * 26}/events", params={"page_token": events})
    assert again.status_code == 404


def test_pages_show_every_row_once_while_others_are_added(http: httpx.Client, make_shop: MakeShop) -> None:
    made = [make_shop(labels={"page": "walk"}).id for _ in range(5)]
    params = {"label": "page=walk", "page_size": "2"}
    seen: list[str] = []
    page = http.get("/v1/stores", params=params).json()
    make_shop()
    while True:
        seen += [item["id"] for item in page["items"]]
        if not page["next_page_token"]:
            break
        page = http.get("/v1/stores", params=params | {"page_token": page["next_page_token"]}).json()
    assert [name for name in seen if name in made] == sorted(made)
    assert len(seen) == len(set(seen))


def test_replayed_request_answers_the_same_and_does_nothing_again(
    http: httpx.Client, shop: Shop, metadata: MetadataRows
) -> None:
    headers = {"Idempotency-Key": "purge-once"}
    first = shop.purge(headers=headers)
    wait_for(http, accepted(first))
    with metadata.unchanged():
        again = shop.purge(headers=headers)
    assert (again.status_code, again.json()) == (202, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert again.headers["location"] == first.headers["location"]


def test_replayed_key_with_another_request_is_refused(
    http: httpx.Client, shop: Shop, metadata: MetadataRows
) -> None:
    headers = {"Idempotency-Key": "purge-other"}
    wait_for(http, accepted(shop.purge(headers=headers)))
    before = shop.digest
    with metadata.unchanged():
        problem(shop.purge(headers=headers, strict=True), 422, "IDEMPOTENCY_KEY_REUSED")
        problem(shop.purge(headers=headers, cutoff="2026-10-01T00:00:00Z"), 422, "IDEMPOTENCY_KEY_REUSED")
    assert shop.digest == before


def test_change_that_takes_a_value_away_is_another_request(
    http: httpx.Client, shop: Shop, metadata: MetadataRows
) -> None:
    """Both have a field that is null; only the second was sent with one."""
    path = f"/v1/stores/{shop.id}"
    headers = {"Idempotency-Key": "change-once", "If-Match": http.get(path).headers["etag"]}
    labels = {"labels": {"region": "eu"}}
    assert http.patch(path, json=labels, headers=headers).status_code == 200
    with metadata.unchanged():
        again = http.patch(path, json=labels, headers=headers)
        assert again.headers["idempotency-replayed"] == "true"
        problem(
            http.patch(path, json=labels | {"time_zone": None}, headers=headers),
            422,
            "IDEMPOTENCY_KEY_REUSED",
        )


def test_same_key_of_another_token_or_path_is_another_key(
    http: httpx.Client, make_shop: MakeShop, service: ServiceProcess, make_token: Callable[..., str]
) -> None:
    headers = {"Idempotency-Key": "shared-name"}
    one, two = make_shop(), make_shop()
    jobs = {accepted(one.purge(headers=headers)), accepted(two.purge(headers=headers))}
    for job_id in jobs:
        wait_for(http, job_id)
    with service.http(make_token("admin")) as other:
        answer = other.post(f"/v1/stores/{one.id}/purges", json=one.body({}), headers=headers)
        jobs.add(accepted(answer))
        wait_for(http, accepted(answer))
    assert len(jobs) == 3


def test_refused_request_does_not_use_up_its_key(http: httpx.Client, shop: Shop) -> None:
    headers = {"Idempotency-Key": "second-try"}
    problem(shop.purge(headers=headers, retention_minutes=1), 422, "RETENTION_TOO_SHORT")
    wait_for(http, accepted(shop.purge(headers=headers)))


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "é"])
def test_key_out_of_its_grammar_is_refused(
    http: httpx.Client, shop: Shop, metadata: MetadataRows, key: str
) -> None:
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    with metadata.unchanged():
        answer = http.post(f"/v1/stores/{shop.id}/purges", json=shop.body({}), headers=headers)
        problem(answer, 400, "INVALID_HEADER")


def test_twenty_requests_at_once_with_one_key_make_one_job(service: ServiceProcess, shop: Shop) -> None:
    headers = {"Idempotency-Key": "at-once"}
    with service.http() as http, ThreadPoolExecutor(20) as pool:
        body = shop.body({"overlap": "QUEUE"})
        path = f"/v1/stores/{shop.id}/purges"
        answers = list(pool.map(lambda _: http.post(path, json=body, headers=headers), range(20)))
        jobs = {answer.json()["id"] for answer in answers if answer.status_code == 202}
        others = [answer for answer in answers if answer.status_code != 202]
        for answer in others:
            assert problem(answer, 409, "IDEMPOTENCY_KEY_IN_FLIGHT")["retryable"]
        assert len(jobs) == 1
        purges = http.get(path).json()["items"]
        assert [job["id"] for job in purges] == list(jobs)
        wait_for(http, jobs.pop())
