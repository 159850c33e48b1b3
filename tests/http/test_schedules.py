"""Schedules and windows of a real service: written, fired, killed, held, by HTTP and by the command."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.shop import Shop
from tests.http.targets import copy_reference

PURGE = {"verb": "PURGE", "body": {"kind": "OUTGOING"}, "cron": "* * * * *"}
PATIENCE_S = 90.0


def written(http: httpx.Client, store: str, **fields: Any) -> dict[str, Any]:
    answer = http.post("/v1/schedules", json=PURGE | {"store": store} | fields)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def until(http: httpx.Client, path: str, is_so: Any) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        body = dict(http.get(path).json())
        if is_so(body):
            return body
        assert time.monotonic() < deadline, body
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("cron", "field"),
    [
        ("* * * * * *", "/cron"),
        ("0 0 30 2 *", "/cron"),
        ("*/0 * * * *", "/cron"),
        ("61 * * * *", "/cron"),
        ("@daily ! ! !", "/cron"),
        ("\x00 * * * *", "/cron"),
        ("² * * * *", "/cron"),
        ("0 0 * * L#9", "/cron"),
        ("1," * 300_000 + "1 * * * *", "/cron"),
        ("", "/cron"),
    ],
)
def test_cron_of_an_adversary_is_refused_at_once(
    http: httpx.Client, shop: Shop, cron: str, field: str
) -> None:
    began = time.monotonic()
    answer = http.post("/v1/schedules", json=PURGE | {"store": shop.id, "cron": cron})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == field
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "fields",
    [
        {"time_zone": "Mars/Olympus"},
        {"time_zone": "../../etc/passwd"},
        {"jitter": "PT2H"},
        {"jitter": "-PT1S"},
        {"overlap": "BOTH"},
        {"labels": {"a": "b"}},
        {"body": {"kind": "OUTGOING", "deep": "x" * 30_000}},
        {"body": {"kind": "ROWS"}},
        {"verb": "EVENT_WAIT"},
    ],
)
def test_schedule_that_could_never_work_is_not_written(
    http: httpx.Client, shop: Shop, fields: dict[str, Any]
) -> None:
    answer = http.post("/v1/schedules", json=PURGE | {"store": shop.id} | fields)
    assert answer.status_code in (409, 422), answer.text


def shop_of(http: httpx.Client, directory: Path) -> str:
    name = f"kept-{time.time_ns()}"
    file = copy_reference(directory / f"{name}.sqlite", "3.x")
    body = {"id": name, "kind": "SYMMETRICDS", "url": f"sqlite:///{file}"}
    http.post("/v1/stores", json=body).raise_for_status()
    return name


@pytest.mark.parametrize("kills", [2, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_killed_service_loses_no_due_time_and_fires_none_twice(
    sqlite_service: ServiceProcess, roots: Path, kills: int
) -> None:
    service = sqlite_service
    with service.http() as http:
        made = written(http, shop_of(http, roots), cron="0 0 1 1 *", missed="RUN_ONCE")
    path = f"/v1/schedules/{made['id']}"
    for number in range(1, kills + 1):
        service.kill9()
        # Its next time has just come: it is fired by the first look, in which the service is killed again.
        due = datetime.now(UTC) - timedelta(hours=1, seconds=number)
        with closing(sqlite3.connect(service.data_dir / "lethe.db")) as db, db:
            text = due.strftime("%Y-%m-%d %H:%M:%S.000000")
            db.execute("delete from schedule_firings")
            db.execute("update jobs set state = 'SUCCEEDED' where store = ?", (made["store"],))
            db.execute(
                "update schedules set next_due = ?, next_at = ?, last_outcome = null where id = ?",
                (text, text, made["id"]),
            )
            [before] = db.execute("select count(*) from jobs where store = ?", (made["store"],)).fetchone()
        service.start()
        time.sleep(0.02 * (number % 5))
        service.kill9()
        service.start()
        with service.http() as http:
            fired = until(http, path, lambda body: body["last"] is not None)
            assert fired["last"]["outcome"] == "SUBMITTED"
            jobs = http.get("/v1/jobs", params={"store": made["store"]}).json()["items"]
        assert len(jobs) == before + 1
    with service.http() as http:
        http.delete(path).raise_for_status()


def test_window_holds_a_purge_and_lets_it_go(http: httpx.Client, make_shop: Any) -> None:
    shop = make_shop(labels={"held": "yes"})
    closed = {"kind": "DENY", "cron": "* * * * *", "duration": "P1D", "labels": {"held": "yes"}}
    window = http.post("/v1/windows", json=closed).json()
    assert window["open_until"] is not None
    job = http.post(f"/v1/stores/{shop.id}/purges", json={"kind": "OUTGOING"}).json()
    held = until(http, f"/v1/jobs/{job['id']}", lambda body: body["state"] == "WAITING")
    assert held["waiting_on"][0]["kind"] == "WINDOW"
    assert window["id"] in held["waiting_on"][0]["ref"]
    http.delete(f"/v1/windows/{window['id']}").raise_for_status()
    until(http, f"/v1/jobs/{job['id']}", lambda body: body["state"] == "SUCCEEDED")


def test_store_that_loses_its_label_has_its_held_jobs_go_on(http: httpx.Client, make_shop: Any) -> None:
    shop = make_shop(labels={"tier": "gold"})
    closed = {"kind": "DENY", "cron": "* * * * *", "duration": "P1D", "labels": {"tier": "gold"}}
    window = http.post("/v1/windows", json=closed).json()
    job = http.post(f"/v1/stores/{shop.id}/purges", json={"kind": "OUTGOING"}).json()
    until(http, f"/v1/jobs/{job['id']}", lambda body: body["state"] == "WAITING")
    store = f"/v1/stores/{shop.id}"
    tag = {"If-Match": http.get(store).headers["ETag"]}
    http.patch(store, json={"labels": {"tier": "iron"}}, headers=tag).raise_for_status()
    until(http, f"/v1/jobs/{job['id']}", lambda body: body["state"] == "SUCCEEDED")
    http.delete(f"/v1/windows/{window['id']}").raise_for_status()


def test_windows_are_for_admins(service: ServiceProcess, make_token: Callable[..., str]) -> None:
    with service.http(make_token(role="operator")) as operator:
        body = {"kind": "DENY", "cron": "0 0 * * *", "duration": "PT1H"}
        problem(operator.post("/v1/windows", json=body), 403, "SCOPE_MISSING")
        assert operator.get("/v1/windows").status_code == 200


def test_command_writes_lists_pauses_and_removes(sqlite_service: ServiceProcess, roots: Path) -> None:
    with sqlite_service.http() as http:
        store = shop_of(http, roots)
    where = ["--url", sqlite_service.url, "--json"]
    settings = {"LETHE_TOKEN": sqlite_service.token}

    def lethe(*arguments: str) -> dict[str, Any]:
        done = run_to_end([*arguments, *where], settings=settings)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    body = json.dumps({"kind": "OUTGOING"})
    made = lethe(
        "schedule", "add", "PURGE", "--store", store, "--body", body, "--cron", "0 3 * * *",
        "--time-zone", "Europe/Berlin",
    )  # fmt: skip
    name = made["id"]
    assert name in {item["id"] for item in lethe("schedule", "list")["items"]}
    assert len(lethe("schedule", "next-runs", name, "--count", "3")["items"]) == 3
    assert lethe("schedule", "pause", name)["is_paused"]
    assert not lethe("schedule", "resume", name)["is_paused"]
    assert lethe("schedule", "show", name)["time_zone"] == "Europe/Berlin"
    assert lethe("schedule", "remove", name)["removed"]
    window = lethe("window", "add", "ALLOW", "--cron", "0 0 1 1 *", "--duration", "PT1H", "--label", "no=one")
    assert window["id"] in {item["id"] for item in lethe("window", "list")["items"]}
    assert lethe("window", "remove", window["id"])["removed"]
