"""kill -9 of the service at the steps of a cleanup and of a log switch.

The catalog stays one that a slon accepts, and the job goes on to the end that the program comes to. The steps
are named by what the target shows: a test waits for it, kills, looks, starts the service again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.slony_cleaning import (
    REMOVED,
    Before,
    assert_recorded,
    catch_up,
    clean,
    cleaned,
    count,
    fall_behind,
    log_status,
    slow_cleanup,
    switch,
)
from tests.http.slony_nodes import NodeStore, recorded_nodes, register
from tests.slony_cluster import SlonyCluster
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, conninfo_of

PATIENCE_S = 90.0
long = pytest.mark.long
KEPT = ("sl_event", "sl_confirm", "sl_log_1", "sl_log_2", "sl_seqlog")
"""What a log switch that waits leaves alone."""


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service of the test's own, which dies and comes back."""
    settings = {"LETHE_JOB_RETRY_BACKOFF_MAX_S": "1"}
    service = ServiceProcess(tmp_path / "service", settings=settings).start()
    yield service
    service.kill9()


@contextmanager
def node_of(service: ServiceProcess, catalogs: Catalogs) -> Iterator[NodeStore]:
    """Node 1 while node 3 was down, registered."""
    with service.http() as http:
        yield recorded_nodes(http, catalogs, [1])[1]


Step = Callable[[LoadedCatalog], bool]
STEPS: dict[str, Step] = {
    "some confirmations": lambda node: count(node, "sl_confirm") < 154,
    "first events": lambda node: count(node, "sl_event") < 183,
    "events of one origin": lambda node: count(node, "sl_event where ev_origin = 1") == 40,
    "events of two origins": lambda node: count(node, "sl_event where ev_origin = 2") == 5,
    "some of sl_seqlog": lambda node: count(node, "sl_seqlog") < 119,
    "the log switched": lambda node: log_status(node) == 1,
}


def _until(condition: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.04)  # each look at the node is a session of its own


def _finished(service: ServiceProcess, job_id: str) -> dict[str, Any]:
    with service.http() as http:
        job = wait_for(http, job_id, timeout_s=PATIENCE_S)
    assert job["state"] == "SUCCEEDED", job
    return job


@pytest.mark.parametrize(
    "steps",
    [
        ("first events", "some of sl_seqlog"),
        *(pytest.param((step,), marks=long) for step in STEPS),
        pytest.param(tuple(STEPS), marks=long),
    ],
    ids=lambda steps: ", ".join(steps),
)
def test_a_cleanup_killed_at_a_step_goes_on_and_removes_each_row_once(
    mortal: ServiceProcess, catalogs: Catalogs, steps: tuple[str, ...]
) -> None:
    before = Before.of()
    with node_of(mortal, catalogs) as node:
        job_id = slow_cleanup(node, rows_per_s=60, archive={"format": "PARQUET"})
    for step in steps:
        _until(lambda step=step: STEPS[step](node.loaded))  # type: ignore[misc]
        mortal.kill9()
        before.assert_accepted(node.loaded)
        mortal.start()
    result = _finished(mortal, job_id)["result"]
    assert_recorded(node.loaded)
    before.assert_accepted(node.loaded)
    assert (result["counts"], result["removed"]) == ("EXACT", REMOVED)
    assert result["archive"]["rows"] == REMOVED["sl_event"]
    assert result["log_switch"]["step"] in ("FINISHED", "DONE_BEFORE")


def test_a_cleanup_killed_inside_a_transaction_loses_only_that_one(
    mortal: ServiceProcess, catalogs: Catalogs
) -> None:
    """The server ends what its client left; until then the next attempt's fence keeps it apart."""
    before = Before.of()
    with node_of(mortal, catalogs) as node:
        node.loaded.execute(
            "create function public.wait_for_test() returns trigger language plpgsql as"
            " 'begin perform pg_advisory_xact_lock(42); return old; end'",
            "create trigger wait before delete on sl_event for each row when (old.ev_seqno % 40 = 0)"
            " execute function public.wait_for_test()",
        )
        with node.loaded.raw() as gate:
            gate.execute("select pg_advisory_lock(42)")
            job_id = accepted(clean(node, max_rows_in_tx=30))
            waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            _until(lambda: node.loaded.query(waiting) == [(1,)])
            mortal.kill9()
            before.assert_accepted(node.loaded)
            assert 0 < count(node.loaded, "sl_confirm") < 154
            mortal.start()
        result = _finished(mortal, job_id)["result"]
    assert_recorded(node.loaded)
    assert (result["counts"], result["removed"]) == ("EXACT", REMOVED)


@pytest.mark.parametrize("table", ["sl_event", pytest.param("sl_registry", marks=long)])
def test_a_call_of_the_clusters_function_that_was_cut_off_is_made_again(
    mortal: ServiceProcess, bare_slony: SlonyCluster, table: str
) -> None:
    """At sl_event it has removed confirmations, at sl_registry it has changed the log status already."""
    bare_slony.run(1, "select setval('sl_log_status', 0)")  # the log tables are empty: a switch comes next
    for _ in range(10):
        bare_slony.sync(1)
    bare_slony.run(
        1,
        "insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)"
        " select ev_origin, no_id, max(ev_seqno), now() - interval '1 hour' from sl_event, sl_node"
        " where no_id <> ev_origin group by 1, 2",
    )
    before = bare_slony.run(1, "select con_origin, con_received, con_seqno from sl_confirm order by 1, 2, 3")
    [(events,)] = bare_slony.run(1, "select count(*) from sl_event")
    bare_slony.run(
        1,
        "create or replace function public.wait_for_test() returns trigger language plpgsql as"
        " 'begin perform pg_advisory_xact_lock(42); return coalesce(new, old); end'",
    )
    bare_slony.run(
        1,
        f"create trigger wait before insert or update or delete on {table} for each row"
        " execute function public.wait_for_test()",
    )
    try:
        with mortal.http() as http, bare_slony.connect(1) as gate:
            gate.execute("select pg_advisory_lock(42)")
            node = register(http, url=bare_slony.url(1), cluster=bare_slony.name)
            assert http.post(f"/v1/stores/{node.id}:recover").status_code == 200  # others were here before
            job_id = accepted(clean(node, via="NATIVE", interval="PT1M"))
            waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            _until(lambda: bare_slony.run(1, waiting) == [(1,)])
            mortal.kill9()
            _until(lambda: bare_slony.run(1, waiting) == [(0,)])  # the server ends it by itself
    finally:
        bare_slony.run(1, f"drop trigger wait on {table}")
    found = bare_slony.run(1, "select con_origin, con_received, con_seqno from sl_confirm order by 1, 2, 3")
    assert found == before, "the call was rolled back whole"
    mortal.start()
    result = _finished(mortal, job_id)["result"]
    assert (result["via"], result["classification"]) == ("NATIVE", "AS_PLANNED")
    [(left,)] = bare_slony.run(1, "select count(*) from sl_event")
    assert result["removed"]["sl_event"] == events - left >= 9
    assert bare_slony.log_status(1) == result["log_switch"]["status"]


class _Snatcher:
    """A session that waits for the cluster's lock and keeps it: it comes between two transactions."""

    def __init__(self, node: LoadedCatalog) -> None:
        self._connection = psycopg.connect(conninfo_of(node.url))
        table = f'"{node.schema}".sl_config_lock'
        self._sql = f"lock table {table} in access exclusive mode"
        self._thread = threading.Thread(target=self._take, daemon=True)
        self.pid = self._connection.info.backend_pid

    def _take(self) -> None:
        self._connection.execute(self._sql.encode())

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> None:
        """Until the lock is had."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self._connection.close()


def test_a_switch_killed_between_truncate_and_status_is_ended_by_the_next_attempt(
    mortal: ServiceProcess, catalogs: Catalogs
) -> None:
    """The table is emptied in one transaction, the status changed in the next: setval is not undone."""
    with node_of(mortal, catalogs) as node:
        cleaned(node, log_switch="NONE")
        with node.loaded.raw(autocommit=False) as gate:
            gate.execute("lock table sl_config_lock in access exclusive mode")
            job_id = accepted(switch(node, "FINISH"))
            waiting = (
                "select count(*) from pg_locks where not granted and relation = 'sl_config_lock'::regclass"
            )
            _until(lambda: node.loaded.query(waiting) == [(1,)])  # the service is first in the queue
            snatcher = _Snatcher(node.loaded)
            snatcher.start()
            _until(lambda: node.loaded.query(waiting) == [(2,)])
            gate.rollback()
        snatcher.wait()
    assert (log_status(node.loaded), count(node.loaded, "sl_log_1")) == (3, 0)
    mortal.kill9()
    Before.of().assert_accepted(node.loaded)
    snatcher.close()
    mortal.start()
    result = _finished(mortal, job_id)["result"]
    assert (result["outcome"], result["status"]) == ("FINISHED", 1)
    assert (log_status(node.loaded), count(node.loaded, "sl_log_1"), count(node.loaded, "sl_log_2")) == (
        1,
        0,
        1_361,
    )


@pytest.mark.parametrize("moment", ["before the start", pytest.param("after the start", marks=long)])
def test_a_full_switch_killed_around_its_start_starts_once_and_ends(
    mortal: ServiceProcess, catalogs: Catalogs, moment: str
) -> None:
    """From status 1: it starts to 2, waits for what is not drained, and ends at 0."""
    with node_of(mortal, catalogs) as node:
        cleaned(node)
        assert log_status(node.loaded) == 1
        with node.loaded.raw(autocommit=False) as gate:
            if moment == "before the start":
                gate.execute("lock table sl_config_lock in access exclusive mode")
            job_id = accepted(switch(node, "FULL"))
            wait_for(node.http, job_id, "WAITING")
            mortal.kill9()
            assert log_status(node.loaded) == (1 if moment == "before the start" else 2)
            gate.rollback()
    mortal.start()
    with mortal.http() as http:
        _until(lambda: _waits_for(http, job_id, "LOG_NOT_DRAINED"))
        assert log_status(node.loaded) == 2
        again = NodeStore(http, node.id, node.loaded)
        node.loaded.execute(  # node 3 comes back and confirms everything, long ago
            "insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)"
            " select ev_origin, r, max(ev_seqno), '2026-11-20 08:02:00+00'"
            " from sl_event, unnest(array[1, 2, 3]) r where r <> ev_origin and ev_type = 'SYNC' group by 1, 2"
        )
        cleaned(again, interval="PT1H", log_switch="NONE")
    result = _finished(mortal, job_id)["result"]
    assert (result["outcome"], result["started"], result["status"], result["emptied"]) == (
        "FINISHED",
        True,
        0,
        "sl_log_2",
    )
    assert (log_status(node.loaded), count(node.loaded, "sl_log_2")) == (0, 0)


def _waits_for(http: httpx.Client, job_id: str, kind: str) -> bool:
    job = http.get(f"/v1/jobs/{job_id}").json()
    return any(item["kind"] == kind for item in job["waiting_on"])


@pytest.mark.long
def test_a_waiting_switch_that_was_killed_ten_times_still_waits(
    mortal: ServiceProcess, catalogs: Catalogs
) -> None:
    with node_of(mortal, catalogs) as node:
        fall_behind(node)
        before = node.loaded.rows()
        job_id = accepted(switch(node, "FULL", timeout="PT1H"))
    for _ in range(10):
        with mortal.http() as http:
            _until(lambda: _waits_for(http, job_id, "LOG_NOT_DRAINED"))
        mortal.kill9()
        found = node.loaded.rows()
        assert {name: found[name] for name in KEPT} == {name: before[name] for name in KEPT}
        mortal.start()
    with mortal.http() as http:
        catch_up(NodeStore(http, node.id, node.loaded))
    assert _finished(mortal, job_id)["result"]["outcome"] == "FINISHED"
