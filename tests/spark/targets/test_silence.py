import threading
import time

import pytest

from spark.targets.advisory import hold, holders
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.errors import TargetError, TargetLockTimeout, TargetUnreachable
from spark.targets.silence import Running, application_name, running_statements, terminate_older
from tests.spark.targets.conftest import Connect

JOB = "job_" + "0123456789" * 2 + "abcdef"
OTHER = "job_" + "x" * 26


def eventually(conn: Connection, count: int) -> list[Running]:
    for _ in range(100):
        found = running_statements(conn, JOB)
        # A worker is seen between its BEGIN and its DELETE too: wait until all of them are blocked.
        if len(found) == count and all(running.state == "active" for running in found):
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def test_long_unit_id_is_shortened_and_the_token_stays() -> None:
    assert application_name(JOB, "data-1-500", 7) == f"{JOB}:data-1-500:7"
    name = application_name(JOB, "data-" + "9" * 100, 123456)
    assert len(name) == 63
    assert name.startswith(f"{JOB}:data-9")
    assert name.endswith(":123456")


@pytest.fixture(params=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest) -> Target:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Target)
    return found


def test_blocked_unit_is_seen_and_only_older_tokens_are_ended(server: Target, opened: Connect) -> None:
    watcher, holder = opened(server), opened(server)
    watcher.execute("create table t (id integer primary key)")
    watcher.execute("insert into t values (1)")
    patient = SessionLimits(lock_timeout_ms=60_000)
    workers = {
        name: opened(server, name=name, limits=patient)
        for name in (application_name(JOB, "u1", 1), application_name(JOB, "u2", 2), f"{OTHER}:u1:1")
    }
    ended: dict[str, TargetError] = {}

    def work(name: str) -> None:
        try:
            with workers[name].transaction():
                workers[name].execute("delete from t")
        except TargetError as exc:
            ended[name] = exc

    assert running_statements(watcher, JOB) == []
    threads = [threading.Thread(target=work, args=(name,)) for name in workers]
    with holder.transaction():
        holder.execute("select * from t for update")
        for thread in threads:
            thread.start()
        found = eventually(watcher, 2)
        assert sorted((running.token, running.state) for running in found) == [(1, "active"), (2, "active")]
        assert [running.token for running in terminate_older(watcher, JOB, token=2)] == [1]
        assert [running.token for running in eventually(watcher, 1)] == [2]
        time.sleep(0.2)
    for thread in threads:
        thread.join(10)
    assert {name: type(exc) for name, exc in ended.items()} == {f"{JOB}:u1:1": TargetUnreachable}
    assert eventually(watcher, 0) == []


def test_unit_between_two_statements_is_seen_and_an_idle_connection_is_not(
    server: Target, opened: Connect
) -> None:
    watcher, worker = opened(server), opened(server, name=f"{JOB}:u:1")
    worker.execute("select 1")
    assert running_statements(watcher, JOB) == []
    with worker.transaction():
        worker.execute("select 1")
        assert [running.state for running in running_statements(watcher, JOB)] == ["idle in transaction"]
    assert running_statements(watcher, JOB) == []
    assert running_statements(worker, JOB) == []


def test_idle_session_of_an_older_attempt_is_ended_and_frees_its_advisory_lock(
    server: Target, opened: Connect
) -> None:
    """Where there is no ledger the advisory lock of a runner under SIGSTOP kept its successor out for as long
    as it slept: only sessions inside a statement or a transaction were ended.
    """
    watcher, sleeper = opened(server), opened(server, name=f"{JOB}:units:1")
    hold(sleeper, "public.sym_outgoing")
    younger = opened(server, name=f"{JOB}:units:2")
    with pytest.raises(TargetLockTimeout):
        hold(younger, "public.sym_outgoing")
    assert [running.state for running in terminate_older(watcher, JOB, token=2)] == ["idle"]
    for _ in range(100):
        if not holders(watcher, "public.sym_outgoing"):
            break
        time.sleep(0.05)
    hold(younger, "public.sym_outgoing")
    with pytest.raises(TargetUnreachable):
        sleeper.execute("select 1")


def test_underscore_of_a_job_id_is_no_wildcard(server: Target, opened: Connect) -> None:
    watcher, worker = opened(server), opened(server, name=JOB.replace("_", "x") + ":u:1")
    with worker.transaction():
        worker.execute("select 1")
        assert running_statements(watcher, JOB) == []


def test_silence_of_sqlite_is_the_write_lock(sqlite: Target, opened: Connect) -> None:
    watcher, worker = opened(sqlite, limits=SessionLimits(lock_timeout_ms=100)), opened(sqlite)
    with worker.transaction(), pytest.raises(TargetLockTimeout):
        running_statements(watcher, JOB)
    assert running_statements(watcher, JOB) == []
    assert terminate_older(watcher, JOB, token=9) == []
