import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from spark.targets.connection import SessionLimits, Target
from spark.targets.errors import TargetLockTimeout, TargetSchemaUnsupported
from spark.targets.ledger import (
    JobTotals,
    LedgerRow,
    StepTotals,
    archive_manifest,
    can_create_ledger,
    ensure_ledger,
    find_unit,
    has_ledger,
    ledger_totals,
    list_jobs,
    record_manifest,
    record_unit,
    trim_ledger,
)
from spark.targets.manifest import ManifestEntry
from tests.spark.targets.conftest import Connect

JOB = "job_" + "a" * 26


def row(unit: str, step: str = "DATA", rows: int = 5, token: int = 1) -> LedgerRow:
    return LedgerRow(JOB, unit, step, 1, token, rows, {"lo": 1, "hi": [2, None]})


def test_ledger_is_created_once_and_again_is_nothing(target: Target, opened: Connect) -> None:
    conn = opened(target)
    assert can_create_ledger(conn)
    assert not has_ledger(conn)
    assert ensure_ledger(conn)
    assert ensure_ledger(conn)
    assert has_ledger(conn)


def test_recorded_unit_is_found_with_its_counts(target: Target, opened: Connect) -> None:
    conn = opened(target)
    ensure_ledger(conn)
    assert find_unit(conn, JOB, "data-1") is None
    with conn.transaction():
        record_unit(conn, row("data-1"))
        record_unit(conn, row("data-2", rows=2**40, token=3))
        record_unit(conn, row("events-1", step="EVENTS", rows=0))
    found = find_unit(conn, JOB, "data-1")
    assert found is not None
    assert found.committed_at is not None
    assert abs(found.committed_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert (found.step, found.rows_affected, found.detail) == ("DATA", 5, {"lo": 1, "hi": [2, None]})
    assert ledger_totals(conn, JOB) == {"DATA": StepTotals(2, 2**40 + 5), "EVENTS": StepTotals(1, 0)}
    [totals] = list_jobs(conn)
    assert totals == JobTotals(
        JOB, 3, 2**40 + 5, 3, totals.first_committed_at, totals.last_committed_at, "DATA"
    )


def test_unit_recorded_twice_rolls_the_second_effect_back(target: Target, opened: Connect) -> None:
    conn = opened(target)
    ensure_ledger(conn)
    conn.execute("create table t (id integer)")
    with conn.transaction():
        record_unit(conn, row("data-1"))
    with pytest.raises(TargetLockTimeout), conn.transaction():  # noqa: PT012
        conn.execute("insert into t values (1)")
        record_unit(conn, row("data-1"))
    assert conn.execute("select count(*) from t") == [(0,)]


def test_manifest_entries_come_back_and_are_trimmed_with_their_job(target: Target, opened: Connect) -> None:
    conn = opened(target)
    ensure_ledger(conn)
    entry = ManifestEntry(JOB, "data-1", "sym_data", 4, "/a/b.parquet", 10, 2**33, "00" * 32)
    with conn.transaction():
        record_unit(conn, row("data-1"))
        record_manifest(conn, entry)
    assert archive_manifest(conn, JOB) == [entry]
    assert trim_ledger(conn, ["job_other"]) == 0
    assert trim_ledger(conn, [JOB]) == 1
    assert archive_manifest(conn, JOB) == []
    assert list_jobs(conn) == []


def test_sessions_that_create_at_once_all_win(target: Target, opened: Connect) -> None:
    limits = SessionLimits(lock_timeout_ms=10_000)
    connections = [opened(target, limits=limits) for _ in range(6)]
    barrier = threading.Barrier(len(connections))
    answers: list[bool] = []
    errors: list[BaseException] = []

    def work(index: int) -> None:
        barrier.wait()
        try:
            answers.append(ensure_ledger(connections[index]))
        except BaseException as exc:  # noqa: BLE001
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(connections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert answers == [True] * len(connections)


@pytest.fixture
def poor(postgresql: Target, opened: Connect) -> Iterator[Target]:
    """The same database for a role that may create nothing."""
    admin = opened(postgresql)
    role = f"lethe_poor_{os.getpid()}_{time.time_ns()}"
    admin.execute(f"create role {role} login password 'x'")
    url = postgresql.url.replace(postgresql.url.split("://")[1].split("@")[0], role, 1)
    yield Target(url, password="x")
    admin.execute(f"drop owned by {role}")
    admin.execute(f"drop role {role}")


def test_role_without_create_has_no_ledger(postgresql: Target, poor: Target, opened: Connect) -> None:
    conn = opened(poor)
    assert not can_create_ledger(conn)
    assert not ensure_ledger(conn)
    admin = opened(postgresql)
    assert admin.execute("select count(*) from pg_namespace where nspname = 'lethe'") == [(0,)]


def test_ledger_of_another_role_counts_only_where_it_may_be_written(
    postgresql: Target, poor: Target, opened: Connect
) -> None:
    admin, conn = opened(postgresql), opened(poor)
    assert ensure_ledger(admin)
    assert not ensure_ledger(conn)
    [(role,)] = conn.execute("select current_user")
    admin.execute(f"grant usage on schema lethe to {role}")
    admin.execute(f"grant select, insert on all tables in schema lethe to {role}")
    assert not ensure_ledger(conn)
    admin.execute(f"grant update, delete on all tables in schema lethe to {role}")
    assert ensure_ledger(conn)


def test_foreign_table_of_that_name_is_refused(target: Target, opened: Connect) -> None:
    conn = opened(target)
    if target.dialect == "postgresql":
        conn.execute("create schema lethe")
    conn.execute(f"create table {conn.dialect.lethe_table('fence')} (id integer)")
    with pytest.raises(TargetSchemaUnsupported, match="owner"):
        ensure_ledger(conn)


def test_read_only_connection_has_no_ledger(target: Target, opened: Connect) -> None:
    conn = opened(target, read_only=True)
    assert not can_create_ledger(conn)
    assert not ensure_ledger(conn)
