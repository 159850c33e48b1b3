"""`lethe status`, `lethe whoami`, `lethe events` against a real service, as people and scripts use them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx

from tests.http.service_process import LETHE, ServiceProcess, environment, run_to_end
from tests.http.shop import Shop, accepted, wait_for


def run(service: ServiceProcess, *words: str, token: str | None = None) -> Any:
    settings = {"LETHE_URL": service.url, "LETHE_TOKEN": token or service.token}
    return run_to_end([*words], settings=settings)


def test_status_shows_a_store_on_one_screen_and_as_json(service: ServiceProcess, shop: Shop) -> None:
    wait_for(shop.http, accepted(shop.purge()))
    assert shop.http.post(f"/v1/stores/{shop.id}:check").status_code == 200
    shown = run(service, "status", "--store", shop.id)
    assert shown.returncode == 0, shown.stderr
    line = next(line for line in shown.stdout.splitlines() if line.startswith(shop.id))
    assert "OK" in line or "WARNING" in line
    assert "PURGE" in line
    document = json.loads(run(service, "status", "--store", shop.id, "--json").stdout)
    [told] = document["stores"]
    assert told["verbs"][0]["last_success_at"] is not None
    assert told["health"]["checked_at"] is not None


def test_status_says_by_its_exit_that_somebody_is_needed(
    service: ServiceProcess, make_shop: Callable[..., Shop], make_token: Callable[..., str]
) -> None:
    good, bad = make_shop(), make_shop()
    bad.path.unlink()
    bad.path.mkdir()
    for shop in (good, bad):
        assert shop.http.post(f"/v1/stores/{shop.id}:check").status_code == 200
    calm = run(service, "status", "--check", token=make_token("jobs:read", "stores:read", stores=[good.id]))
    assert (calm.returncode, calm.stdout.splitlines()[0]) == (0, "Nothing needs anybody.")
    alarm = run(service, "status", "--check", token=make_token("jobs:read", "stores:read", stores=[bad.id]))
    assert alarm.returncode == 1
    assert "STORE_UNREADY" in alarm.stdout
    assert good.id not in alarm.stdout


def test_whoami_tells_scopes_stores_and_end(service: ServiceProcess, make_token: Callable[..., str]) -> None:
    token = make_token("jobs:read", stores=["shop"], expires_in="P1D")
    found = json.loads(run(service, "whoami", "--json", token=token).stdout)
    assert (found["name"], found["scopes"], found["stores"]) == ("test", ["jobs:read"], ["shop"])
    assert found["expires_at"] is not None
    assert found["provider"] is False
    admin = json.loads(run(service, "whoami", "--json").stdout)
    assert admin["stores"] is None
    assert {"admin", "jobs:read", "stores:write"} <= set(admin["scopes"])
    assert run(service, "whoami", token="lethe_unknown").returncode == 77


def test_events_go_on_after_a_number(service: ServiceProcess, http: httpx.Client, shop: Shop) -> None:
    with http.stream("GET", "/v1/events") as answer:
        begin = next(line for line in answer.iter_lines() if line.startswith("id: ")).removeprefix("id: ")
    job_id = accepted(shop.purge())
    wait_for(http, job_id)
    words = ("events", "--store", shop.id, "--after", begin, "--limit", "3")
    told = [json.loads(line) for line in run(service, *words, "--json").stdout.splitlines()]
    assert told[0]["data"]["state"] == "QUEUED"
    assert {each["subject"] for each in told} == {f"jobs/{job_id}"}
    assert len(told) == 3
    shown = run(service, *words)
    assert [line.split()[0] for line in shown.stdout.splitlines()] == [str(each["number"]) for each in told]
    assert run(service, "events").returncode == 64


def watching(service: ServiceProcess, shop: Shop, *options: str) -> subprocess.Popen[str]:
    """`lethe status --watch` of one store, as a process of its own."""
    words = ["status", "--store", shop.id, "--watch", "--interval", "0.5", *options]
    settings = {"LETHE_URL": service.url, "LETHE_TOKEN": service.token}
    return subprocess.Popen(
        [str(LETHE), *words],
        env=environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has SIGINT ignored, and a process inherits that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def test_a_watch_with_check_ends_with_1_as_soon_as_somebody_is_needed(
    service: ServiceProcess, make_shop: Callable[..., Shop]
) -> None:
    """`--watch` took `--check` and went on for ever."""
    shop = make_shop()
    assert shop.http.post(f"/v1/stores/{shop.id}:check").status_code == 200
    with watching(service, shop, "--check", "--json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert [each["id"] for each in first["stores"]] == [shop.id]
        assert process.poll() is None
        shop.path.unlink()
        shop.path.mkdir()
        assert shop.http.post(f"/v1/stores/{shop.id}:check").status_code == 200
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, "")
    last = json.loads(out.splitlines()[-1])
    assert "STORE_UNREADY" in {each["code"] for each in last["attention"]}


def test_a_watch_shows_look_after_look_until_it_is_interrupted(service: ServiceProcess, shop: Shop) -> None:
    with watching(service, shop, "--json") as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert {look["stores"][0]["id"] for look in looks} == {shop.id}
    assert process.returncode == 130
