"""Reads of PostgreSQL by the event loop: fresh, never a write, and none that waits for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import psycopg
import pytest
import sqlalchemy as sa

from app.db import Database
from app.jobs.queries import JOB_OF_ID
from app.jobs.rows import Counter, Job
from app.kit.metadata import postgresql_glance
from app.kit.metadata.postgresql_glance import CONNECTIONS_MAX, PostgresqlGlance
from tests.app.fake_clock import FakeClock

pytestmark = pytest.mark.postgresql
NAMED = "tally"
VALUES: Any = sa.select(Counter.__table__.c.value).where(  # type: ignore[attr-defined]
    Counter.__table__.c.name == sa.bindparam("name")  # type: ignore[attr-defined]
)
Found = TypeVar("Found")


@pytest.fixture
def database(postgresql_database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(postgresql_glance, "PATIENCE_S", 60.0)  # the machine may be busy
    with postgresql_database.transaction() as db:
        db.add(Counter(name=NAMED, value=1))
    return postgresql_database


def glance_of(database: Database) -> PostgresqlGlance:
    assert database._soon is not None
    return database._soon


def sessions_of(database: Database, what: str) -> int:
    """Of glances: they alone can write nothing."""
    statement = f"select {what} from pg_stat_activity where datname = current_database() and pid = any(:pids)"
    with database.transaction() as db:
        return int(db.execute(sa.text(statement), {"pids": pids_of(database)}).scalar_one())


def pids_of(database: Database) -> list[int]:
    return [
        connection.info.backend_pid
        for connections in glance_of(database)._loops.values()
        for connection in connections._idle
    ]


async def tally(database: Database) -> int | None:
    rows = await database.rows_soon(VALUES, name=NAMED)
    return None if rows is None else int(rows[0].value)


def write(database: Database, value: int) -> None:
    with database.transaction() as db:
        db.get_one(Counter, NAMED).value = value


def run(act: Callable[[], Awaitable[Found]]) -> Found:
    async def all_of_it() -> Found:
        return await act()

    return asyncio.run(all_of_it())


def test_it_sees_what_was_committed_last(database: Database) -> None:
    async def look() -> None:
        for value in range(2, 6):
            with database.transaction() as db:
                db.get_one(Counter, NAMED).value = value
                db.flush()
                assert await tally(database) == value - 1
            assert await tally(database) == value
        assert await database.rows_soon(VALUES, name="nothing") == []

    run(look)


def test_it_reads_every_column_as_the_usual_way_does(database: Database) -> None:
    now = datetime.now(UTC)
    job = Job(id="job_1", kind="PURGE", created_at=now, updated_at=now, requested_by="ä", state="QUEUED")
    job.params, job.runs_on, job.silence_proved = {"a": [1, None, "ö"]}, ["x"], False
    job.finished_at, job.active_s, job.fencing_token = now, 0.25, 2**40
    with database.transaction() as db:
        db.add(job)

    async def look() -> None:
        for job_id in ("job_2", "job_1", "job_1"):
            rows = await database.rows_soon(JOB_OF_ID, job_id=job_id)
            usual = database.rows(JOB_OF_ID, job_id=job_id)
            assert rows is not None
            assert [row._asdict() for row in rows] == [dict(row._mapping) for row in usual]

    run(look)


def test_nothing_is_open_between_two_reads_and_none_can_write(database: Database) -> None:
    async def look() -> None:
        assert await tally(database) == 1
        assert sessions_of(database, "count(*) filter (where xact_start is null)") == 1
        [connections] = glance_of(database)._loops.values()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await connections._idle[0].execute("update counters set value = 7")

    run(look)


def test_many_at_once_share_a_few_connections(database: Database) -> None:
    async def look() -> None:
        found = await asyncio.gather(*(tally(database) for _ in range(50)))
        assert found == [1] * 50
        assert sessions_of(database, "count(*)") <= CONNECTIONS_MAX

    run(look)


def test_each_loop_has_its_own(database: Database) -> None:
    for value in (2, 3):
        write(database, value)
        assert run(lambda: tally(database)) == value


def test_connections_that_were_ended_cost_one_answer_and_a_rest(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_glance, "REST_S", 0.2)

    async def look() -> None:
        assert await tally(database) == 1
        sessions_of(database, "count(pg_terminate_backend(pid))")
        assert await tally(database) is None
        assert await tally(database) is None
        assert [row.value for row in database.rows(VALUES, name=NAMED)] == [1]
        await asyncio.sleep(0.25)
        assert await tally(database) == 1

    run(look)


def test_who_meets_a_lock_gets_no_answer_in_time(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_glance, "PATIENCE_S", 0.3)

    async def look() -> None:
        assert await tally(database) == 1
        with database.transaction() as db:
            db.execute(sa.text("lock table counters in access exclusive mode"))
            began_s = time.monotonic()
            assert await tally(database) is None
            assert await tally(database) is None
            assert time.monotonic() - began_s < 5
        assert pids_of(database) == []

    run(look)


def test_nobody_who_leaves_early_spoils_the_next_answer(database: Database) -> None:
    async def look() -> None:
        for number in range(40):
            asking = asyncio.ensure_future(tally(database))
            for _ in range(number % 8):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            rows = await database.rows_soon(VALUES, name="nothing")
            assert rows == []
            assert await tally(database) == 1

    run(look)


def test_a_server_that_is_away_is_asked_in_a_thread(clock: FakeClock) -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:9/none", clock=clock)
    try:
        assert run(lambda: away.rows_soon(VALUES, name=NAMED)) is None
    finally:
        away.close()


def test_a_close_ends_its_sessions(database: Database) -> None:
    other = Database(database.url.render_as_string(hide_password=False))

    async def look() -> list[int]:
        assert await tally(other) == 1
        return pids_of(other)

    [pid] = run(look)
    other.close()
    statement = "select count(*) from pg_stat_activity where pid = :pid"
    deadline = time.monotonic() + 20
    while True:
        with database.transaction() as db:
            if db.execute(sa.text(statement), {"pid": pid}).scalar_one() == 0:
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)
