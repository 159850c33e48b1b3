"""Erasure cycles of a real service: killed in the middle, throttled, stopped and started again."""

from __future__ import annotations

import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from lethe_client import CycleRequest

from tests.je_data import unpack
from tests.journeys.erasure import (
    AT_ONCE,
    add_environment,
    busy_s,
    children_of,
    content,
    live_records,
)
from tests.journeys.service import Service, await_job, serving, succeeded, until

SETTINGS = {"LETHE_ERASURE_WAIT_IN_JOB_S": "0.5", "LETHE_ERASURE_TICK_S": "0.3", "LETHE_CRASH_LOOP_MAX": "60"}


def kill_again_and_again(directory: Path, *, kills: int, seed: int) -> None:
    """Kill the service at random moments of a cycle, then let it finish; nothing that lives is lost."""
    rng = Random(seed)
    home = unpack("closed", directory / "environment")
    live, size = live_records(home), {name: len(data) for name, data in content(home).items()}
    with serving(directory / "service", SETTINGS) as service:
        store = add_environment(service.client, "orders", home)
        job_id = service.client.erasure.begin(store, AT_ONCE).id
        for _ in range(kills):
            time.sleep(rng.uniform(0.05, 1.5))
            service.kill9()
            assert live_records(home) == live
            service.start()
            if service.client.jobs.get(job_id).state == "SUCCEEDED":
                await_job(service.client, job_id)
                job_id = service.client.erasure.begin(store, AT_ONCE).id
        result = succeeded(service.client, job_id)
        assert result["state"] == "COMPLETE"
        assert result["remaining"] == 0
        files = list(service.client.erasure.files(store))
        assert {file.state for file in files[:-1]} <= {"ERASED", "CLEAN"}
        assert service.client.erasure.stats(store).cumulative["eraserFilesRemaining"] == 0
    assert live_records(home) == live
    assert {name: len(data) for name, data in content(home).items()} == size


def test_cycle_that_is_killed_again_and_again_is_finished(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, kills=2, seed=int(datetime(2026, 11, 20).timestamp()))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_cycle_that_is_killed_at_many_moments_is_finished(tmp_path: Path, seed: int) -> None:
    kill_again_and_again(tmp_path, kills=12, seed=seed)


@pytest.mark.alone
def test_throttled_cycle_follows_its_plan(tmp_path: Path) -> None:
    duration_s = 15.0
    home = unpack("closed", tmp_path / "environment")
    with serving(tmp_path / "service", {"LETHE_ERASURE_WAIT_IN_JOB_S": "60"}) as service:
        store = add_environment(service.client, "orders", home)
        service.client.erasure.plan(store, AT_ONCE)  # machine code is kept: no cycle pays for it
        asked = CycleRequest(min_file_age="PT0S", duration=f"PT{duration_s:.0f}S")
        result = succeeded(service.client, service.client.erasure.begin(store, asked).id)
        assert result["state"] == "COMPLETE", result
        files = list(service.client.erasure.files(store))[:-1]
        planned = service.client.erasure.get(store).raw["throttle"]
    free_s = planned["total_units"] / planned["rate_per_s"]
    begun = [datetime.fromisoformat(file.raw["first_write_at"]) for file in files]
    # From the first write of one file to that of the next: two units a byte, never faster.
    for earlier, later in pairwise(begun):
        assert (later - earlier).total_seconds() >= free_s * 2 / 9 * 0.95
    assert len(begun) == 3


def test_waiting_cycle_holds_nothing(tmp_path: Path) -> None:
    home = unpack("closed", tmp_path / "environment")
    with serving(tmp_path / "service", SETTINGS) as service:
        store = add_environment(service.client, "orders", home)
        # The log was written once and for all: its files are young for a while only.
        job = service.client.erasure.begin(store, CycleRequest(period="P3650D"))
        young = succeeded(service.client, job.id)
        assert young["files"] == {"NOT_SELECTED": 4}
        job = service.client.erasure.begin(store, CycleRequest(min_file_age="PT0S", duration="P25D"))
        until(lambda: _waits(service, job.id), timeout_s=60)
        cycle = service.client.erasure.get(store)
        assert cycle.state == "RUNNING"
        assert cycle.throttle["next_at"] is not None


def _waits(service: Service, job_id: str) -> bool:
    """Whether the job waits for its throttle with nothing held: no lease, no child, no processor."""
    job = service.client.jobs.get(job_id)
    if job.state != "WAITING" or job.waiting_on[0].kind != "THROTTLE":
        return False
    children, before = children_of(service.pid), busy_s(service.pid)
    time.sleep(0.3)
    used_s = busy_s(service.pid) - before
    if service.client.jobs.get(job_id).raw["attempt"] != job.raw["attempt"]:
        return False
    assert children == []
    assert job.raw["instance"] is None
    assert used_s < 0.3
    return True


def test_stopped_service_resumes_its_cycle_and_past_its_end_starts_a_fresh_one(tmp_path: Path) -> None:
    home = unpack("closed", tmp_path / "environment")
    live = live_records(home)
    # The first file's throttle lasts a minute: a job that went WAITING with it would be resumed that late.
    with serving(tmp_path / "service", {**SETTINGS, "LETHE_ERASURE_WAIT_IN_JOB_S": "600"}) as service:
        store = add_environment(service.client, "orders", home)
        job = service.client.erasure.begin(store, CycleRequest(min_file_age="PT0S", duration="PT10M"))
        until(lambda: service.client.erasure.get(store).throttle["done_units"], timeout_s=60)
        first = service.client.erasure.get(store)
        time.sleep(3)
        assert service.stop() == 0
        service.start()
        until(lambda: "RESUMED" in _messages(service, job.id), timeout_s=60)
        resumed = service.client.erasure.get(store)
        assert (resumed.id, resumed.ends_at) == (first.id, first.ends_at)
        assert resumed.state == "RUNNING"
        service.client.jobs.abort(job.id)
        await_job(service.client, job.id)

        short = service.client.erasure.begin(store, CycleRequest(min_file_age="PT0S", duration="PT4S"))
        until(lambda: service.client.erasure.get(store).ends_at, timeout_s=60)
        service.kill9()
        time.sleep(5.0)
        service.start()
        ended = await_job(service.client, short.id)
        assert (ended.state, ended.reason) == ("ABORTED", "CYCLE_EXPIRED")
        until(lambda: len(list(service.client.erasure.list(store))) == 3, timeout_s=30)
        fresh, expired, aborted = service.client.erasure.list(store)
        assert (expired.state, aborted.state) == ("EXPIRED", "ABORTED")
        assert fresh.duration == expired.duration
    assert live_records(home) == live


def _messages(service: Service, job_id: str) -> list[str]:
    events = service.client.jobs.event_list(job_id)
    return [event.data.get("message", "") for event in events if event.type == "eraser"]
