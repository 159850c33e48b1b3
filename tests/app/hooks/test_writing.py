"""What happens is written in its own transaction, for those who want it, or not at all."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy import event as engine_event
from sqlmodel import Session

from app.db import Database
from app.hooks.ending import give_up
from app.hooks.leases import take
from app.jobs.states import JobState
from app.jobs.writing import change_job, end_values
from app.outbox.facts import Fact
from app.outbox.rows import Webhook
from app.outbox.writing import covers, tell
from tests.app.hooks.outboxes import (
    deliveries_of,
    end_in,
    end_job,
    events_of,
    make_hook,
    make_job,
    make_store,
)


def test_the_end_of_a_job_is_written_with_it(database: Database) -> None:
    hook = make_hook(database)
    job_id = make_job(database)
    assert events_of(database) == []
    end_job(database, job_id)
    [event] = events_of(database)
    assert (event.type, event.store, event.subject) == (Fact.JOB_ENDED, "shop", f"jobs/{job_id}")
    assert (event.data["state"], event.data["kind"]) == ("ABORTED", "PURGE")
    assert [row.webhook_id for row in deliveries_of(database)] == [hook.id]
    assert "p4ss" not in str(event.data)
    assert "ann" not in event.data.values()
    assert "requested_by" not in event.data
    assert "by hand" not in str(event.data)  # what a client has written may be anything


def test_what_is_rolled_back_is_not_told(database: Database) -> None:
    make_hook(database)
    job_id = make_job(database)
    with suppress(ZeroDivisionError), database.transaction() as db:
        end_in(db, database, job_id, JobState.ABORTED)
        raise ZeroDivisionError
    assert events_of(database) == []
    assert deliveries_of(database) == []
    assert not database.bell.is_set()


def test_the_commit_rings_and_others_do_not(database: Database) -> None:
    job_id = make_job(database)
    end_job(database, job_id)
    assert not database.bell.is_set()  # nobody wants it, and nothing is written
    make_hook(database)
    job_id = make_job(database)
    assert not database.bell.is_set()
    end_job(database, job_id)
    assert database.bell.is_set()


def test_only_those_get_an_event_who_want_it_of_this_store(database: Database) -> None:
    make_store(database, "shop", labels={"region": "eu"})
    wanting = [
        make_hook(database),
        make_hook(database, stores=["shop", "other"]),
        make_hook(database, labels={"region": "eu"}),
        make_hook(database, stores=["other"], labels={"region": "eu"}),
    ]
    make_hook(database, stores=["other"])
    make_hook(database, labels={"region": "us"})
    make_hook(database, labels={"region": "eu", "tier": "1"})
    make_hook(database, events=[Fact.BACKUP_INVALID])
    make_hook(database, is_enabled=False)
    end_job(database, make_job(database))
    assert {row.webhook_id for row in deliveries_of(database)} == {hook.id for hook in wanting}
    assert len(events_of(database)) == 1  # one id for all


def test_a_job_of_no_store_is_told_to_those_of_all() -> None:
    assert covers(None, {}, None, {})
    assert not covers(["shop"], {}, None, {})
    assert not covers(None, {"region": "eu"}, None, {})
    assert not covers([], {}, "shop", {})


def test_a_fact_that_is_found_again_is_written_once(database: Database) -> None:
    make_hook(database)

    def find(db: Session) -> str | None:
        now = database.now(db)
        return tell(db, Fact.REPLICA_RESTORED, store="s", subject="x", data={}, now=now, once="restored:s")

    with database.transaction() as db:
        assert find(db) is not None
    with database.transaction() as db:
        assert find(db) is None
    assert len(deliveries_of(database)) == 1


def test_a_webhook_that_goes_at_the_same_moment_fails_no_fact(database: Database) -> None:
    hook = make_hook(database)
    job_id = make_job(database)
    with database.transaction() as db:
        end_in(db, database, job_id, JobState.ABORTED)
        db.delete(db.get_one(Webhook, hook.id))
    assert len(deliveries_of(database)) == 1  # it goes with the next look at what is past its time


def test_a_failure_for_an_epoch_that_is_ahead_is_an_event_of_its_own(database: Database) -> None:
    make_hook(database)
    job_id = make_job(database)
    with database.transaction() as db:
        now = database.now(db)
        error = {"code": "EPOCH_AHEAD", "detail": "Key (id)=(4711) of a row", "title": "", "retryable": False}
        values = end_values(JobState.FAILED, now) | {"error": error, "silence_proved": False}
        assert change_job(db, job_id, guards=[], values=values, now=now)
    told = {event.type: event for event in events_of(database)}
    assert set(told) == {Fact.JOB_ENDED, Fact.EPOCH_AHEAD}
    assert told[Fact.JOB_ENDED].data["error_code"] == "EPOCH_AHEAD"
    assert told[Fact.JOB_ENDED].data["silence_proved"] is False
    assert "4711" not in str([event.data for event in told.values()])


def test_deliveries_are_given_five_days(database: Database) -> None:
    make_hook(database)
    end_job(database, make_job(database))
    [row] = deliveries_of(database)
    assert row.give_up_at - row.created_at == timedelta(days=5)


@pytest.mark.postgresql
@pytest.mark.parametrize("hours", [-200, -3, 3, 200])
def test_a_wrong_clock_of_the_instance_that_tells_moves_no_delivery(
    postgresql_database: Database, hours: int
) -> None:
    """Senders go by the metadata's clock: an event must neither rest nor be given up for another one's."""
    database = postgresql_database
    hook = make_hook(database)
    with database.transaction() as db:
        now = database.now(db) + timedelta(hours=hours)
        tell(db, Fact.REPLICA_RESTORED, store="s", subject="x", data={}, now=now)
        give_up(db, now=database.now(db))
    with database.transaction() as db:
        assert take(db, database, hook.id, source="lethe") is not None
    [row] = deliveries_of(database)
    assert row.give_up_at - row.created_at == timedelta(days=5)
    [found] = events_of(database)
    assert found.at == now  # what has happened is told as it was seen


def test_an_end_that_nobody_wants_costs_one_look_at_the_webhooks(database: Database) -> None:
    job_id = make_job(database)
    statements: list[str] = []

    def count(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(" ".join(statement.split()).lower())

    with database.transaction() as db:
        now = database.now(db)
        engine_event.listen(database.engine, "before_cursor_execute", count)
        try:
            assert change_job(db, job_id, guards=[], values=end_values(JobState.SUCCEEDED, now), now=now)
        finally:
            engine_event.remove(database.engine, "before_cursor_execute", count)
    assert [text for text in statements if "from webhooks" in text]
    assert not [text for text in statements if text.startswith("select") and "from jobs" in text]
