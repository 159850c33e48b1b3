"""An idle service asks its metadata next to nothing, and still notices at once what anybody writes there."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.clock import SystemClock
from app.db import Database
from app.jobs.rows import Job
from app.jobs.service import JobRequest, submit
from app.news.gate import LONGEST_S, Gate
from app.news.listening import CHANNEL
from app.settings import Settings
from app.working import Worker

PATIENCE_S = 20.0
SETTLED_S = 3.5
WATCHED_S = 3.0
A_MINUTE = 60
SOON_S = 2.0


class Counted:
    """A worker on its own, and the statements that it asks its metadata."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.database = Database(url, clock=SystemClock())
        self.worker = Worker(settings, self.database, role="serve")
        self.seen: list[tuple[str, str]] = []
        sa.event.listen(self.database.engine, "before_cursor_execute", self._note)

    def _note(self, _conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        self.seen.append((threading.current_thread().name, statement))


@contextmanager
def working(url: str, settings: Settings) -> Iterator[Counted]:
    counted = Counted(url, settings)
    counted.worker.start()
    try:
        yield counted
    finally:
        counted.worker.stop()
        counted.database.close()


@pytest.fixture
def url(database: Database) -> str:
    return database.url.render_as_string(hide_password=False)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", erasure_tick_s=0.2, replication_tick_s=0.2)


def put(url: str, **fields: Any) -> tuple[Database, str]:
    """A job of another process's making."""
    other = Database(url, clock=SystemClock())
    with other.transaction() as db:
        job = submit(
            db,
            JobRequest(kind="BATCH", store=None, params={}, requested_by="ann"),
            now=other.now(db),
            queued_max=10,
        )
        for name, value in fields.items():
            setattr(job, name, value)
        db.add(job)
    return other, job.id


def until_taken(other: Database, job_id: str) -> float:
    """Seconds until somebody has taken or ended the job."""
    began = time.monotonic()
    while True:
        with other.reading() as db:
            job = db.get(Job, job_id)
            assert job is not None
            if job.attempt > 0:
                return time.monotonic() - began
        assert time.monotonic() - began < PATIENCE_S, job.state
        time.sleep(0.02)


def test_an_idle_service_asks_less_than_once_a_second(url: str, settings: Settings) -> None:
    # 764 statements a minute, and about 1,100 before that: each loop asked on its own.
    with working(url, settings) as counted:
        time.sleep(SETTLED_S)
        counted.seen.clear()
        time.sleep(WATCHED_S)
        asked = list(counted.seen)
    assert len(asked) <= A_MINUTE * WATCHED_S / 60, asked


@pytest.mark.long
def test_idle_minutes_have_sixty_statements_at_most(url: str, settings: Settings) -> None:
    """Three of them: some looks are made every three minutes though nothing asks for them."""
    with working(url, settings) as counted:
        time.sleep(SETTLED_S)
        counted.seen.clear()
        each = []
        for _ in range(3):
            before = len(counted.seen)
            time.sleep(60)
            each.append(len(counted.seen) - before)
        asked = list(counted.seen)
    print(f"{each} statements in these minutes")
    assert len(asked) <= 3 * A_MINUTE, Counter(asked)
    assert max(each) <= 2 * A_MINUTE, Counter(asked)


def test_what_others_write_and_what_time_brings_is_found_soon(url: str, settings: Settings) -> None:
    with working(url, settings):
        time.sleep(SETTLED_S)
        other, job_id = put(url)
        assert until_taken(other, job_id) < SOON_S
        due = SystemClock().now() + timedelta(seconds=1)
        assert -0.1 < _late_s(put(url, not_before=due), due) < SOON_S, "a job that is due later"
        expires = SystemClock().now() + timedelta(seconds=1)
        held = {"state": "RUNNING", "lease_instance": "ins_dead", "fencing_token": 1}
        assert -0.1 < _late_s(put(url, lease_expires_at=expires, **held), expires) < SOON_S, "a lease"
        other.close()


def _late_s(made: tuple[Database, str], at: datetime) -> float:
    """How long after an instant a job was taken."""
    other, job_id = made
    until_taken(other, job_id)
    other.close()
    return (SystemClock().now() - at).total_seconds()


@pytest.mark.long
@pytest.mark.postgresql
def test_an_ear_that_was_cut_off_hears_again(postgresql_database: Database, settings: Settings) -> None:
    url = postgresql_database.url.render_as_string(hide_password=False)
    kill = sa.text(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where query ilike :said and datname = current_database() and pid <> pg_backend_pid()"
    )
    with working(url, settings):
        time.sleep(SETTLED_S)
        with postgresql_database.reading() as db:
            assert db.execute(kill, {"said": f"listen {CHANNEL}"}).scalar_one() == 1
        other, job_id = put(url)
        assert until_taken(other, job_id) < PATIENCE_S / 2
        time.sleep(6.0)
        another, second = put(url)
        assert until_taken(another, second) < SOON_S
        other.close()
        another.close()


def test_a_gate_opens_for_news_and_for_its_time() -> None:
    now, news = [0.0], [0]
    gate = Gate(lambda: news[0], lambda: now[0])
    opened: list[bool] = []

    def at(second: float, act: Callable[[], None] = lambda: None) -> None:
        now[0] = second
        act()
        opened.append(gate.opens())

    def write() -> None:
        news[0] += 1

    at(0)
    at(1)
    at(2, write)
    at(3)
    gate.rests_for(5.0)
    at(7.9)
    at(8.1)
    gate.rests_for(None)
    at(8.1 + LONGEST_S - 1)
    at(8.1 + LONGEST_S)
    gate.forget()
    at(9 + LONGEST_S)
    assert opened == [True, False, True, False, False, True, False, True, True]
