"""What came with schema 0019, filled by the version that has it, and judged when the present one goes on.

Schedules, windows that hold a purge, a webhook with events that nobody has taken, a cycle of erasure that is
half done.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from lethe_client import Conflict, CycleRequest, Lethe

from tests.journeys.crashes import build_large
from tests.journeys.erasure import live_records
from tests.journeys.ground import add_store, assert_exact, expect, purge_request
from tests.journeys.service import await_job, succeeded, until
from tests.oracles.symmetricds import Place, snapshot
from tests.receivers import receiving
from tests.regressions.environments import begin_history, write_versions

NOBODY = "http://127.0.0.1:1/"
"""Where nobody listens."""
KEY = "webhook.key"
"""The file, beside the targets, with what the webhook signs by."""
ENDED = "lethe.job.ended"
BODY = {"kind": "OUTGOING", "retention_minutes": 7200}
STORE = {"store": "landed-comes"}
FAR = {"cron": "30 3 29 2 *", "time_zone": "Europe/Berlin", "jitter": "PT10M"}
HELD = {"held": "yes"}
ROWS, SEED = 60, 1019
VERSIONS = 6
PATIENCE_S = 90.0
CYCLES_MAX = 20
SQLITE = ("comes", "held")


def place_of(name: str, targets: Path | str) -> Place:
    """The target of a store."""
    return Place(f"sqlite:///{targets}/{name}.db")


def _build(name: str, targets: Path) -> Place:
    place = place_of(name, targets)
    build_large(place, SEED + SQLITE.index(name), rows=ROWS)
    return place


def _environment(home: Path) -> None:
    home.mkdir()
    environment = begin_history(home)
    for number in range(VERSIONS):
        write_versions(environment, b"version %d" % number)
    environment.close()


def packed(targets: Path) -> str:
    """What is no database as text: the files of the environment, and the key of the webhook."""
    files = [targets / KEY, *sorted((targets / "erased").iterdir())]
    named = {str(path.relative_to(targets)): path.read_bytes() for path in files}
    return json.dumps({name: base64.b64encode(data).decode() for name, data in named.items()})


def unpack(targets: Path, text: str) -> None:
    """Write it."""
    (targets / "erased").mkdir()
    for name, data in json.loads(text).items():
        (targets / name).write_bytes(base64.b64decode(data))


def begin(client: Lethe, targets: Path) -> None:
    """Before any job: who is to hear of their ends."""
    made = client.webhooks.create(NOBODY, [ENDED], clear_text_on_loopback=True, description="former")
    (targets / KEY).write_text(str(made.signing_secret))


def fill(client: Lethe, targets: Path) -> None:
    """Bring all of it into a state in which it stays until the service is killed."""
    comes, held = (_build(name, targets) for name in SQLITE)
    add_store(client, "landed-comes", comes)
    schedule = client.schedules.create(
        "PURGE", BODY, cron="* * * * *", name="comes", missed="RUN_ONCE", overlap="QUEUE", **STORE
    )
    client.schedules.create("PURGE", BODY, name="far", **STORE, **FAR)
    paused = client.schedules.create("PURGE", BODY, cron="* * * * *", name="paused", **STORE)
    client.schedules.pause(paused.id)
    client.windows.create("DENY", cron="* * * * *", duration="PT2M", labels=HELD, name="held")
    client.windows.create("ALLOW", cron="0 1 * * *", duration="PT5H", labels={"of": "nobody"}, name="night")
    add_store(client, "landed-held", held, labels=HELD)
    job = client.purges.create("landed-held", purge_request(held))
    until(lambda: "WINDOW" in str(client.jobs.get(job.id).raw["waiting_on"]))
    home = targets / "erased"
    _environment(home)
    client.stores.create("landed-erased", str(home), kind="JE")
    cycle = client.erasure.begin("landed-erased", CycleRequest(min_file_age="PT0S", duration="PT3M"))
    until(lambda: _erased(client), timeout_s=PATIENCE_S, pause_s=0.5)
    assert not client.jobs.get(cycle.id).ended
    until(lambda: client.schedules.get(schedule.id).last is not None, timeout_s=PATIENCE_S)


def _erased(client: Lethe) -> int:
    return sum(file.state == "ERASED" for file in client.erasure.files("landed-erased"))


def judge(client: Lethe, targets: Path, scratch: Path, *, since: datetime) -> None:
    """Everything goes on under the present version, which was started at an instant."""
    _judge_schedules(client, since)
    _judge_window(client, targets, scratch)
    _judge_cycle(client, targets / "erased", scratch)
    _judge_webhook(client, (targets / KEY).read_text())


def _judge_schedules(client: Lethe, since: datetime) -> None:
    found = {schedule.name: schedule for schedule in client.schedules.list() if schedule.source is None}
    assert set(found) == {"comes", "far", "paused"}
    far = found["far"]
    assert {name: getattr(far, name) for name in ("cron", "time_zone")} == {
        name: FAR[name] for name in ("cron", "time_zone")
    }
    assert far.next_due is not None
    assert (far.next_due.month, far.next_due.day, far.next_due.hour) == (2, 29, 2)
    assert found["paused"].is_paused
    assert found["paused"].next_due is None
    assert client.schedules.resume(found["paused"].id).next_due is not None
    client.schedules.pause(found["paused"].id)

    def fired() -> list[str]:
        jobs = client.jobs.list(stores=["landed-comes"])
        reason = f"schedule {found['comes'].id}"
        return [each.id for each in jobs if each.raw["reason"] == reason and each.created_at >= since]

    for job_id in until(fired, timeout_s=PATIENCE_S):
        assert await_job(client, job_id).state == "SUCCEEDED"


def _judge_window(client: Lethe, targets: Path, scratch: Path) -> None:
    [job] = client.jobs.list(stores=["landed-held"])
    until(lambda: "WINDOW" in str(client.jobs.get(job.id).raw["waiting_on"]))
    windows = {window.name: window for window in client.windows.list()}
    assert set(windows) == {"held", "night"}
    assert (windows["held"].intensity, windows["night"].intensity) == (0.0, 1.0)
    (scratch / "landed").mkdir()
    place = _build("held", scratch / "landed")
    expected = expect(place, snapshot(place))
    assert snapshot(place_of("held", targets)) == snapshot(place), "nothing went while the window was closed"
    client.windows.remove(windows["held"].id)
    assert_exact(place_of("held", targets), expected, succeeded(client, job.id))


def _judge_cycle(client: Lethe, home: Path, scratch: Path) -> None:
    """It goes on, or its time has passed since; it can be stopped, and the next one does the rest."""
    _environment(scratch / "erased")
    live = live_records(scratch / "erased")
    result: dict[str, Any] = {}
    for _ in range(CYCLES_MAX):
        if result.get("state") == "COMPLETE":
            break
        for job in client.jobs.list(stores=["landed-erased"]):
            if not job.ended:  # the former one, or its successor, which takes as long
                client.jobs.abort(job.id)
                await_job(client, job.id)
        job_id = _fresh(client)
        result = {} if job_id is None else dict(await_job(client, job_id).result or {})
    assert (result["state"], result["remaining"]) == ("COMPLETE", 0), result
    assert live_records(home) == live


def _fresh(client: Lethe) -> str | None:
    """A cycle without rests; None: the service has begun one by itself."""
    with contextlib.suppress(Conflict):
        request = CycleRequest(min_file_age="PT0S", duration="PT0S")
        return client.erasure.begin("landed-erased", request).id
    return None


def _judge_webhook(client: Lethe, key: str) -> None:
    """What was never taken is delivered under the ids that it had, signed by the key that it had."""
    [webhook] = client.webhooks.list()
    waiting = list(client.webhooks.deliveries(webhook.id))
    assert "DELIVERED" not in {each.state for each in waiting}
    ended = {job.id for job in client.jobs.list() if job.ended}
    with receiving(key=key) as receiver:
        client.webhooks.update(client.webhooks.get(webhook.id), {"url": receiver.url})
        for each in waiting:  # at once, whatever its next time is, or where its time has passed since
            client.webhooks.replay(webhook.id, each.id)
        events = {each.event_id for each in waiting}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            got = [(headers["webhook-id"], json.loads(body)) for headers, body in list(receiver.got)]
            if events <= {name for name, _ in got} and ended <= {body["data"]["job_id"] for _, body in got}:
                break
            assert time.monotonic() < deadline, (len(waiting), len(got))
            time.sleep(0.2)
        assert receiver.refused == 0
        assert len(waiting) >= 4
