"""A job that no runner takes waits for one: it is shown, and told like any other wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, insert, update
from sqlmodel import Session, col

from app.db import Database
from app.hooks import looks
from app.hooks.looks import look
from app.jobs.counting import QUEUED
from app.jobs.models import read_waiting
from app.jobs.rows import Job
from app.jobs.running.deadlines import Deadline, note_late
from app.jobs.running.waits import causes_of
from app.jobs.service import request_abort
from app.jobs.states import JobState
from app.jobs.writing import change_job
from app.outbox.facts import Fact
from app.retention import forget_rows
from tests.app.hooks.outboxes import deliveries_of, events_of, make_hook, make_job, make_store

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
POOL = [{"kind": "SPARK_POOL", "ref": "", "until": None}]


def told(database: Database) -> list[tuple[str, list[str]]]:
    """Jobs and causes of the waits that webhooks were told of."""
    look(database)
    waits = [event.data for event in events_of(database) if event.type == Fact.JOB_WAITS_LONG]
    return [(data["job_id"], data["waiting_on"]) for data in waits]


def change(database: Database, job_id: str, **values: Any) -> None:
    with database.transaction() as db:
        assert change_job(db, job_id, guards=[], values=values, now=database.now(db))


def write(database: Database, *job_ids: str, **values: Any) -> None:
    """By hand, or as another version does."""
    with database.transaction() as db:
        db.execute(update(Job).where(col(Job.id).in_(job_ids)).values(**values))


def waited(database: Database, job_id: str, span: timedelta) -> None:
    """Let a job have waited for so long."""
    with database.reading() as db:
        since = database.now(db) - span
    write(database, job_id, waiting_since=since)


def row(database: Database, job_id: str) -> Job:
    with database.reading() as db:
        return db.get_one(Job, job_id)


def queue(database: Database, store: str, number: int, span: timedelta) -> None:
    """So many jobs that have stood in the queue of a store for so long."""
    with database.transaction() as db:
        now = database.now(db)
        rows = [
            Job(
                id=f"job_{store}{place:05d}",
                kind="PURGE",
                store=store,
                state=JobState.QUEUED,
                requested_by="ann",
                waiting_cause=QUEUED,
                waiting_since=now - span,
                created_at=now,
                updated_at=now,
            )
            for place in range(number)
        ]
        db.add(rows[0])  # its defaults are those of all
        db.flush()
        if rows[1:]:
            db.execute(insert(Job), [each.model_dump() for each in rows[1:]])


def test_job_that_nobody_takes_says_that_it_waits_for_a_runner(database: Database) -> None:
    job_id = make_job(database)
    [shown] = read_waiting(row(database, job_id))
    assert (shown.kind, shown.ref, shown.since) == ("QUEUED", "", row(database, job_id).waiting_since)
    assert shown.since is not None
    assert shown.help is not None
    change(database, job_id, state=JobState.RUNNING, waiting_on=[])
    found = row(database, job_id)
    assert (found.waiting_cause, found.waiting_since, read_waiting(found)) == (None, None, [])


def test_long_time_in_the_queue_is_told_once_after_the_hooks_own_time(database: Database) -> None:
    make_hook(database, waits_longer_than=HOUR)
    job_id = make_job(database)
    waited(database, job_id, HOUR - 30 * SECOND)
    assert told(database) == []
    waited(database, job_id, HOUR)
    for _ in range(3):
        assert told(database) == [(job_id, ["QUEUED"])]


def test_queue_past_job_wait_max_is_told_to_hooks_without_a_time_and_never_fails(database: Database) -> None:
    make_store(database, "shop")
    make_store(database, "soon", parameters={"job.wait.max": "PT10M", "job.wait.fails": True})
    make_hook(database)
    jobs = {store: make_job(database, store) for store in ("shop", "soon")}
    for job_id in jobs.values():
        waited(database, job_id, timedelta(minutes=11))
    assert told(database) == [(jobs["soon"], ["QUEUED"])]
    waited(database, jobs["shop"], DAY)
    expected = [(jobs["soon"], ["QUEUED"]), (jobs["shop"], ["QUEUED"])]
    for _ in range(2):
        assert told(database) == expected
    assert {row(database, job_id).state for job_id in jobs.values()} == {"QUEUED"}


def test_job_that_rested_counts_its_time_in_the_queue_anew(database: Database) -> None:
    make_hook(database, waits_longer_than=HOUR)
    job_id = make_job(database)
    waited(database, job_id, 10 * HOUR)
    change(database, job_id, state=JobState.PAUSED)
    assert told(database) == []
    change(database, job_id, state=JobState.QUEUED, waiting_on=[])
    assert told(database) == []
    waited(database, job_id, HOUR)
    assert told(database) == [(job_id, ["QUEUED"])]


def test_end_of_a_queued_job_ends_its_wait(database: Database) -> None:
    make_hook(database, waits_longer_than=HOUR)
    job_id = make_job(database)
    waited(database, job_id, 2 * HOUR)
    abort(database, job_id)
    assert told(database) == []
    assert read_waiting(row(database, job_id)) == []


def abort(database: Database, job_id: str) -> None:
    with database.transaction() as db:
        request_abort(db, job_id, now=database.now(db), actor="ann", reason="by hand")


@contextmanager
def events_of_transactions() -> Iterator[list[int]]:
    """How many events each transaction has written."""
    written: list[int] = []

    def count(db: Session, _context: Any) -> None:
        now = sum(type(each).__name__ == "WebhookDelivery" for each in db.new)
        db.info["written"] = db.info.get("written", 0) + now

    def note(db: Session) -> None:
        written.append(db.info.get("written", 0))

    event.listen(Session, "after_flush", count)
    event.listen(Session, "after_commit", note)
    try:
        yield written
    finally:
        event.remove(Session, "after_flush", count)
        event.remove(Session, "after_commit", note)


def test_long_queue_of_one_store_is_told_by_its_oldest(database: Database) -> None:
    """A thousand deliveries in one transaction said no more than the first of them."""
    make_hook(database, waits_longer_than=HOUR)
    queue(database, "shop", 1_000, 2 * HOUR)
    queue(database, "other", 1, 2 * HOUR)
    jobs = [f"job_shop{place:05d}" for place in range(1_000)]
    for _ in range(2):
        expected = sorted([*jobs[:20], "job_other00000"])
        assert sorted(job_id for job_id, _ in told(database)) == expected
    abort(database, jobs[3])
    assert sorted(job_id for job_id, _ in told(database)) == sorted([*expected, jobs[20]])


def test_each_piece_of_the_waits_is_a_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "PIECE", 10)
    make_hook(database, waits_longer_than=HOUR)
    for store in ("a", "b"):
        queue(database, store, 20, 2 * HOUR)
    with events_of_transactions() as written:
        look(database)
    assert len(deliveries_of(database)) == 40
    assert max(written) == 10


def test_stores_that_may_wait_long_hide_none_that_may_not(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "PIECE", 10)
    make_store(database, "soon", parameters={"job.wait.max": "PT10M"})
    make_hook(database)
    for number in range(12):
        queue(database, f"store{number}", 1, 5 * HOUR)
    queue(database, "soon", 2, HOUR)
    assert told(database) == [("job_soon00000", ["QUEUED"]), ("job_soon00001", ["QUEUED"])]


def test_first_of_each_late_store_comes_before_the_second_of_any(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "PIECE", 6)
    make_hook(database)
    queue(database, "a", 20, 3 * DAY)
    queue(database, "b", 2, 2 * DAY)
    assert Counter(job_id[4] for job_id, _ in told(database)) == {"a": 4, "b": 2}


def test_job_that_was_taken_since_it_was_found_late_is_not_told(database: Database) -> None:
    make_hook(database)
    taken, again, gone, late = (make_job(database) for _ in range(4))
    for job_id in (taken, again, gone, late):
        waited(database, job_id, 2 * DAY)
    deadlines = {}
    for job_id in (taken, again, gone, late):
        since = row(database, job_id).waiting_since
        assert since is not None
        deadlines[job_id] = Deadline(QUEUED, since, since + DAY, fails=False)
    change(database, taken, state=JobState.RUNNING, waiting_on=POOL)
    for state in (JobState.RUNNING, JobState.QUEUED):
        change(database, again, state=state)
    write(database, gone, state=JobState.RUNNING)  # as an older version takes it
    with database.transaction() as db:
        for job_id, deadline in deadlines.items():
            note_late(db, job_id, deadline, now=database.now(db))
    assert [data.data["job_id"] for data in events_of(database)] == [late]


def test_job_that_comes_back_to_the_queue_waits_for_a_runner_alone(database: Database) -> None:
    """It was told with what it had waited for as it ran."""
    make_hook(database, waits_longer_than=HOUR)
    job_id = make_job(database)
    change(database, job_id, state=JobState.RUNNING, waiting_on=POOL)
    waited(database, job_id, 5 * HOUR)
    change(database, job_id, state=JobState.QUEUED)  # its lease was lost
    found = row(database, job_id)
    assert (found.waiting_on, found.waiting_cause) == ([], QUEUED)
    assert told(database) == []  # it has just come
    waited(database, job_id, 2 * HOUR)
    assert told(database) == [(job_id, ["QUEUED"])]


@pytest.mark.parametrize(
    "left",
    [
        {"waiting_cause": None, "waiting_since": None, "waiting_on": []},
        {"waiting_cause": None, "waiting_since": None, "waiting_on": POOL},
        {"waiting_cause": "SPARK_POOL", "waiting_on": POOL},
        {"waiting_cause": "THROTTLE", "waiting_on": []},
        {"waiting_cause": QUEUED, "waiting_since": None},
    ],
)
@pytest.mark.parametrize("own", [None, HOUR])
def test_queue_that_an_older_version_has_left_is_told_too(
    database: Database, left: dict[str, Any], own: timedelta | None
) -> None:
    """While a service is updated, instances of both versions hand jobs back."""
    make_hook(database, waits_longer_than=own)
    job_id = make_job(database)
    with database.reading() as db:
        at = database.now(db) - 2 * DAY
    write(database, job_id, **left, updated_at=at)
    assert causes_of(row(database, job_id)) == ["QUEUED"]
    assert [shown.kind for shown in read_waiting(row(database, job_id))] == ["QUEUED"]
    forget_rows(database, ["webhooks"])
    for _ in range(2):
        assert told(database) == [(job_id, ["QUEUED"])]
    assert row(database, job_id).waiting_since == at
