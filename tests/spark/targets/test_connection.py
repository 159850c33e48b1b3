# ruff: noqa: PT012 - where a transaction ends is part of what is tested

import os
import pickle
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from spark.targets.connection import SessionLimits, Target, connect, identity, target_now, validate_url
from spark.targets.dialects.postgresql import translate
from spark.targets.errors import (
    FenceRaised,
    TargetAuthFailed,
    TargetCancelled,
    TargetDatabaseMissing,
    TargetError,
    TargetIsAnother,
    TargetLockTimeout,
    TargetReadOnly,
    TargetRowConflict,
    TargetSchemaUnsupported,
    TargetStatementTimeout,
    TargetTablesMissing,
    TargetUnreachable,
    TargetUrlInvalid,
)
from tests.spark.targets.conftest import Connect

NUMBERS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000000)"
FOREVER = f"{NUMBERS} select count(*) from n"
# MariaDB ends a recursion after a thousand rounds.
COLUMNS = "information_schema.columns"
FOREVER_MYSQL = f"select count(*) from {COLUMNS} a, {COLUMNS} b, {COLUMNS} c, {COLUMNS} d"


def forever(target: Target) -> str:
    return FOREVER_MYSQL if target.dialect == "mysql" else FOREVER


@pytest.mark.parametrize(
    "url",
    [
        "oracle://host/db",
        "mysql+pymysql://host/db",
        "mysql://user@host/db",
        "mariadb://user@host/db",
        "mysql+mysqldb://user@host/db",
        "mysql+pymysql://user:secret@host/db",
        "mysql+pymysql://user@host",
        "mysql+pymysql://user@host/db?read_default_file=/etc/shadow",
        "mysql+pymysql://user@host/db?charset=latin1",
        "mysql+pymysql://user@host/db?local_infile=1",
        "mysql+pymysql://user@host/db?ssl_mode=SOMETIMES",
        "mysql+pymysql://user@host/db?ssl_ca=/a&ssl_ca=/b",
        "mysql+pymysql://user@host/db?unix_socket=/run/mysqld.sock",
        "mysql+pymysql://user@/db?unix_socket=relative.sock",
        "mysql+pymysql://user@a,b/db",
        "sqlite:///relative.db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////a.db?mode=memory",
        "sqlite://host/a.db",
        "postgresql+psycopg://user:secret@host/db",
        "postgresql+psycopg://user@host",
        "postgresql+psycopg://user@a,b/db",
        "postgresql+psycopg://user@host/db?host=/tmp",
        "postgresql+psycopg://user@/db?host=elsewhere",
        "postgresql+psycopg://user@host/db?options=-clog_statement%3Dall",
        "postgresql+psycopg://user@host/db?hostaddr=10.0.0.1",
        "postgresql+psycopg://user@host/db?passfile=/etc/passwd",
        "postgresql+psycopg://user@host/db?service=other",
        "postgresql+psycopg://user@host/db?sslkey=/etc/lethe/other.key",
        "postgresql+psycopg://user@host/db?sslcert=/etc/lethe/other.pem",
        "postgresql+psycopg://user@host/db?sslcrl=/etc/shadow",
        "postgresql+psycopg://user@host/db?require_auth=password",
        "postgresql+psycopg://user@host/db?gssencmode=require",
        "postgresql+psycopg://user@host/db?sslrootcert=relative.pem",
        "postgresql+psycopg://user@host/db?sslmode=sometimes",
        "mysql+pymysql://user@host/db?ssl_key=/etc/lethe/other.key",
        "mysql+pymysql://user@host/db?ssl_ca=relative.pem",
        "mysql+pymysql://user@host/db?init_command=set+x",
        "postgresql+psycopg://user@host/host=elsewhere",
        "not a url",
    ],
)
def test_unsafe_url_is_refused(url: str) -> None:
    with pytest.raises(TargetUrlInvalid) as caught:
        validate_url(url)
    assert "secret" not in caught.value.detail


def test_a_path_alone_is_refused_with_the_forms_that_a_url_may_have() -> None:
    """`lethe store add shop /srv/shop.sqlite` was answered with "the URL cannot be parsed" alone."""
    with pytest.raises(TargetUrlInvalid, match=r"sqlite:////srv/shop.db or postgresql\+psycopg://USER@HOST"):
        validate_url("/srv/shop.sqlite")


def test_sound_urls_tell_their_dialect() -> None:
    assert validate_url("sqlite:////a/b.db") == "sqlite"
    assert validate_url("postgresql+psycopg://u@h:5433/d?sslmode=verify-full") == "postgresql"
    assert validate_url("postgresql+psycopg://u@/d?host=/var/run/postgresql") == "postgresql"


def test_schema_on_sqlite_is_refused() -> None:
    with pytest.raises(TargetUrlInvalid):
        Target("sqlite:////a.db", schema="public")


def test_target_pickles_and_hides_its_password() -> None:
    target = Target("postgresql+psycopg://u@h/d", password="secret", schema="sym")
    assert pickle.loads(pickle.dumps(target)) == target
    assert "secret" not in repr(target)


def test_errors_cross_processes_whole() -> None:
    raised = pickle.loads(pickle.dumps(FenceRaised("gone", token=3, fence_token=5)))
    assert (raised.token, raised.fence_token, raised.code) == (3, 5, "FENCE_RAISED")
    assert pickle.loads(pickle.dumps(TargetLockTimeout("busy"))).detail == "busy"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select :a, :a::text, ':a', \":a\"", "select %(a)s, %(a)s::text, ':a', \":a\""),
        ("select 1 % 2, '%', x like 'a%'", "select 1 %% 2, '%%', x like 'a%%'"),
        ("select 1 -- :a it's\n, :b", "select 1 -- :a it's\n, %(b)s"),
        ("/* :a */ select :b", "/* :a */ select %(b)s"),
        (r"select e'\':a', :b", r"select e'\':a', %(b)s"),
        ("select $x$ :a $x$, :b", "select $x$ :a $x$, %(b)s"),
        ("select 'it''s :a', a[1:2], b[x:y]", "select 'it''s :a', a[1:2], b[x:y]"),
    ],
)
def test_parameters_are_translated_outside_literals(sql: str, expected: str) -> None:
    assert translate(sql) == expected


def test_named_parameters_work_on_both(target: Target, opened: Connect) -> None:
    conn = opened(target)
    conn.execute("create table t (id integer primary key, name text)")
    assert conn.execute_count("insert into t values (:id, :name), (2, '100%')", {"id": 1, "name": "a:b"}) == 2
    assert conn.execute("select id, name from t order by id") == [(1, "a:b"), (2, "100%")]
    many = [{"id": n, "name": "x"} for n in range(3, 6)]
    assert conn.execute_many("insert into t values (:id, :name)", many) == 3
    assert list(conn.stream("select id from t where id > :n order by id", {"n": 3})) == [(4,), (5,)]
    assert conn.execute_count("delete from t where id > :n", {"n": 1}) == 4


def test_exception_in_transaction_rolls_back(target: Target, opened: Connect) -> None:
    conn = opened(target)
    conn.execute("create table t (id integer primary key)")
    with pytest.raises(TargetRowConflict), conn.transaction():
        conn.execute("insert into t values (1)")
        conn.execute("insert into t values (1)")
    assert conn.execute("select count(*) from t") == [(0,)]
    with conn.transaction():
        conn.execute("insert into t values (1)")
    assert conn.execute("select count(*) from t") == [(1,)]


def test_swallowed_error_makes_commit_fail(postgresql: Target, opened: Connect) -> None:
    # PostgreSQL answers such a COMMIT with ROLLBACK and no error: an effect would be reported that never was.
    conn = opened(postgresql)
    conn.execute("create table t (id integer primary key)")
    with pytest.raises(TargetError, match="COMMIT ended in ROLLBACK"), conn.transaction():
        conn.execute("insert into t values (1)")
        with pytest.raises(TargetTablesMissing):
            conn.execute("select * from missing")
    assert conn.execute("select count(*) from t") == [(0,)]


def test_transaction_that_sqlite_ended_is_not_continued_in_autocommit(
    sqlite: Target, opened: Connect
) -> None:
    conn = opened(sqlite, limits=SessionLimits(statement_timeout_ms=200))
    conn.execute("create table t (id integer primary key)")
    with pytest.raises(TargetError, match="already been rolled back"), conn.transaction():
        conn.execute("insert into t values (1)")
        with pytest.raises(TargetStatementTimeout):
            conn.execute(f"insert into t {FOREVER}")
        conn.execute("insert into t values (3)")
    assert conn.execute("select count(*) from t") == [(0,)]


def test_blocked_statement_is_cancelled_from_another_thread(postgresql: Target, opened: Connect) -> None:
    holder, conn = opened(postgresql), opened(postgresql, limits=SessionLimits(lock_timeout_ms=60_000))
    holder.execute("create table t (id integer primary key)")
    holder.execute("insert into t values (1)")
    ended: list[TargetError] = []

    def work() -> None:
        try:
            with conn.transaction():
                conn.execute("delete from t")
        except TargetError as exc:
            ended.append(exc)

    with holder.transaction():
        holder.execute("select * from t for update")
        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(0.3)
        assert conn.cancel()
        worker.join(5)
    assert [type(exc) for exc in ended] == [TargetCancelled]
    with pytest.raises(TargetCancelled):
        conn.execute("select 1")
    conn.reset_cancel()
    assert conn.execute_count("delete from t") == 1


def test_running_statement_is_cancelled_from_another_thread(target: Target, opened: Connect) -> None:
    conn = opened(target)
    timer = threading.Timer(0.3, conn.cancel)
    timer.start()
    started = time.monotonic()
    with pytest.raises(TargetCancelled):
        conn.execute(forever(target))
    timer.join()
    assert time.monotonic() - started < 5
    conn.reset_cancel()
    assert conn.execute("select 1") == [(1,)]


def test_cancel_between_statements_prevents_the_commit(target: Target, opened: Connect) -> None:
    conn = opened(target)
    conn.execute("create table t (id integer primary key)")
    with pytest.raises(TargetCancelled), conn.transaction():
        conn.execute("insert into t values (1)")
        assert conn.cancel()
    conn.reset_cancel()
    assert conn.execute("select count(*) from t") == [(0,)]


def test_cancels_racing_with_statements_never_lose_and_never_hit_the_next_unit(
    target: Target, opened: Connect
) -> None:
    conn = opened(target)
    for round_ in range(30):
        timer = threading.Timer(0.001 * (round_ % 10), conn.cancel)
        timer.start()
        with pytest.raises(TargetCancelled):
            while True:
                conn.execute("select 1")
        timer.join()
        conn.reset_cancel()
        with conn.transaction():
            assert conn.execute("select 1") == [(1,)]


def test_statement_over_its_time_is_ended(target: Target, opened: Connect) -> None:
    conn = opened(target, limits=SessionLimits(statement_timeout_ms=200))
    with pytest.raises(TargetStatementTimeout) as caught:
        conn.execute(forever(target))
    assert caught.value.transient
    assert conn.execute("select 1") == [(1,)]


def test_lock_held_by_another_is_a_lock_timeout(target: Target, opened: Connect) -> None:
    holder, conn = opened(target), opened(target, limits=SessionLimits(lock_timeout_ms=100))
    holder.execute("create table t (id integer primary key)")
    holder.execute("insert into t values (1)")
    with holder.transaction():
        holder.execute("update t set id = 2")
        with pytest.raises(TargetLockTimeout) as caught, conn.transaction():
            conn.execute("delete from t")
    assert caught.value.transient
    assert conn.execute_count("delete from t") == 1


def test_terminated_backend_is_unreachable(postgresql: Target, opened: Connect) -> None:
    admin, conn = opened(postgresql), opened(postgresql)
    [(pid,)] = conn.execute("select pg_backend_pid()")
    conn.execute("create table t (id integer primary key)")
    with pytest.raises(TargetUnreachable) as caught, conn.transaction():
        conn.execute("insert into t values (1)")
        admin.execute("select pg_terminate_backend(:pid)", {"pid": pid})
        conn.execute("select pg_sleep(5)")
    assert caught.value.transient
    with pytest.raises(TargetUnreachable):
        conn.execute("select 1")
    assert admin.execute("select count(*) from t") == [(0,)]


def test_refusals_at_connect_are_told_apart(postgresql_url: str, tmp_path: Path) -> None:
    def refused(url: str) -> type[TargetError]:
        target = Target(url, password=os.environ.get("PGPASSWORD"))
        with pytest.raises(TargetError) as caught:
            connect(target, application_name="test", limits=SessionLimits(connect_timeout_s=2))
        return type(caught.value)

    server = postgresql_url.rsplit("/", 1)[0]
    assert refused(f"{server}/lethe_no_such_database") is TargetDatabaseMissing
    assert refused(postgresql_url.replace("://", "://no_such_role_").replace("@", "x@")) is TargetAuthFailed
    assert refused("postgresql+psycopg://u@127.0.0.1:1/d") is TargetUnreachable
    assert refused(f"sqlite:///{tmp_path}/missing.db") is TargetDatabaseMissing
    assert not (tmp_path / "missing.db").exists()
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at" * 100)
    assert refused(f"sqlite:///{tmp_path}/text.db") is TargetSchemaUnsupported


def test_missing_right_is_read_only_and_names_the_table(postgresql: Target, opened: Connect) -> None:
    conn = opened(postgresql)
    conn.execute("create table t (id integer)")
    [(user,)] = conn.execute("select current_user")
    role = f"lethe_r_{os.getpid()}_{int(time.time())}"
    conn.execute(f"create role {role}")
    try:
        with pytest.raises(TargetReadOnly, match="table t"), conn.transaction():
            conn.execute(f"set local role {role}")
            conn.execute("delete from t")
    finally:
        conn.execute(f"drop role {role}")
    assert conn.execute("select current_user") == [(user,)]


def test_read_only_connection_writes_nothing(target: Target, opened: Connect) -> None:
    opened(target).execute("create table t (id integer)")
    with pytest.raises(TargetReadOnly):
        opened(target, read_only=True).execute("insert into t values (1)")


def test_read_only_transaction_sees_one_snapshot(target: Target, opened: Connect) -> None:
    writer, reader = opened(target), opened(target)
    writer.execute("create table t (id integer)")
    if target.dialect == "sqlite":
        with closing(sqlite3.connect(target.url.removeprefix("sqlite:///"))) as raw, raw:
            raw.execute("pragma journal_mode = wal")
        raw.close()
    with reader.transaction(read_only=True):
        assert reader.execute("select count(*) from t") == [(0,)]
        writer.execute("insert into t values (1)")
        assert reader.execute("select count(*) from t") == [(0,)]


def test_session_is_set_up_as_the_facts_demand(postgresql: Target, opened: Connect) -> None:
    conn = opened(postgresql, name="job:unit:7")
    wanted = {
        "lock_timeout": "500ms",
        "statement_timeout": "30s",
        "idle_in_transaction_session_timeout": "30s",
        "plan_cache_mode": "force_custom_plan",
        "jit": "off",
        "TimeZone": "UTC",
        "application_name": "job:unit:7",
        "client_connection_check_interval": "500ms",
        "transaction_isolation": "read committed",
        "search_path": '"public"',
    }
    with conn.transaction():
        found = {name: conn.execute("select current_setting(:name)", {"name": name})[0][0] for name in wanted}
    assert found == wanted
    conn.set_application_name("job:other:8")
    assert conn.execute("select current_setting('application_name')") == [("job:other:8",)]


def test_times_beyond_python_are_clamped(postgresql: Target, opened: Connect) -> None:
    conn = opened(postgresql)
    assert conn.execute("select timestamp 'infinity', timestamp '-infinity', timestamp '0044-03-15 BC'") == [
        (datetime.max, datetime.min, datetime.min)
    ]


def test_identity_is_of_the_database_and_not_of_the_url(
    postgresql: Target, sqlite: Target, opened: Connect, tmp_path: Path
) -> None:
    conn = opened(postgresql)
    conn.execute("create schema other")
    found = identity(conn)
    assert found.startswith("postgresql:")
    assert found.endswith(":public")
    other = Target(postgresql.url, password=postgresql.password, schema="other")
    assert identity(opened(other)) == found.removesuffix("public") + "other"
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "target.db")
    assert identity(opened(Target(f"sqlite:///{link}"))) == identity(opened(sqlite))


def _named(target: Target, host: str, role: str | None = None) -> Target:
    url = make_url(target.url).set(host=host)
    url = url if role is None else url.set(username=role)
    return Target(url.render_as_string(hide_password=False), password=target.password)


def test_identity_is_what_the_server_says_whoever_asks_by_whatever_name(
    postgresql: Target, opened: Connect
) -> None:
    """Without the right to its system identifier a server once was what the client called its host."""
    names = ("127.0.0.1", "localhost")
    assert len({identity(opened(_named(postgresql, name))) for name in names}) == 1
    conn = opened(postgresql)
    if not conn.execute("select 1 from pg_roles where rolname = 'lethe_nobody'"):
        conn.execute("create role lethe_nobody login")
    conn.execute("revoke execute on function pg_control_system() from public")
    [found] = {identity(opened(_named(postgresql, name, "lethe_nobody"))) for name in names}
    assert found.startswith("postgresql:started-")


def test_bound_connection_opens_nothing_but_what_it_is_bound_to(target: Target, opened: Connect) -> None:
    found = identity(opened(target))
    assert identity(opened(replace(target, bound_to=found))) == found
    for other in ("", f"{found}0"):
        with pytest.raises(TargetIsAnother):
            connect(replace(target, bound_to=other), application_name="test")


def test_target_clock_is_aware_and_near(target: Target, opened: Connect) -> None:
    now = target_now(opened(target))
    assert now.tzinfo is UTC
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)
