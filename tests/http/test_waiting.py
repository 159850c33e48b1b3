"""Long polls and event streams: nothing missed, nothing twice, on any instance."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.http.events import Event, listed, stream
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.targets import copy_reference

MakeShop = Callable[..., Shop]


@pytest.fixture(scope="session")
def service(postgresql_service: ServiceProcess) -> ServiceProcess:
    """PostgreSQL metadata alone: test_crowd.py and test_processes.py wait on both."""
    return postgresql_service


def _abort(http: httpx.Client, job_id: str) -> None:
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    wait_for(http, job_id)


def test_poll_for_the_state_answers_when_it_changes(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge()
    wait_for(http, job_id, "RUNNING")
    threading.Timer(1.0, lambda: http.post(f"/v1/jobs/{job_id}:pause", json={})).start()
    started = time.monotonic()
    answer = http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=20"})
    elapsed = time.monotonic() - started
    assert answer.json()["state"] in ("PAUSING", "PAUSED")
    assert 0.5 < elapsed < 6
    _abort(http, job_id)


def test_poll_for_the_state_is_not_woken_by_progress(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge(rows_per_s=30)
    wait_for(http, job_id, "RUNNING")
    started = time.monotonic()
    answer = http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=2"})
    assert (answer.json()["state"], answer.headers["preference-applied"]) == ("RUNNING", "wait=2")
    assert 1.9 < time.monotonic() - started < 5
    _abort(http, job_id)


def test_poll_for_progress_answers_with_more_of_it(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge()
    wait_for(http, job_id, "RUNNING")
    seen = []
    for _ in range(3):
        answer = http.get(f"/v1/jobs/{job_id}?wait_for=progress", headers={"Prefer": "wait=10"})
        seen.append(answer.headers["etag"])
        assert answer.json()["state"] == "RUNNING"
    assert len(set(seen)) == 3
    _abort(http, job_id)


def test_poll_for_an_ended_job_answers_at_once(http: httpx.Client, shop: Shop) -> None:
    job_id = accepted(shop.purge())
    wait_for(http, job_id)
    started = time.monotonic()
    assert http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=30"}).status_code == 200
    assert time.monotonic() - started < 5


def test_poll_with_a_stale_etag_answers_what_is_new(http: httpx.Client, shop: Shop) -> None:
    """A poll that names the version it knows must not wait for a change that has happened already."""
    job_id = shop.slow_purge()
    wait_for(http, job_id, "RUNNING")
    known = http.get(f"/v1/jobs/{job_id}").headers["etag"]
    http.get(f"/v1/jobs/{job_id}?wait_for=progress", headers={"Prefer": "wait=10"})
    answer = http.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": known})
    assert answer.status_code == 200
    _abort(http, job_id)


def test_stream_begins_with_the_first_event_and_ends_with_the_job(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge(rows_per_s=400)
    seen = list(stream(http, job_id))
    assert [event.id for event in seen] == list(range(1, len(seen) + 1))
    assert seen[0].data["data"]["state"] == "QUEUED"
    assert (seen[-1].kind, seen[-1].data["data"]["state"]) == ("state", "SUCCEEDED")
    assert {event.kind for event in seen} <= {"state", "engine", "progress", "warning", "throttle"}
    assert [event.data for event in seen] == listed(http, job_id)
    assert [event.data["seq"] for event in seen] == [event.id for event in seen]


def test_stream_that_is_cut_again_and_again_misses_and_repeats_nothing(
    http: httpx.Client, shop: Shop
) -> None:
    job_id = shop.slow_purge(rows_per_s=300)
    seen: list[Event] = []
    while not seen or seen[-1].data["data"].get("state") not in ("SUCCEEDED", "FAILED"):
        after = seen[-1].id if seen else None
        seen += itertools.islice(stream(http, job_id, after=after), 2)
    assert [event.data for event in seen] == listed(http, job_id)


def test_stream_of_another_instance_misses_and_repeats_nothing(
    postgresql_service: ServiceProcess, second_service: ServiceProcess, roots: Path
) -> None:
    path = copy_reference(roots / "two-instances.sqlite")
    with postgresql_service.http() as one, second_service.http() as two, ThreadPoolExecutor(4) as pool:
        body = {"id": "two-instances", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        assert one.post("/v1/stores", json=body).status_code == 201
        shop = Shop(http=one, id="two-instances", path=path)
        job_id = shop.slow_purge(rows_per_s=250)
        whole = [pool.submit(list, stream(http, job_id)) for http in (one, two)]
        seen: list[Event] = []
        for http in itertools.cycle((two, one)):
            after = seen[-1].id if seen else None
            seen += itertools.islice(stream(http, job_id, after=after), 3)
            if seen[-1].data["data"].get("state") in ("SUCCEEDED", "FAILED"):
                break
        expected = listed(two, job_id)
        assert listed(one, job_id) == expected
        assert [event.data for event in seen] == expected
        for future in whole:
            assert [event.data for event in future.result()] == expected
        assert one.get(f"/v1/jobs/{job_id}").json() == two.get(f"/v1/jobs/{job_id}").json()


def test_order_given_on_another_instance_reaches_the_running_job(
    postgresql_service: ServiceProcess, second_service: ServiceProcess, roots: Path
) -> None:
    path = copy_reference(roots / "ordered.sqlite")
    with postgresql_service.http() as one, second_service.http() as two:
        body = {"id": "ordered", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        assert one.post("/v1/stores", json=body).status_code == 201
        shop = Shop(http=one, id="ordered", path=path)
        job_id = shop.slow_purge(rows_per_s=50)
        running = wait_for(one, job_id, "RUNNING")
        holder = {item["id"]: item for item in two.get("/v1/instances").json()["items"]}[running["instance"]]
        other = two if holder["pid"] == postgresql_service.pid else one
        assert other.post(f"/v1/jobs/{job_id}:pause", json={}).status_code in (200, 202)
        paused = wait_for(other, job_id, "PAUSED", timeout_s=10)
        assert paused["instance"] is None
        assert other.post(f"/v1/jobs/{job_id}:resume", json={}).status_code == 200
        faster = other.patch(f"/v1/jobs/{job_id}/throttle", json={"rows_per_s": None})
        assert faster.json()["throttle"]["requested"]["rows_per_s"] is None
        assert wait_for(one, job_id)["state"] == "SUCCEEDED"


def test_events_of_an_unknown_job_are_not_found(http: httpx.Client) -> None:
    headers = {"Accept": "text/event-stream"}
    problem(http.get(f"/v1/jobs/job_{'0' * 26}/events", headers=headers), 404, "JOB_NOT_FOUND")


def test_stream_whose_reader_has_left_costs_nothing(
    http: httpx.Client, shop: Shop, service: ServiceProcess
) -> None:
    job_id = shop.slow_purge(rows_per_s=60)
    before = service.thread_count()
    for _ in range(20):
        next(stream(http, job_id))
    _abort(http, job_id)
    assert service.thread_count() <= before + 24


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_token_that_ends_ends_its_stream_of_a_job(
    http: httpx.Client, service: ServiceProcess, shop: Shop, how: str
) -> None:
    expiry = {"expires_in": "PT2S"} if how == "expired" else {}
    made = http.post("/v1/tokens", json={"name": "short", "scopes": ["jobs:read"]} | expiry).json()
    job_id = shop.slow_purge()
    wait_for(http, job_id, "RUNNING")
    path, accept = f"/v1/jobs/{job_id}/events", {"Accept": "text/event-stream"}
    with service.http(made["token"]) as holder, holder.stream("GET", path, headers=accept) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        if how == "revoked":
            assert http.post(f"/v1/tokens/{made['id']}:revoke").status_code == 200
        ends_by = time.monotonic() + 10
        for _ in lines:
            assert time.monotonic() < ends_by, "it goes on"
    assert http.get(f"/v1/jobs/{job_id}").json()["state"] == "RUNNING"
    _abort(http, job_id)
