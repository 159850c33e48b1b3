"""Webhooks of a real service: made, changed, signed, replayed, and killed around every commit."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.hooks.signing import new_key
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.targets import copy_reference
from tests.receivers import Receiver, listening, receiving

ENDED = "lethe.job.ended"
STORES = ("shop", "other", "third", "fourth")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    directory = tmp_path_factory.mktemp("webhooks")
    settings = {
        "LETHE_SECRET_HOOK": new_key(),
        "LETHE_SECRET_PLAIN": "password",
        "LETHE_WEBHOOK_SOURCE": "here",
    }
    found = ServiceProcess(directory, settings=settings).start()
    with found.http() as http:
        for name in ("shop", "other"):
            store(http, directory, name)
    yield found
    found.stop()


@pytest.fixture
def http(running: ServiceProcess) -> Iterator[httpx.Client]:
    with running.http() as client:
        yield client


def store(http: httpx.Client, directory: Path, name: str) -> None:
    file = copy_reference(directory / f"{name}.sqlite", "3.x")
    body = {"id": name, "kind": "SYMMETRICDS", "url": f"sqlite:///{file}"}
    assert http.post("/v1/stores", json=body).status_code == 201


def make(http: httpx.Client, url: str, **fields: Any) -> dict[str, Any]:
    body = {"url": url, "events": [ENDED], "clear_text_on_loopback": url.startswith("http:")} | fields
    answer = http.post("/v1/webhooks", json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def purge(http: httpx.Client, name: str = "shop") -> str:
    """A purge of one store after the other."""

    def submitted() -> httpx.Response | None:
        answer = http.post(f"/v1/stores/{name}/purges", json={"kind": "DATA_GAP"})
        return None if answer.status_code == 409 else answer

    answer = until(submitted)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def until(true: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def deliveries(http: httpx.Client, hook: dict[str, Any], **query: str) -> list[dict[str, Any]]:
    answer = http.get(f"/v1/webhooks/{hook['id']}/deliveries", params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def test_a_job_that_ends_is_told_and_its_delivery_shown(http: httpx.Client) -> None:
    with receiving() as receiver:
        hook = make(http, receiver.url)
        job_id = purge(http)
        [body] = receiver.wait_for(1)
    assert receiver.verified(hook["signing_secret"]) == [body]
    assert (body["data"]["job_id"], body["data"]["state"]) == (job_id, "SUCCEEDED")
    assert body["source"] == "here"
    [row] = until(lambda: deliveries(http, hook, state="DELIVERED"))
    assert (row["attempts"], row["last_status"], row["event_id"]) == (1, 204, body["id"])
    detail = http.get(f"/v1/webhooks/{hook['id']}/deliveries/{row['id']}").json()
    assert detail["event"] == body
    shown = http.get(f"/v1/webhooks/{hook['id']}").json()
    assert (shown["delivered"], "signing_secret" in shown) == (1, False)
    assert hook["signing_secret"] not in http.get("/v1/webhooks").text
    assert hook["signing_secret"] not in http.get("/v1/audit-events").text
    figures = http.get("/metrics").text
    assert f'lethe_webhook_deliveries_total{{outcome="delivered",webhook="{hook["id"]}"}} 1.0' in figures
    assert f'lethe_webhook_oldest_pending_age_seconds{{webhook="{hook["id"]}"}} 0.0' in figures


def test_a_replayed_request_does_not_show_the_secret_again(http: httpx.Client) -> None:
    body = {"url": "https://alerts.example/hook", "events": [ENDED]}
    answers = [http.post("/v1/webhooks", json=body, headers={"Idempotency-Key": "hook-1"}) for _ in range(2)]
    assert [answer.json()["id"] for answer in answers] == [answers[0].json()["id"]] * 2
    assert [bool(answer.json()["signing_secret"]) for answer in answers] == [True, False]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"url": "http://alerts.example/hook"}, "CLEAR_TEXT_REFUSED"),
        ({"url": "http://alerts.example/hook", "clear_text_on_loopback": True}, "CLEAR_TEXT_REFUSED"),
        ({"url": "http://127.0.0.1/hook"}, "CLEAR_TEXT_REFUSED"),
        ({"url": "https://169.254.169.254/latest"}, "HOST_NOT_ALLOWED"),
        ({"url": "https://[::ffff:169.254.169.254]/latest"}, "HOST_NOT_ALLOWED"),
        ({"url": "https://0.0.0.0/"}, "HOST_NOT_ALLOWED"),
        ({"url": "https://u:p@alerts.example/"}, "INVALID_REQUEST"),
        ({"url": "ftp://alerts.example/"}, "INVALID_REQUEST"),
        ({"events": []}, "INVALID_REQUEST"),
        ({"events": ["lethe.webhook.ping"]}, "INVALID_REQUEST"),
        ({"waits_longer_than": "PT1H"}, "EVENTS_INCOMPLETE"),
        ({"events": ["lethe.success.overdue"]}, "EVENTS_INCOMPLETE"),
        (
            {
                "events": ["lethe.success.overdue"],
                "stores": ["shop"],
                "expected": [{"store": "other", "kind": "PURGE", "within": "P1D"}],
            },
            "EXPECTED_ELSEWHERE",
        ),
        ({"secret": "secret:nobody"}, "SECRET_NOT_ALLOWED"),
        ({"secret": "env:LETHE_SECRET_HOOK"}, "INVALID_REQUEST"),
    ],
)
def test_what_may_not_be_a_webhook_is_refused(http: httpx.Client, fields: dict[str, Any], code: str) -> None:
    body = {"url": "https://alerts.example/hook", "events": [ENDED]} | fields
    problem(http.post("/v1/webhooks", json=body), 422, code)


def test_named_secrets_sign_where_they_may_and_passwords_never(http: httpx.Client, running: Any) -> None:
    with receiving() as receiver:
        place = receiver.url.split("/")[2]
        for name, reference, host in (
            ("hook", "env:LETHE_SECRET_HOOK", place),
            ("elsewhere", "env:LETHE_SECRET_HOOK", "db.example:5432"),
            ("plain", "env:LETHE_SECRET_PLAIN", place),
        ):
            body = {"name": name, "reference": reference, "stores": ["shop"], "hosts": [host]}
            assert http.post("/v1/secrets", json=body).status_code == 201
        body = {"url": receiver.url, "events": [ENDED], "clear_text_on_loopback": True}
        answer = http.post("/v1/webhooks", json=body | {"secret": "secret:elsewhere"})
        problem(answer, 422, "SECRET_NOT_ALLOWED")
        good = make(http, receiver.url, secret="secret:hook")
        bad = make(http, receiver.url, secret="secret:plain")
        assert good["signing_secret"] is None
        purge(http)
        receiver.wait_for(1)
        [row] = until(lambda: [row for row in deliveries(http, bad) if row["last_error"]])
        assert "no signing secret" in row["last_error"]
        assert "password" not in row["last_error"]
        assert receiver.verified(running.settings["LETHE_SECRET_HOOK"])
        answer = http.delete("/v1/secrets/hook", headers={"If-Match": "*"})
        problem(answer, 409, "SECRET_IN_USE")
        assert good["id"] in answer.json()["detail"]


def test_rotation_keeps_both_secrets_for_a_while(http: httpx.Client) -> None:
    with receiving() as receiver:
        hook = make(http, receiver.url)
        one = f"/v1/webhooks/{hook['id']}"
        turned = http.post(f"{one}:rotate", json={"overlap": "PT1H"}).json()
        assert turned["signing_secret"] != hook["signing_secret"]
        http.post(f"{one}:test")
        receiver.wait_for(1)
        assert len(receiver.verified(hook["signing_secret"], turned["signing_secret"])) == 2
        last = http.post(f"{one}:rotate", json={"overlap": "PT0S"}).json()
        http.post(f"{one}:test")
        receiver.wait_for(2)
        assert " " not in receiver.got[1][0]["webhook-signature"]
        receiver.got = receiver.got[1:]
        assert receiver.verified(last["signing_secret"])[0]["type"] == "lethe.webhook.ping"


def test_replays_bring_the_same_ids(http: httpx.Client) -> None:
    with receiving(status="500 Broken") as receiver:
        hook = make(http, receiver.url)
        job_ids = {purge(http) for _ in range(3)}
        receiver.wait_for(1)
        receiver.status = "204 No Content"
        one = f"/v1/webhooks/{hook['id']}"
        until(lambda: len(deliveries(http, hook)) == 3)
        for row in until(lambda: deliveries(http, hook, state="PENDING")):
            assert http.post(f"{one}/deliveries/{row['id']}:replay").status_code == 200
        until(lambda: len(deliveries(http, hook, state="DELIVERED")) == 3)
        first = {body["id"]: body["data"]["job_id"] for body in receiver.events}
        assert set(first.values()) == job_ids
        since = {"since": "2026-01-01T00:00:00Z"}
        found = http.post(f"{one}/deliveries:replay", json=since)
        assert (found.status_code, found.json()) == (200, {"replayed": 3, "more": False})
        receiver.wait_for(7)
        assert {body["id"]: body["data"]["job_id"] for body in receiver.events} == first
        future = {"since": "2090-01-01T00:00:00Z"}
        assert http.post(f"{one}/deliveries:replay", json=future).json()["replayed"] == 0


def test_a_disabled_webhook_gets_nothing_until_it_is_enabled(http: httpx.Client) -> None:
    with receiving(status="410 Gone") as receiver:
        hook = make(http, receiver.url)
        one = f"/v1/webhooks/{hook['id']}"
        purge(http)
        until(lambda: not http.get(one).json()["enabled"])
        assert http.get(one).json()["disabled_because"] == "GONE"
        problem(http.post(f"{one}:test"), 409, "WEBHOOK_DISABLED")
        receiver.status = "204 No Content"
        tag = http.get(one).headers["etag"]
        answer = http.patch(one, json={"enabled": True}, headers={"If-Match": tag})
        assert (answer.status_code, answer.json()["disabled_because"]) == (200, None)
        [row] = deliveries(http, hook)
        http.post(f"{one}/deliveries/{row['id']}:replay")
        receiver.wait_for(2)
    problem(http.patch(one, json={"enabled": True}, headers={"If-Match": tag}), 412, "ETAG_MISMATCH")
    assert http.delete(one, headers={"If-Match": "*"}).status_code == 204
    problem(http.get(one), 404, "WEBHOOK_NOT_FOUND")


def test_a_limited_token_has_its_own_webhooks_and_deliveries_alone(
    http: httpx.Client, running: ServiceProcess
) -> None:
    scopes = ["webhooks:read", "webhooks:write", "stores:read"]
    made = http.post("/v1/tokens", json={"name": "t", "scopes": scopes, "stores": ["shop"]}).json()
    foreign = make(http, "https://alerts.example/all")
    wide = make(http, "https://alerts.example/two", stores=["shop", "other"])
    with receiving() as receiver, running.http(made["token"]) as limited:
        loopback = {
            "url": receiver.url,
            "events": [ENDED],
            "stores": ["shop"],
            "clear_text_on_loopback": True,
        }
        problem(limited.post("/v1/webhooks", json=loopback), 403, "SCOPE_MISSING")
        far = {"url": "https://alerts.example/hook", "events": [ENDED]}
        for more in ({}, {"stores": ["other"]}, {"stores": ["shop", "other"]}, {"labels": {"a": "b"}}):
            problem(limited.post("/v1/webhooks", json=far | more), 403, "STORE_FORBIDDEN")
        expected = [{"store": "other", "kind": "PURGE", "within": "P1D"}]
        more = {"stores": ["shop"], "events": ["lethe.success.overdue"], "expected": expected}
        problem(limited.post("/v1/webhooks", json=far | more), 403, "STORE_FORBIDDEN")
        own = limited.post("/v1/webhooks", json=far | {"stores": ["shop"]}).json()
        assert [row["id"] for row in limited.get("/v1/webhooks").json()["items"]] == [own["id"]]
        for hook in (foreign, wide):
            one = f"/v1/webhooks/{hook['id']}"
            problem(limited.get(one), 403, "STORE_FORBIDDEN")
            problem(limited.get(f"{one}/deliveries"), 403, "STORE_FORBIDDEN")
            problem(limited.post(f"{one}:test"), 403, "STORE_FORBIDDEN")
        # It was for all, has deliveries of both stores, and is narrowed to what the token may touch.
        hook = make(http, receiver.url, stores=["shop", "other"])
        one = f"/v1/webhooks/{hook['id']}"
        purge(http, "shop")
        purge(http, "other")
        receiver.wait_for(2)
        until(lambda: len(deliveries(http, hook, state="DELIVERED")) == 2)
        assert http.patch(one, json={"stores": ["shop"]}, headers={"If-Match": "*"}).status_code == 200
        [seen] = deliveries(limited, hook)
        assert seen["store"] == "shop"
        [hidden] = [row for row in deliveries(http, hook) if row["store"] == "other"]
        problem(limited.get(f"{one}/deliveries/{hidden['id']}"), 403, "STORE_FORBIDDEN")
        problem(limited.post(f"{one}/deliveries/{hidden['id']}:replay"), 403, "STORE_FORBIDDEN")
        since = {"since": "2026-01-01T00:00:00Z"}
        assert limited.post(f"{one}/deliveries:replay", json=since).json()["replayed"] == 1
        until(lambda: len(receiver.got) == 3)
        assert receiver.events[-1]["data"]["store"] == "shop"


def test_the_command_from_add_to_remove(running: ServiceProcess) -> None:
    def lethe(*words: str) -> Any:
        named = {"LETHE_URL": running.url, "LETHE_TOKEN": running.token}
        done = run_to_end(["webhook", *words, "--json"], settings=named)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    with receiving() as receiver:
        place = [receiver.url, "--clear-text-on-loopback", "--store", "shop"]
        expect = ["--expect", "shop:PURGE:P2D", "--waits-longer-than", "PT1H"]
        code, made = lethe("add", *place, *expect, "--event", ENDED)
        assert (code, len(made["events"])) == (0, 3)
        hook = made["id"]
        code, sent = lethe("test", hook)
        assert (code, sent["state"]) == (0, "DELIVERED")
        assert receiver.verified(made["signing_secret"])[0]["data"]["webhook_id"] == hook
        assert hook in [each["id"] for each in lethe("list")[1]["items"]]
        assert lethe("show", hook)[1]["expected"][0]["kind"] == "PURGE"
        [row] = lethe("deliveries", hook)[1]["items"]
        assert lethe("deliveries", hook, row["id"])[1]["event"]["type"] == "lethe.webhook.ping"
        assert lethe("replay", hook, row["id"])[1]["id"] == row["id"]
        receiver.wait_for(2)
        until(lambda: lethe("deliveries", hook)[1]["items"][0]["state"] == "DELIVERED")
        assert lethe("replay", hook, "--since", "2026-01-01T00:00:00Z")[1]["replayed"] == 1
        assert lethe("rotate", hook, "--overlap", "PT0S")[1]["signing_secret"] != made["signing_secret"]
        assert lethe("disable", hook)[1]["enabled"] is False
        assert lethe("enable", hook)[1]["enabled"] is True
        receiver.status = "500 Broken"
        code, sent = lethe("test", hook)
        assert (code, sent["last_status"]) == (1, 500)
        assert lethe("remove", hook) == (0, {"id": hook, "removed": True})


@pytest.mark.parametrize("kills", [2, pytest.param(1_000, marks=pytest.mark.long)])
def test_killed_at_any_moment_every_event_arrives_and_ids_are_stable(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("LETHE_TEST_SEED", time.time()))
    chance = random.Random(seed)
    service = ServiceProcess(tmp_path)
    receiver = Receiver()
    jobs: set[str] = set()
    with listening(receiver.serve) as url:
        service.start()
        with service.http() as http:
            for name in STORES:
                store(http, tmp_path, name)
            hook = make(http, url)
            receiver.key = hook["signing_secret"]
        for _ in range(kills):
            with service.http() as http:
                jobs |= {purge(http, name) for name in STORES}
            time.sleep(chance.uniform(0, 0.4))
            service.kill9()
            service.start()
        with service.http() as http:
            until(lambda: all_ended(http, jobs), 120)
            until(lambda: all(row["state"] == "DELIVERED" for row in pages(http, hook)), 60)
            rows = pages(http, hook)
        service.stop()
    events: dict[str, str] = {}
    assert receiver.refused == 0, seed
    for body in receiver.events:
        assert events.setdefault(body["id"], body["data"]["job_id"]) == body["data"]["job_id"], seed
    assert set(events.values()) == jobs, seed  # none is lost
    assert len(events) == len(jobs), seed  # and none has two ids
    assert {row["event_id"] for row in rows} == set(events), seed


def all_ended(http: httpx.Client, jobs: set[str]) -> bool:
    states = [http.get(f"/v1/jobs/{job_id}").json()["state"] for job_id in sorted(jobs)]
    return all(state in ("SUCCEEDED", "FAILED") for state in states)


def pages(http: httpx.Client, hook: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    token = ""
    while True:
        query = {"page_size": "500", "page_token": token}
        page = http.get(f"/v1/webhooks/{hook['id']}/deliveries", params=query).json()
        rows += page["items"]
        token = page["next_page_token"]
        if not token:
            return rows
