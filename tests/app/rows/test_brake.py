"""A named replica that goes away: connected to again, never taken for near, and said to be away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest

from app.errors import TargetUnavailable
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.rows.brake import Brake, NamedReplica
from spark.rows.lag import Lag
from spark.targets.connection import Connection, Target, connect

NAME = "standby"


@dataclass
class Times:
    """A clock that goes on only while the job sleeps."""

    now_s: float = 0.0

    def boottime_s(self) -> float:
        return self.now_s


@dataclass
class Job:
    """What the brake asks of a job."""

    clock: Times = field(default_factory=Times)
    stop_cause: str | None = None
    waited: list[Sequence[WaitingOn]] = field(default_factory=list)

    def show_waiting(self, waiting: Sequence[WaitingOn]) -> None:
        self.waited.append(list(waiting))

    def sleep(self, seconds: float) -> None:
        self.clock.now_s += seconds


@pytest.fixture
def replica(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[NamedReplica]:
    """A server that answers as a standby would that is near."""

    def near(conn: Connection, name: str) -> Lag:
        [(seconds,)] = conn.execute("select 0")
        return Lag(name, float(seconds))

    monkeypatch.setattr("app.rows.brake.lag_of_replica", near)

    @contextmanager
    def connected() -> Iterator[Connection]:
        with closing(connect(Target(postgresql_url), application_name="lag")) as conn:
            yield conn

    with closing(NamedReplica(NAME, connected)) as named:
        yield named


def _kill_its_connection(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        ended = admin.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where application_name = 'lag' and datname = current_database()"
        ).fetchall()
    assert ended == [(True,)]


def test_a_connection_that_breaks_is_told_and_made_anew(replica: NamedReplica, postgresql_url: str) -> None:
    assert replica.lag() == Lag(NAME, 0.0)
    _kill_its_connection(postgresql_url)
    away = replica.lag()
    assert away.seconds is None
    assert away.reason
    assert replica.lag() == Lag(NAME, 0.0)


def _answering(answers: list[bool], real: Callable[[], AbstractContextManager[Any]]) -> Callable[[], Any]:
    def connected() -> AbstractContextManager[Any]:
        if not answers.pop(0):
            raise TargetUnavailable("nobody listens there")
        return real()

    return connected


def test_the_job_rests_until_a_replica_that_is_away_is_there(replica: NamedReplica) -> None:
    replica.connect = _answering([False, False, True], replica.connect)
    job = Job()
    brake = Brake(cast(JobContext, job), lambda: [replica.lag()], timedelta(seconds=5))
    brake.keep()
    [shown] = job.waited[0]
    assert shown.kind == "REPLICA_LAG"
    assert shown.ref.startswith(f"{NAME}: does not answer (nobody listens there)")
    assert job.waited[1:] == [[]]
    assert brake.held_s == pytest.approx(1.0)


def test_a_job_that_must_stop_does_not_wait_for_a_replica_that_stays_away(replica: NamedReplica) -> None:
    replica.connect = _answering([False] * 3, replica.connect)
    job = Job()

    def look() -> list[Lag]:
        if len(job.waited) == 1:
            job.stop_cause = "PAUSE"
        return [replica.lag()]

    Brake(cast(JobContext, job), look, timedelta(seconds=5)).keep()
    assert job.waited[-1] == []
