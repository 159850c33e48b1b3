"""Waits that last too long, and successes that do not come: told once, and again after a success."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, update
from sqlmodel import col, select

from app.db import Database
from app.hooks import looks
from app.hooks.looks import look, look_at_expectations, look_at_waits
from app.jobs.rows import Job
from app.jobs.running.waits import PLANNED
from app.jobs.states import JobState
from app.jobs.writing import EVENT_PROGRESS, change_job, end_values
from app.outbox.facts import Fact
from app.outbox.rows import Webhook, WebhookExpectation, WebhookWait
from tests.app.fake_clock import FakeClock
from tests.app.hooks.outboxes import deliveries_of, events_of, make_hook, make_job, make_store

HOUR = timedelta(hours=1)


def wait(database: Database, job_id: str, *kinds: str, state: JobState = JobState.WAITING) -> None:
    shown = [{"kind": kind, "ref": "10.0.0.7 password=x", "until": None} for kind in kinds]
    with database.transaction() as db:
        values: dict[str, Any] = {"state": state, "waiting_on": shown}
        assert change_job(db, job_id, guards=[], values=values, now=database.now(db))


def look_again(database: Database, *hooks: Webhook) -> int:
    with database.reading() as db:
        rows = db.exec(select(Webhook).where(col(Webhook.id).in_([hook.id for hook in hooks]))).all()
    return look_at_waits(database, rows)


def told(database: Database, fact: Fact) -> Sequence[dict[str, Any]]:
    return [event.data for event in events_of(database) if event.type == fact]


@pytest.fixture
def home(sqlite_database: Database) -> Database:
    """On SQLite the clock of the metadata is the fake one."""
    return sqlite_database


def test_a_long_wait_is_told_once_to_each_by_its_own_measure(home: Database, clock: FakeClock) -> None:
    one, two = make_hook(home, waits_longer_than=HOUR), make_hook(home, waits_longer_than=3 * HOUR)
    other = make_hook(home, waits_longer_than=HOUR, stores=["other"])
    job_id = make_job(home)
    wait(home, job_id, "TARGET_UNREACHABLE")
    found = []
    for _ in range(240):  # a look each minute
        clock.advance(60)
        wait(home, job_id, "TARGET_UNREACHABLE")  # it looks again all the time
        found.append(look_again(home, one, two, other))
    assert sum(found) == 2
    assert found.index(1) == 59  # an hour after it began, not after it was seen
    [first, second] = told(home, Fact.JOB_WAITS_LONG)
    assert first["waiting_on"] == ["TARGET_UNREACHABLE"]
    assert first["waits_since"] == second["waits_since"]
    assert "password" not in str(first)
    assert [row.webhook_id for row in deliveries_of(home)] == [one.id, two.id]


def test_a_wait_for_something_else_is_another_one(home: Database, clock: FakeClock) -> None:
    hook = make_hook(home, waits_longer_than=HOUR)
    job_id = make_job(home)
    for cause in ("TARGET_UNREACHABLE", "BACKUP", "TARGET_UNREACHABLE"):
        for _ in range(65):
            wait(home, job_id, cause)
            clock.advance(60)
            look_again(home, hook)
    assert [data["waiting_on"] for data in told(home, Fact.JOB_WAITS_LONG)] == [
        ["TARGET_UNREACHABLE"],
        ["BACKUP"],
        ["TARGET_UNREACHABLE"],
    ]


def test_a_short_look_of_the_job_ends_no_wait_and_work_does(home: Database, clock: FakeClock) -> None:
    hook = make_hook(home, waits_longer_than=HOUR)
    job_id = make_job(home)
    for minute in range(59):
        wait(home, job_id, "BACKUP", state=JobState.RUNNING if minute % 3 == 1 else JobState.WAITING)
        clock.advance(60)
        look_again(home, hook)
    with home.transaction() as db:  # now it gains something
        event = (EVENT_PROGRESS, {"done": 1})
        assert change_job(db, job_id, guards=[], values={"waiting_on": []}, now=home.now(db), event=event)
    for _ in range(59):
        wait(home, job_id, "BACKUP")
        clock.advance(60)
        assert look_again(home, hook) == 0
    assert told(home, Fact.JOB_WAITS_LONG) == []


def test_an_abort_without_proof_is_a_wait_and_an_end_is_none(home: Database, clock: FakeClock) -> None:
    hook = make_hook(home, waits_longer_than=HOUR)
    job_id = make_job(home)
    for _ in range(62):
        wait(home, job_id, "TARGET_SILENCE", state=JobState.ABORTING)
        clock.advance(60)
        look_again(home, hook)
    assert [data["state"] for data in told(home, Fact.JOB_WAITS_LONG)] == ["ABORTING"]
    with home.transaction() as db:
        change_job(db, job_id, guards=[], values=end_values(JobState.ABORTED, clock.now()), now=clock.now())
    clock.advance(600)
    look_again(home, hook)
    with home.reading() as db:
        assert db.exec(select(WebhookWait)).all() == []


def waited(database: Database, job_ids: Sequence[str], since: timedelta) -> None:
    """Let jobs have waited for so long."""
    with database.transaction() as db:
        earlier = {"waiting_since": database.now(db) - since}
        db.execute(update(Job).where(col(Job.id).in_(job_ids)).values(**earlier))


def test_waits_are_seen_on_both_databases(database: Database) -> None:
    hook = make_hook(database, waits_longer_than=HOUR)
    job_id = make_job(database)
    wait(database, job_id, "BACKUP")
    assert look_again(database, hook) == 0
    waited(database, [job_id], 2 * HOUR)
    assert [look_again(database, hook) for _ in range(3)] == [1, 0, 0]
    late = make_hook(database, waits_longer_than=HOUR)
    assert [look_again(database, hook, late) for _ in range(2)] == [1, 0]
    assert [row.webhook_id for row in deliveries_of(database)] == [hook.id, late.id]


def test_a_job_that_runs_and_is_held_up_waits_too(home: Database, clock: FakeClock) -> None:
    hook = make_hook(home, waits_longer_than=HOUR)
    job_id = make_job(home)
    wait(home, job_id, "BACKUP", state=JobState.RUNNING)
    clock.advance(3_700)
    assert look_again(home, hook) == 1


def test_a_job_that_has_woken_and_works_waits_for_nothing(home: Database, clock: FakeClock) -> None:
    """It had waited for 50 minutes, worked for 20 without a word of progress, and was told as a long wait."""
    hook = make_hook(home, waits_longer_than=HOUR)
    job_id = make_job(home)
    wait(home, job_id, "TARGET_UNREACHABLE")
    clock.advance(50 * 60)
    wait(home, job_id, state=JobState.RUNNING)  # a claim: nothing is shown, and since when it waited is kept
    clock.advance(20 * 60)
    assert look_again(home, hook) == 0
    look(home)
    assert told(home, Fact.JOB_WAITS_LONG) == []
    wait(home, job_id, "TARGET_UNREACHABLE")  # the look was in vain: the same wait goes on
    assert look_again(home, hook) == 1


@pytest.mark.parametrize("cause", sorted(PLANNED))
def test_what_somebody_has_planned_is_no_alert(database: Database, cause: str) -> None:
    """Every batch above an hour, and every closed window, was told as a long wait."""
    hook = make_hook(database, waits_longer_than=HOUR)
    planned, other = make_job(database), make_job(database)
    wait(database, planned, cause)
    wait(database, other, "BACKUP")
    waited(database, [planned, other], 2 * HOUR)
    look(database)
    assert look_again(database, hook) == 0
    assert [data["job_id"] for data in told(database, Fact.JOB_WAITS_LONG)] == [other]


def test_their_number_hides_no_wait(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than any look reads at once have waited for short, and for long; many are known already."""
    monkeypatch.setattr(looks, "PIECE", 50)
    hook = make_hook(database, waits_longer_than=HOUR)
    make_store(database, "shop")
    with database.transaction() as db:
        now = database.now(db)
        first = make_row(now, number=0)
        values = [make_row(now, number=number).model_dump() for number in range(1, 240)]
        db.add(first)
        db.flush()
        db.execute(insert(Job), values)
    longest = sorted(row["id"] for row in values)[-15:]
    waited(database, longest, 2 * HOUR)
    assert look_again(database, hook) == 15
    others = sorted(row["id"] for row in values)[:110]
    waited(database, others, 3 * HOUR)  # before those that were told, in the order of the look
    assert [look_again(database, hook) for _ in range(2)] == [110, 0]
    assert {data["job_id"] for data in told(database, Fact.JOB_WAITS_LONG)} == {*longest, *others}


def make_row(now: datetime, *, number: int) -> Job:
    return Job(
        id=f"job_{number:026d}",
        kind="PURGE",
        store="shop",
        state=JobState.WAITING,
        requested_by="ann",
        waiting_on=[{"kind": "BACKUP", "ref": "x", "until": None}],
        waiting_cause="BACKUP",
        waiting_since=now - timedelta(minutes=1),
        created_at=now,
        updated_at=now,
    )


@pytest.mark.postgresql
def test_instances_that_look_at_once_tell_a_wait_once(postgresql_database: Database) -> None:
    hook = make_hook(postgresql_database, waits_longer_than=HOUR)
    job_ids = [make_job(postgresql_database) for _ in range(20)]
    for job_id in job_ids:
        wait(postgresql_database, job_id, "BACKUP")
    waited(postgresql_database, job_ids, 2 * HOUR)
    url = postgresql_database.url.render_as_string(hide_password=False)
    others = [Database(url) for _ in range(3)]
    barrier = threading.Barrier(len(others))

    def look_at_once(database: Database) -> None:
        barrier.wait(10)
        look(database)

    threads = [threading.Thread(target=look_at_once, args=(each,)) for each in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for each in others:
        each.close()
    assert look_again(postgresql_database, hook) == 0
    assert len(deliveries_of(postgresql_database)) == len(job_ids)


def expect(database: Database, hook: Webhook, within: timedelta, kind: str = "PURGE") -> None:
    with database.transaction() as db:
        now = database.now(db)
        fields = {"store": "shop", "kind": kind, "within": within, "due_at": now + within}
        db.add(WebhookExpectation(webhook_id=hook.id, **fields))


def succeed(database: Database, kind: str = "PURGE", store: str = "shop") -> None:
    job_id = make_job(database, store, kind)
    with database.transaction() as db:
        now = database.now(db)
        values = end_values(JobState.SUCCEEDED, now) | {"result": {}}
        assert change_job(db, job_id, guards=[], values=values, now=now)


def overdue(database: Database) -> int:
    with database.transaction() as db:
        return look_at_expectations(db, now=database.now(db))


def test_a_missed_success_is_told_once_until_the_next_one(home: Database, clock: FakeClock) -> None:
    make_store(home, "shop")
    hook = make_hook(home, events=[Fact.SUCCESS_OVERDUE])
    expect(home, hook, 24 * HOUR)
    clock.advance(23 * 3600)
    assert overdue(home) == 0
    succeed(home)
    clock.advance(23 * 3600)
    succeed(home, kind="ERASURE")  # another verb, another store: no success of this one
    succeed(home, store="other")
    assert overdue(home) == 0
    clock.advance(2 * 3600)
    assert [overdue(home) for _ in range(3)] == [1, 0, 0]
    clock.advance(90 * 24 * 3600)
    assert overdue(home) == 0
    succeed(home)
    clock.advance(25 * 3600)
    assert overdue(home) == 1
    first, second = told(home, Fact.SUCCESS_OVERDUE)
    assert (first["store"], first["kind"], first["within_s"]) == ("shop", "PURGE", 86_400)
    assert first["last_success_at"] != second["last_success_at"]


def test_what_failed_is_no_success(home: Database, clock: FakeClock) -> None:
    hook = make_hook(home, events=[Fact.SUCCESS_OVERDUE])
    expect(home, hook, 24 * HOUR)
    clock.advance(23 * 3600)
    job_id = make_job(home)
    with home.transaction() as db:
        change_job(db, job_id, guards=[], values=end_values(JobState.FAILED, clock.now()), now=clock.now())
    clock.advance(2 * 3600)
    assert overdue(home) == 1


def test_expectations_on_both_databases(database: Database) -> None:
    hook = make_hook(database)
    expect(database, hook, timedelta(seconds=-5))
    assert [overdue(database), overdue(database)] == [1, 0]
    succeed(database)
    with database.reading() as db:
        assert db.exec(select(WebhookExpectation)).one().last_success_at is not None


def test_one_look_does_both_and_reads_no_jobs_where_nobody_asks(database: Database) -> None:
    job_id = make_job(database)
    wait(database, job_id, "BACKUP")
    make_hook(database, events=[Fact.JOB_ENDED])
    look(database)
    with database.reading() as db:
        assert db.exec(select(WebhookWait)).all() == []
    asking = make_hook(database, waits_longer_than=timedelta(0))
    expect(database, asking, timedelta(seconds=-5))
    look(database)
    assert {event.type for event in events_of(database)} == {Fact.JOB_WAITS_LONG, Fact.SUCCESS_OVERDUE}
    with database.reading() as db:
        assert db.get_one(Job, job_id).state == JobState.WAITING
