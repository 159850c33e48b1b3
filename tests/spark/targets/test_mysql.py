"""What is MariaDB's and MySQL's own: names of sessions, lost transactions, versions, rights, restarts."""

# ruff: noqa: PT012 - where a transaction ends is part of what is tested

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress

import pytest

from spark.targets.advisory import hold, holders, release
from spark.targets.connection import Connection, SessionLimits, Target, connect, identity
from spark.targets.dialects.mysql import translate
from spark.targets.dialects.mysql_connect import parse_version
from spark.targets.dialects.mysql_names import SLOTS, named_sessions, parse_application_name
from spark.targets.errors import (
    TargetAuthFailed,
    TargetError,
    TargetLockTimeout,
    TargetReadOnly,
    TargetRowConflict,
    TargetSchemaUnsupported,
    TargetUnreachable,
)
from spark.targets.fence import check_fence, raise_fence
from spark.targets.ledger import ensure_ledger, has_ledger
from spark.targets.ledger_schema import can_create_ledger
from spark.targets.silence import application_name, running_statements, terminate_older
from tests.mariadb_server import PrivateMariadb
from tests.spark.targets.conftest import Connect

JOB = "job_" + "7" * 26


def sessions(conn: Connection, job_id: str = JOB) -> list[tuple[int, int, bool]]:
    """Slot, token, and whether it writes, of each session of a job."""

    def ask(sql: str, parameters: dict[str, object]) -> tuple[object, ...]:
        [row] = conn.execute(sql, parameters)
        return row

    return [(found.slot, found.token, found.in_transaction) for found in named_sessions(ask, job_id)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.11.19-MariaDB-0+deb12u1", ("mariadb", 101119)),
        ("5.5.5-10.6.4-MariaDB", ("mariadb", 100604)),
        ("11.4.2-MariaDB-ubu2404-log", ("mariadb", 110402)),
        ("8.0.36", ("mysql", 80036)),
        ("8.4.0-commercial", ("mysql", 80400)),
        ("9.1.0", ("mysql", 90100)),
    ],
)
def test_versions_are_told_apart(text: str, found: tuple[str, int]) -> None:
    assert parse_version(text) == found


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("10.5.29-MariaDB", "10.6"),
        ("5.5.5-10.3.1-MariaDB", "10.6"),
        ("5.7.44-log", "8.0"),
        ("8.0.11-TiDB-v7.5.0", "TiDB"),
        ("something", "none that Lethe knows"),
    ],
)
def test_other_versions_are_refused_by_name(text: str, word: str) -> None:
    with pytest.raises(TargetSchemaUnsupported, match=word):
        parse_version(text)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select :a, ':a', `:a`, \":a\"", "select %(a)s, ':a', `:a`, \":a\""),
        ("select 'it''s \\' :no', :yes", "select 'it''s \\' :no', %(yes)s"),
        ("select 5 % 2, '%' -- :no\n, :a", "select 5 %% 2, '%%' -- :no\n, %(a)s"),
        ("select /* :no */ :a_1", "select /* :no */ %(a_1)s"),
    ],
)
def test_parameters_are_found_and_texts_left_alone(sql: str, expected: str) -> None:
    assert translate(sql) == expected


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (application_name(JOB, "units", 12), (JOB, 12)),
        ("lethe:check", None),
        ("lethe-test", None),
        ("a:b:c", None),
        (f"a:b:{2**63}", None),
    ],
)
def test_names_of_jobs_are_told_from_others(name: str, found: tuple[str, int] | None) -> None:
    assert parse_application_name(name) == found


def test_session_tells_job_token_and_work_and_only_as_long_as_it_lives(
    mysql: Target, opened: Connect
) -> None:
    watcher = opened(mysql)
    assert sessions(watcher) == []
    tokens = [0, 1, 5, 2**40 + 3]
    workers = [opened(mysql, name=application_name(JOB, "units", token)) for token in tokens]
    assert sessions(watcher) == [(slot, token, False) for slot, token in enumerate(tokens)]
    with workers[2].transaction():
        assert sessions(watcher)[2] == (2, 5, True)
        with pytest.raises(TargetError), watcher.transaction():
            raise TargetError("a rollback is an end too")
    with workers[3].transaction(read_only=True):
        assert sessions(watcher)[3] == (3, 2**40 + 3, False)
    assert [work for _, _, work in sessions(watcher)] == [False] * 4
    workers[0].set_application_name(application_name("job_other", "units", 9))
    workers[1].close()
    for _ in range(50):
        if len(sessions(watcher)) == 2:
            break
        time.sleep(0.05)
    assert [(slot, token) for slot, token, _ in sessions(watcher)] == [(2, 5), (3, 2**40 + 3)]
    assert [token for _, token, _ in sessions(watcher, "job_other")] == [9]


def test_more_sessions_than_slots_are_refused(mysql: Target) -> None:
    name = application_name(JOB, "units", 3)
    held = [connect(mysql, application_name=name) for _ in range(SLOTS)]
    try:
        with pytest.raises(TargetLockTimeout, match="64 sessions"):
            connect(mysql, application_name=name)
    finally:
        for conn in held:
            conn.close()


def test_error_in_a_transaction_ends_it_whatever_the_server_says(mysql: Target, opened: Connect) -> None:
    """Error 1205 or 1062 ends a statement there; what follows would be half of a unit."""
    conn = opened(mysql)
    conn.execute("create table t (id integer primary key) engine=InnoDB")
    with pytest.raises(TargetError, match="already been rolled back"), conn.transaction():
        conn.execute("insert into t values (1)")
        with pytest.raises(TargetRowConflict):
            conn.execute("insert into t values (1)")
        conn.execute("insert into t values (2)")
    assert conn.execute("select count(*) from t") == [(0,)]
    with pytest.raises(TargetError), conn.transaction():
        conn.execute("insert into t values (1)")
        with suppress(TargetRowConflict):
            conn.execute("insert into t values (1)")
    assert conn.execute("select count(*) from t") == [(0,)]


def test_deadlock_is_a_lock_timeout_and_leaves_nothing(mysql: Target, opened: Connect) -> None:
    conn, other = opened(mysql), opened(mysql, limits=SessionLimits(lock_timeout_ms=10_000))
    conn.execute("create table t (id integer primary key, n integer) engine=InnoDB")
    conn.execute("insert into t values (1, 0), (2, 0)")
    ended: list[str] = []

    def work(mine: Connection, first: int, second: int, barrier: threading.Barrier) -> None:
        try:
            with mine.transaction():
                mine.execute("update t set n = n + 1 where id = :id", {"id": first})
                barrier.wait(10)
                mine.execute("update t set n = n + 1 where id = :id", {"id": second})
            ended.append("committed")
        except TargetLockTimeout:
            ended.append("refused")

    barrier = threading.Barrier(2)
    threads = [
        threading.Thread(target=work, args=(mine, *ids, barrier))
        for mine, ids in ((conn, (1, 2)), (other, (2, 1)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(ended) == ["committed", "refused"]
    assert opened(mysql).execute("select sum(n) from t") == [(2,)]


def test_two_names_of_one_server_are_one_target_and_one_lock(mysql: Target, opened: Connect) -> None:
    other = Target(mysql.url.replace("127.0.0.1", "localhost"), password=mysql.password)
    try:
        first, second = opened(mysql), opened(other)
    except TargetAuthFailed:
        pytest.skip("root may not log in as localhost here")
    assert identity(first) == identity(second)
    hold(first, "public.sym_outgoing")
    hold(first, "public.sym_outgoing")
    with pytest.raises(TargetLockTimeout):
        hold(second, "public.sym_outgoing")
    assert len(holders(second, "public.sym_outgoing")) == 1
    hold(second, "public.other")
    release(first, "public.sym_outgoing")
    release(first, "public.sym_outgoing")
    hold(second, "public.sym_outgoing")


def test_stores_in_two_databases_of_a_server_do_not_collide(mysql: Target, opened: Connect) -> None:
    first = opened(mysql)
    name = f"lethe_{uuid.uuid4().hex[:16]}"
    first.execute(f"create database {name}")
    try:
        second = opened(Target(f"{mysql.url.rpartition('/')[0]}/{name}", password=mysql.password))
        assert identity(first) != identity(second)
        hold(first, "public.sym_outgoing")
        hold(second, "public.sym_outgoing")
    finally:
        first.execute(f"drop database {name}")


def test_tables_of_the_ledger_compare_names_byte_by_byte(mysql: Target, opened: Connect) -> None:
    conn = opened(mysql)
    assert can_create_ledger(conn)
    assert ensure_ledger(conn)
    for resource in ("public.sym_outgoing", "public.SYM_outgoing"):
        raise_fence(conn, resource, token=3, owner="job_a")
    raise_fence(conn, "public.sym_outgoing", token=4, owner="job_b")
    with conn.transaction():
        check_fence(conn, "public.SYM_outgoing", token=3)
    engines = conn.execute(
        "select distinct engine from information_schema.tables where table_schema = database()"
    )
    assert engines == [("InnoDB",)]


def test_session_of_another_user_that_may_not_be_ended_is_told(own_mariadb: PrivateMariadb) -> None:
    own_mariadb.execute("create database t")
    for user in ("first", "second"):
        own_mariadb.execute(f"create user {user}@'127.0.0.1'")
        own_mariadb.execute(f"grant all on t.* to {user}@'127.0.0.1'")
    url = own_mariadb.url("t")
    older = connect(Target(url.replace("root", "first")), application_name=f"{JOB}:u:1")
    younger = connect(Target(url.replace("root", "second")), application_name=f"{JOB}:u:2")
    with pytest.raises(TargetReadOnly):
        terminate_older(younger, JOB, token=2)
    # Hidden from this role: no proof of silence.
    assert [running.state for running in running_statements(younger, JOB)] == ["active"]
    for conn in (older, younger):
        conn.close()


def test_read_only_server_has_no_ledger_and_refuses_writes(own_mariadb: PrivateMariadb) -> None:
    own_mariadb.execute("create database t")
    own_mariadb.execute("create user limited@'127.0.0.1'")
    own_mariadb.execute("grant all on t.* to limited@'127.0.0.1'")
    own_mariadb.execute("set global read_only = 1")
    with connect(Target(own_mariadb.url("t").replace("root", "limited")), application_name="t") as conn:
        assert not ensure_ledger(conn)
        assert not has_ledger(conn)
        with pytest.raises(TargetReadOnly):
            conn.execute("create table t (id integer)")


def test_killed_and_restarted_server_ends_sessions_and_nobody_else_is_hit(
    own_mariadb: PrivateMariadb,
) -> None:
    """The ids of connections begin anew with the server: an old one belongs to somebody else by then."""
    own_mariadb.execute("create database t")
    target = Target(own_mariadb.url("t"))
    old = connect(target, application_name=f"{JOB}:u:1")
    stale = old._session.connection_id  # type: ignore[attr-defined]
    own_mariadb.kill9()
    with pytest.raises(TargetUnreachable):
        old.execute("select 1")
    assert old.closed
    with pytest.raises(TargetUnreachable):
        connect(target, application_name="t")
    own_mariadb.restart()
    strangers = [own_mariadb.connect("t")]
    while strangers[-1].thread_id() < stale:
        strangers.append(own_mariadb.connect("t"))
    old._session.interrupt()
    watcher = connect(target, application_name=f"{JOB}:u:2")
    assert terminate_older(watcher, JOB, token=2) == []
    for stranger in strangers:
        stranger.ping(reconnect=False)
        stranger.close()
    watcher.close()
    old.close()
