"""The program's own lock on 2.x: a purge waits for its row of sym_lock, holds it, and gives it back."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for

MakeShop = Callable[..., Shop]
ACTIONS = {"OUTGOING": "PURGE_OUTGOING", "INCOMING": "PURGE_INCOMING", "DATA_GAP": "PURGE_DATA_GAPS"}
TABLE = (
    "create table sym_lock (lock_action text primary key, lock_type text not null, locking_server_id text,"
    " lock_time timestamp, shared_count integer default 0, last_lock_time timestamp,"
    " last_locking_server_id text)"
)


@pytest.fixture
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what differs here is at the target."""
    return sqlite_service


@pytest.fixture
def locked_shop(make_shop: MakeShop) -> Shop:
    """A 2.x store with the program's table of locks."""
    shop = make_shop("2.x")
    _run(shop.path, TABLE)
    return shop


def _run(path: Path, statement: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(path)) as target, target:
        return target.execute(statement, values).fetchall()


def _hold(shop: Shop, action: str, server: str, *, age: timedelta) -> None:
    since = (datetime.now(UTC).replace(tzinfo=None) - age).isoformat(sep=" ", timespec="milliseconds")
    _run(
        shop.path,
        "insert or replace into sym_lock (lock_action, lock_type, locking_server_id, lock_time)"
        " values (?, 'CLUSTER', ?, ?)",
        action,
        server,
        since,
    )


def _row(shop: Shop, action: str) -> tuple[Any, ...]:
    columns = "locking_server_id, lock_time, last_locking_server_id, last_lock_time, lock_type"
    [row] = _run(shop.path, f"select {columns} from sym_lock where lock_action = ?", action)
    return tuple(row)


@pytest.mark.parametrize("kind", list(ACTIONS))
def test_a_purge_holds_the_row_of_its_kind_and_gives_it_back(
    http: httpx.Client, locked_shop: Shop, kind: str
) -> None:
    """The missing row is made, as the program makes it; while it is held nobody else's purge begins."""
    fields = {"max_rows_in_tx": 1, "throttle": {"rows_per_s": 1}} if kind != "DATA_GAP" else {}
    job_id = accepted(locked_shop.purge(kind=kind, **fields))
    if fields:
        wait_for(http, job_id, "RUNNING")
        held = None
        while held is None:
            rows = _run(locked_shop.path, "select locking_server_id from sym_lock")
            held = rows[0][0] if rows else None
        assert held == f"lethe-{job_id}"
        http.post(f"/v1/jobs/{job_id}:abort")
    wait_for(http, job_id)
    server, time, last_server, last_time, lock_type = _row(locked_shop, ACTIONS[kind])
    assert (server, time, last_server, lock_type) == (None, None, f"lethe-{job_id}", "CLUSTER")
    assert abs(datetime.fromisoformat(last_time).replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(
        minutes=5
    )


def test_a_row_of_another_server_is_waited_for_and_then_taken(http: httpx.Client, locked_shop: Shop) -> None:
    _hold(locked_shop, "PURGE_INCOMING", "host-7", age=timedelta(minutes=29))
    job_id = accepted(locked_shop.purge(kind="INCOMING"))
    job = wait_for(http, job_id, "WAITING")
    [waiting] = job["waiting_on"]
    assert waiting["kind"] == "SYM_LOCK"
    assert waiting["ref"].startswith("PURGE_INCOMING is held by host-7 since 20")
    left = datetime.fromisoformat(waiting["until"]) - datetime.now(UTC)
    assert timedelta(0) < left < timedelta(minutes=1)
    assert _row(locked_shop, "PURGE_INCOMING")[0] == "host-7"
    assert _rows_of_the_program(locked_shop) == 100
    _run(locked_shop.path, "update sym_lock set locking_server_id = null, lock_time = null")
    http.post(f"/v1/jobs/{job_id}:pause")
    wait_for(http, job_id, "PAUSED")
    http.post(f"/v1/jobs/{job_id}:resume")  # rather than for the fifteen seconds
    assert wait_for(http, job_id, "SUCCEEDED")["result"]["removed"] == {"incoming_batch": 81}


def _rows_of_the_program(shop: Shop) -> int:
    return int(_run(shop.path, "select count(*) from sym_incoming_batch")[0][0])


def test_a_row_older_than_the_timeout_is_broken(http: httpx.Client, locked_shop: Shop) -> None:
    """1800000 ms, or what the target's own parameter says."""
    _hold(locked_shop, "PURGE_INCOMING", "dead-host", age=timedelta(minutes=31))
    job = wait_for(http, accepted(locked_shop.purge(kind="INCOMING")))
    assert job["result"]["removed"] == {"incoming_batch": 81}
    _run(
        locked_shop.path,
        "create table sym_parameter (external_id text, node_group_id text, param_key text, param_value text)",
    )
    _run(
        locked_shop.path,
        "insert into sym_parameter values ('ALL', 'ALL', 'cluster.lock.timeout.ms', '60000')",
    )
    _hold(locked_shop, "PURGE_DATA_GAPS", "dead-host", age=timedelta(seconds=90))
    assert wait_for(http, accepted(locked_shop.purge(kind="DATA_GAP")))["state"] == "SUCCEEDED"


def test_a_row_that_was_lost_in_the_middle_ends_the_attempt(http: httpx.Client, locked_shop: Shop) -> None:
    """This process slept too long, the program has broken the lock and purges itself: wait for it."""
    _run(
        locked_shop.path,
        "create table sym_parameter (external_id text, node_group_id text, param_key text, param_value text)",
    )
    own = "insert into sym_parameter values ('ALL', 'ALL', 'cluster.lock.timeout.ms', '3000')"
    _run(locked_shop.path, own)
    slow = {"max_rows_in_tx": 1, "throttle": {"rows_per_s": 10}}
    job_id = accepted(locked_shop.purge(kind="INCOMING", **slow))
    wait_for(http, job_id, "RUNNING")
    deadline = time.monotonic() + 20
    while _rows_of_the_program(locked_shop) > 95 and time.monotonic() < deadline:
        time.sleep(0.05)
    _hold(locked_shop, "PURGE_INCOMING", "host-7", age=timedelta(0))
    job = wait_for(http, job_id, "WAITING")
    left = _rows_of_the_program(locked_shop)
    assert "host-7" in job["waiting_on"][0]["ref"]
    assert 19 < left < 100
    assert _row(locked_shop, "PURGE_INCOMING")[0] == "host-7"
    http.patch(f"/v1/jobs/{job_id}/throttle", json={"rows_per_s": 10_000})
    time.sleep(3.1)  # the lock is old now
    http.post(f"/v1/jobs/{job_id}:pause")
    wait_for(http, job_id, "PAUSED")
    http.post(f"/v1/jobs/{job_id}:resume")
    assert wait_for(http, job_id, "SUCCEEDED")["result"]["removed"] == {"incoming_batch": 81}


def test_an_action_that_the_program_has_stopped_for_good_is_never_broken(
    http: httpx.Client, locked_shop: Shop
) -> None:
    _hold(locked_shop, "PURGE_INCOMING", "STOPPED", age=timedelta(days=-36_500))
    job_id = accepted(locked_shop.purge(kind="INCOMING"))
    [waiting] = wait_for(http, job_id, "WAITING")["waiting_on"]
    assert (waiting["until"], "STOPPED" in waiting["ref"]) == (None, True)
    http.post(f"/v1/jobs/{job_id}:abort")
    assert wait_for(http, job_id)["state"] == "ABORTED"
    assert _row(locked_shop, "PURGE_INCOMING")[0] == "STOPPED"


def test_milliseconds_are_answered_with_milliseconds(http: httpx.Client, locked_shop: Shop) -> None:
    """On SQLite any number is less than any text: a fresh lock in milliseconds looked like one to break."""
    _hold(locked_shop, "PURGE_INCOMING", "host-7", age=timedelta(0))
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    _run(locked_shop.path, "update sym_lock set lock_time = ?", now_ms)
    job_id = accepted(locked_shop.purge(kind="INCOMING"))
    wait_for(http, job_id, "WAITING")
    http.post(f"/v1/jobs/{job_id}:abort")
    _run(locked_shop.path, "update sym_lock set lock_time = ?", now_ms - 1_900_000)
    done = wait_for(http, accepted(locked_shop.purge(kind="INCOMING", overlap="QUEUE")))
    assert done["state"] == "SUCCEEDED"
    assert isinstance(_row(locked_shop, "PURGE_INCOMING")[3], int)


def test_without_the_table_the_result_says_so_and_on_3x_no_row_is_taken(
    http: httpx.Client, make_shop: MakeShop
) -> None:
    shop = make_shop("2.x")
    warnings = wait_for(http, accepted(shop.purge(kind="INCOMING")))["result"]["warnings"]
    assert ["no sym_lock" in warning for warning in warnings] == [True]
    newer = make_shop("3.x")
    _hold(newer, "PURGE_INCOMING", "host-7", age=timedelta(0))
    job = wait_for(http, accepted(newer.purge(kind="INCOMING")))
    assert job["state"] == "SUCCEEDED"
    assert _row(newer, "PURGE_INCOMING")[0] == "host-7"
    assert any("host-7" in warning for warning in job["result"]["warnings"])
    assert any("swapped" in warning for warning in job["result"]["warnings"])
