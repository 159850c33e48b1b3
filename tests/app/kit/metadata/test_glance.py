"""Reads in the thread of the event loop: fresh, without any wait, and never a write."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from app.db import Database
from app.jobs.queries import JOB_OF_ID
from app.jobs.rows import Counter, Job
from app.kit.metadata import engines
from app.kit.metadata.engines import Glance
from tests.app.fake_clock import FakeClock

VALUES: Any = sa.select(Counter.__table__.c.value).where(  # type: ignore[attr-defined]
    Counter.__table__.c.name == sa.bindparam("name")  # type: ignore[attr-defined]
)


@pytest.fixture
def file(sqlite_database: Database) -> str:
    with sqlite_database.transaction() as db:
        db.add(Counter(name="tally", value=1))
    return str(sqlite_database.url.database)


@pytest.fixture
def glance(sqlite_database: Database, file: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Glance]:
    assert file == sqlite_database.url.database
    monkeypatch.setattr(engines, "SLOW_S", 60.0)  # the machine may be busy
    glance = Glance(sqlite_database.url)
    yield glance
    glance.close()


def inside_of(glance: Glance) -> sqlite3.Connection:
    assert glance._connection is not None
    return glance._connection


def tally(glance: Glance) -> int | None:
    rows = glance.rows(VALUES, {"name": "tally"})
    return None if rows is None else int(rows[0].value)


def test_it_sees_what_was_committed_last(sqlite_database: Database, glance: Glance) -> None:
    for value in range(2, 6):
        with sqlite_database.transaction() as db:
            db.get_one(Counter, "tally").value = value
            db.flush()
            assert tally(glance) == value - 1
        assert tally(glance) == value
    assert glance.rows(VALUES, {"name": "nothing"}) == []


def test_nothing_is_open_between_two_reads(file: str, glance: Glance) -> None:
    assert tally(glance) == 1
    with closing(sqlite3.connect(file)) as other, other:
        busy, *_ = other.execute("pragma wal_checkpoint(truncate)").fetchone()
    assert busy == 0


def test_it_cannot_write(glance: Glance) -> None:
    assert tally(glance) == 1
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        inside_of(glance).execute("update counters set value = 7")


def test_it_reads_every_column_as_the_usual_way_does(sqlite_database: Database, glance: Glance) -> None:
    now = datetime.now(UTC)
    job = Job(id="job_1", kind="PURGE", created_at=now, updated_at=now, requested_by="ä", state="QUEUED")
    job.params, job.runs_on, job.silence_proved = {"a": [1, None, "ö"]}, ["x"], False
    job.finished_at, job.active_s, job.fencing_token = now, 0.25, 2**40
    with sqlite_database.transaction() as db:
        db.add(job)
    for job_id in ("job_1", "job_2"):
        rows = glance.rows(JOB_OF_ID, {"job_id": job_id})
        usual = sqlite_database.rows(JOB_OF_ID, job_id=job_id)
        assert rows is not None
        assert [row._asdict() for row in rows] == [dict(row._mapping) for row in usual]


def test_who_meets_a_lock_gets_no_answer_and_does_not_wait(
    sqlite_database: Database, glance: Glance, file: str
) -> None:
    sqlite_database.engine.dispose()
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("pragma locking_mode=exclusive")
        other.execute("begin exclusive")
        other.execute("update counters set value = 2")
        assert tally(glance) is None
    other.close()
    assert tally(glance) == 2


def test_who_finds_somebody_in_it_gets_no_answer(glance: Glance) -> None:
    assert tally(glance) == 1
    inside, go_on = threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        inside.set()
        assert go_on.wait(20)

    inside_of(glance).set_trace_callback(hold)
    reader = threading.Thread(target=tally, args=(glance,))
    reader.start()
    assert inside.wait(20)
    assert tally(glance) is None
    go_on.set()
    reader.join()
    inside_of(glance).set_trace_callback(None)
    assert tally(glance) == 1


def test_a_slow_disk_is_left_alone_for_a_while(glance: Glance, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(engines.time, "monotonic", lambda: now[0])
    assert tally(glance) == 1

    def slow(*_: Any) -> None:
        now[0] += engines.SLOW_S * 2

    inside_of(glance).set_trace_callback(slow)
    assert tally(glance) == 1
    inside_of(glance).set_trace_callback(None)
    assert tally(glance) is None
    now[0] += engines.REST_S
    assert tally(glance) == 1


def test_a_database_without_it_says_so_and_reads_in_the_usual_way(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.transaction() as db:
        db.add(Counter(name="other", value=3))
    assert [row.value for row in database.rows(VALUES, name="other")] == [3]
    monkeypatch.setattr(engines, "SLOW_S", 60.0)
    at_once = database.rows_at_once(VALUES, name="other")
    assert database.is_sqlite or at_once is None
    assert not database.is_sqlite or [row.value for row in at_once or ()] == [3]


def test_while_a_commit_hangs_the_loop_asks_the_disk_nothing(
    sqlite_database: Database, file: str, clock: FakeClock
) -> None:
    """A disk that hung held up the event loop for a whole read, though a writer had met it before."""
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(_connection: sa.Connection) -> None:
        hangs.set()
        assert goes_on.wait(60)

    def write() -> None:
        with sqlite_database.transaction() as db:
            db.get_one(Counter, "tally").value = 2

    def seen() -> int | None:
        rows = sqlite_database.rows_at_once(VALUES, name="tally")
        return None if rows is None else int(rows[0].value)

    assert seen() == 1
    sa.event.listen(sqlite_database.engine, "commit", hang)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert hangs.wait(60)
        assert seen() == 1
        clock.advance(1.0)
        assert seen() is None
    finally:
        goes_on.set()
        writer.join(60)
        sa.event.remove(sqlite_database.engine, "commit", hang)
    assert seen() == 2
