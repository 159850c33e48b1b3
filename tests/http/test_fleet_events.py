"""`/v1/events` of real services: every event once and in order, over restarts and instances."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from lethe_client import FleetEvent, Lethe, ProblemError, RetryPolicy

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.targets import copy_reference

PATIENCE_S = 60.0


class Ears:
    """A listener in a thread of its own."""

    def __init__(self, url: str, token: str, **narrowed: Any) -> None:
        self.heard: list[FleetEvent] = []
        self.error: Exception | None = None
        self._client = Lethe(url, token, retries=RetryPolicy(total_s=PATIENCE_S))
        self._stream = self._client.fleet.events(**narrowed)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for event in self._stream:
                self.heard.append(event)
        except Exception as error:  # noqa: BLE001 -- the test looks at it
            self.error = error

    def until(self, what: Callable[[list[FleetEvent]], bool]) -> list[FleetEvent]:
        """What was heard once something is so."""
        wait_until(lambda: what(self.heard))
        return list(self.heard)

    def close(self) -> None:
        self._client.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it never was"
        time.sleep(0.05)


@contextmanager
def listening(service: ServiceProcess, token: str | None = None, **narrowed: Any) -> Iterator[Ears]:
    """A listener that hears all that happens from now on, whenever it is connected."""
    with service.http() as http:
        begin = int(next(frames_of(http))["id"])
    ears = Ears(service.url, token or service.token, last_event_id=begin, **narrowed)
    try:
        yield ears
    finally:
        ears.close()


def ended(job_id: str) -> Callable[[list[FleetEvent]], bool]:
    return lambda heard: any(
        event.subject == f"jobs/{job_id}" and event.data.get("state") == "SUCCEEDED" for event in heard
    )


def states_of(heard: list[FleetEvent], job_id: str) -> list[str]:
    return [
        str(event.data["state"])
        for event in heard
        if event.subject == f"jobs/{job_id}" and event.type == "job.state"
    ]


def frames_of(http: httpx.Client, path: str = "/v1/events", **headers: str) -> Iterator[dict[str, str]]:
    """The frames of one connection."""
    with http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        frame: dict[str, str] = {}
        for line in answer.iter_lines():
            if not line:
                if frame:
                    yield frame
                frame = {}
                continue
            name, _, value = line.partition(": ")
            frame[name] = value


def test_all_that_happens_is_told_once_and_in_order(service: ServiceProcess, shop: Shop) -> None:
    with service.http() as http:
        stream = frames_of(http)
        assert next(stream)["event"] == "ready"
        job_id = accepted(shop.purge())
        seen = []
        for frame in stream:
            if "data" not in frame:
                continue
            event = json.loads(frame["data"])
            if event["subject"] != f"jobs/{job_id}":
                continue
            assert (frame["id"], frame["event"]) == (str(event["number"]), event["type"])
            assert (event["store"], event["kind"]) == (shop.id, "PURGE")
            seen.append(event)
            if event["data"].get("state") == "SUCCEEDED":
                break
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    assert [event["number"] for event in seen] == sorted({event["number"] for event in seen})
    own = shop.http.get(f"/v1/jobs/{job_id}/events", params={"page_size": 500}).json()["items"]
    assert [(event["seq"], event["data"]) for event in seen] == [(each["seq"], each["data"]) for each in own]


def test_stream_goes_on_after_the_last_event_that_was_heard(service: ServiceProcess, shop: Shop) -> None:
    with service.http() as http:
        begin = next(frames_of(http))["id"]
        job_id = accepted(shop.purge())
        wait_for(http, job_id)
        whole = _until_end(http, job_id, begin)
        for place in (0, len(whole) // 2, len(whole) - 2):
            again = _until_end(http, job_id, str(whole[place]["number"]))
            assert again == whole[place + 1 :]


def _until_end(http: httpx.Client, job_id: str, after: str) -> list[dict[str, Any]]:
    found = []
    for frame in frames_of(http, **{"Last-Event-ID": after}):
        if frame.get("event") in (None, "ready"):
            continue
        event = json.loads(frame["data"])
        found.append(event)
        if event["subject"] == f"jobs/{job_id}" and event["data"].get("state") == "SUCCEEDED":
            break
    return found


def test_id_that_nobody_gave_is_a_reset_and_one_that_is_none_a_problem(service: ServiceProcess) -> None:
    with service.http() as http:
        first = next(frames_of(http, **{"Last-Event-ID": "999999999999999999"}))
        assert first["event"] == "reset"
        assert int(first["id"]) < 999999999999999999
        problem(http.get("/v1/events", headers={"Last-Event-ID": "x"}), 400, "INVALID_HEADER")
        problem(http.get("/v1/events?stor=shop"), 422, "INVALID_REQUEST")
        problem(http.get("/v1/events?label=shop"), 422, "INVALID_REQUEST")
        assert http.head("/v1/events").status_code == 200


def test_token_of_some_stores_hears_of_no_other(
    service: ServiceProcess, make_shop: Callable[..., Shop], make_token: Callable[..., str]
) -> None:
    mine, theirs = make_shop(), make_shop()
    token = make_token("jobs:read", stores=[mine.id])
    with listening(service, token) as ears, listening(service, stores=[theirs.id]) as narrowed:
        other = accepted(theirs.purge())
        wait_for(theirs.http, other)
        own = accepted(mine.purge())
        heard = ears.until(ended(own))
        narrow = narrowed.until(ended(other))
    assert {event.store for event in heard} == {mine.id}
    assert {event.store for event in narrow} == {theirs.id}
    with service.http(token) as limited:
        problem(limited.get("/v1/events", params={"store": theirs.id}), 403, "STORE_FORBIDDEN")


def test_labels_and_kinds_narrow_a_stream(service: ServiceProcess, make_shop: Callable[..., Shop]) -> None:
    red, blue = make_shop(labels={"colour": "red"}), make_shop(labels={"colour": "blue"})
    with (
        listening(service, labels={"colour": "red"}) as ears,
        listening(service, kinds=["EVENT_CLEANUP"]) as deaf,
    ):
        for shop in (blue, red):
            job_id = accepted(shop.purge())
            wait_for(shop.http, job_id)
        heard = ears.until(ended(job_id))
    assert {event.store for event in heard} == {red.id}
    assert deaf.heard == []


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_token_that_ends_ends_its_stream(service: ServiceProcess, http: httpx.Client, how: str) -> None:
    expiry = {"expires_in": "PT2S"} if how == "expired" else {}
    made = http.post("/v1/tokens", json={"name": "short", "scopes": ["jobs:read"]} | expiry).json()
    with service.http(made["token"]) as holder:
        stream = frames_of(holder)
        assert next(stream)["event"] == "ready"
        if how == "revoked":
            assert http.post(f"/v1/tokens/{made['id']}:revoke").status_code == 200
        list(stream)  # to its end: else this would not return
        problem(holder.get("/v1/events"), 401, f"TOKEN_{how.upper()}")
    ears = Ears(service.url, made["token"])
    wait_until(lambda: ears.error is not None)
    assert isinstance(ears.error, ProblemError)
    ears.close()


def _own_shop(service: ServiceProcess, directory: Path) -> Shop:
    path = copy_reference(directory / "shop.sqlite", "3.x")
    http = httpx.Client(
        base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, timeout=60
    )
    body = {"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
    assert http.post("/v1/stores", json=body).status_code == 201
    return Shop(http=http, id="shop", path=path)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_service_that_is_killed_and_started_again_is_heard_without_a_gap(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgresql_url") if kind == "postgresql" else None
    service = ServiceProcess(tmp_path, metadata_url=url).start()
    try:
        shop = _own_shop(service, tmp_path)
        with listening(service) as ears:
            first = accepted(shop.purge())
            ears.until(ended(first))
            second = accepted(shop.purge())
            service.kill9()
            service.start()
            ears.until(ended(second))
            third = accepted(shop.purge())
            heard = ears.until(ended(third))
        with service.http() as http:
            whole = [json.loads(frame["data"]) for frame in _all_since(http, heard)]
        shop.http.close()
    finally:
        service.kill9()
    assert [event.number for event in heard] == [event["number"] for event in whole][: len(heard)]
    for job_id in (first, second, third):
        assert states_of(heard, job_id)[0] == "QUEUED"
        assert states_of(heard, job_id)[-1] == "SUCCEEDED"


def _all_since(http: httpx.Client, heard: list[FleetEvent]) -> list[dict[str, str]]:
    """All events up to the last that was heard, told anew."""
    found = []
    for frame in frames_of(http, **{"Last-Event-ID": str(heard[0].number - 1)}):
        if frame.get("event") in (None, "ready"):
            continue
        found.append(frame)
        if int(frame["id"]) >= heard[-1].number:
            break
    return found


@pytest.mark.postgresql
def test_stream_moves_to_another_instance(
    postgresql_service: ServiceProcess, second_service: ServiceProcess, roots: Path
) -> None:
    path = copy_reference(roots / f"moving-{time.monotonic_ns()}.sqlite", "3.x")
    with postgresql_service.http() as http, second_service.http(postgresql_service.token) as other:
        name = f"moving-{time.monotonic_ns()}"
        body = {"id": name, "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        assert http.post("/v1/stores", json=body).status_code == 201
        shop = Shop(http=http, id=name, path=path)
        begin = next(frames_of(http))["id"]
        jobs = [accepted(shop.purge())]
        heard = _until_end(http, jobs[0], begin)
        jobs.append(accepted(shop.purge()))
        heard += _until_end(other, jobs[1], str(heard[-1]["number"]))
        jobs.append(accepted(shop.purge()))
        heard += _until_end(http, jobs[2], str(heard[-1]["number"]))
        assert heard == _until_end(other, jobs[2], begin)
    numbers = [event["number"] for event in heard]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.alone
@pytest.mark.long
def test_fifty_open_streams_take_a_tenth_of_a_core(tmp_path: Path) -> None:
    from tests.http.test_idle_service import cpu_s

    service = ServiceProcess(tmp_path).start()
    clients = [httpx.Client(headers={"Authorization": f"Bearer {service.token}"}) for _ in range(50)]
    try:
        answers = [
            client.send(client.build_request("GET", f"{service.url}/v1/events"), stream=True)
            for client in clients
        ]
        time.sleep(5)
        before = cpu_s(service.pid)
        time.sleep(30)
        share = (cpu_s(service.pid) - before) / 30
        for answer in answers:
            answer.close()
    finally:
        for client in clients:
            client.close()
        service.stop()
    print(f"{share:.2%} of a core")
    assert share <= 0.10
