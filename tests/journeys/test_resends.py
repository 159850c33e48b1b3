"""A batch is sent again, or old rows into a new batch, at every step between the plan and the last COMMIT."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from lethe_client import Lethe

from tests.journeys.crashes import build_large
from tests.journeys.ground import (
    activity,
    add_store,
    assert_exact,
    connection_to,
    expect,
    purge_request,
    within_plan,
)
from tests.journeys.resending import (
    BATCHES,
    ROWS_IN_BATCH,
    Resender,
    StressThread,
    build_stepped,
    data_of,
    listed,
    losses,
    never_had_events,
)
from tests.journeys.runners import is_inside_a_unit
from tests.journeys.service import Service, await_job, serving, succeeded, until
from tests.oracles.symmetricds import Place, snapshot
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.journey

EARLY, MIDDLE, LATE = 5, 12, 18
# A unit is rolled back after its lock timeout of 0.5 s at the latest.
WAIT_MAX_S = 1.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One worker: the units come one after the other."""
    directory = tmp_path_factory.mktemp("resends")
    settings = {"LETHE_PURGE_WORKERS": "1", "LETHE_JOB_RETRY_BACKOFF_MAX_S": "1"}
    with serving(directory / "service", settings) as made:
        yield made


@contextmanager
def holding(url: str, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of the test's own that keeps row locks for the time of the block, then commits."""
    with connection_to(url) as connection, connection.transaction():
        connection.execute(statement)
        yield connection


def _await_blocked(connection: psycopg.Connection[Any], job_id: str) -> None:
    query = (
        "select count(*) from pg_stat_activity where application_name like %s and wait_event_type = 'Lock'"
    )
    until(lambda: connection.execute(query, (f"{job_id}:%",)).fetchone()[0], pause_s=0.005)


# Where the purge is stopped: the lock that stops it there, the units of MIDDLE in each case.
STOPS = {
    "stranded": "select 1 from sym_outgoing_batch where batch_id = 1 for update",
    "data-before-lock": f"select 1 from sym_outgoing_batch where batch_id = {MIDDLE} for update",
    "data-after-lock": f"select 1 from sym_data where data_id = {data_of(MIDDLE)[0]} for update",
    "events": f"select 1 from sym_data_event where batch_id = {MIDDLE} for update",
    "batches": f"select 1 from sym_outgoing_batch where batch_id = {MIDDLE} for share",
}
# What of each victim is gone at that moment, and so must be listed: (batch, rows, cause), and of new batches.
GONE = {
    "stranded": ([], []),
    "data-before-lock": ([(EARLY, ROWS_IN_BATCH, "DATA_REMOVED")], [EARLY + 1]),
    "data-after-lock": ([(EARLY, ROWS_IN_BATCH, "DATA_REMOVED")], [EARLY + 1]),
    "events": (
        [(EARLY, 0, "EVENTS_REMOVED"), (LATE, ROWS_IN_BATCH, "DATA_REMOVED")],
        [EARLY + 1, LATE + 1],
    ),
    # One unit holds EARLY and LATE here; it is rolled back by its lock timeout, and the resend comes through.
    "batches": (
        [(EARLY, 0, "EVENTS_REMOVED"), (LATE, 0, "EVENTS_REMOVED")],
        [EARLY + 1, LATE + 1],
    ),
}


@pytest.mark.alone
@pytest.mark.parametrize("stop", sorted(STOPS))
def test_resend_while_a_unit_is_stopped_keeps_its_rows_or_is_listed(
    service: Service, standing_postgresql: PostgresqlServer, stop: str
) -> None:
    """What is still there when the resend commits stays, data and events; what is gone is listed exactly."""
    client, store = service.client, f"stop-{stop}"
    place = Place(standing_postgresql.create_database(store.replace("-", "_")))
    build_stepped(place)
    add_store(client, store, place)
    before = snapshot(place)
    with connection_to(place.url) as connection:
        resender = Resender(connection)
        with holding(place.url, STOPS[stop]):
            job = client.purges.create(
                store, purge_request(place, max_rows_in_tx=ROWS_IN_BATCH, archive=True)
            )
            _await_blocked(connection, job.id)
            alive = [batch for batch in (EARLY, LATE) if resender.resend(batch)]
            new = {batch: resender.route(data_of(batch)) for batch in (EARLY + 1, LATE + 1)}
        result = succeeded(client, job.id)
    after = snapshot(place)
    gone, new_gone = GONE[stop]
    wanted = [(batch, "n1", rows, cause) for batch, rows, cause in gone]
    wanted += [(new[batch], "n2", ROWS_IN_BATCH, "DATA_REMOVED") for batch in new_gone]
    assert listed(result) == sorted(wanted) == losses(before, after, resender.routed)
    for batch in set(alive) - {each for each, _, _ in gone}:
        _assert_kept(before, after, batch)
    assert resender.longest_s <= WAIT_MAX_S


def _assert_kept(before: Any, after: Any, batch: int) -> None:
    for table, ids in (("data", set(data_of(batch))), ("data_event", set(data_of(batch)))):
        kept = [row for row in after[table] if row["data_id"] in ids]
        had = [row for row in before[table] if row["data_id"] in ids]
        assert [row for row in had if row not in kept] == [], f"{table} of batch {batch}"


def test_resend_that_commits_while_the_unit_waits_for_its_lock_keeps_everything(
    service: Service, standing_postgresql: PostgresqlServer
) -> None:
    """The unit waits for the very row that is set back; the delete is a new statement and sees it."""
    place = Place(standing_postgresql.create_database("waited_for"))
    build_stepped(place)
    add_store(service.client, "waited-for", place)
    before = snapshot(place)
    set_back = f"update sym_outgoing_batch set status = 'RS' where batch_id = {MIDDLE}"
    with holding(place.url, set_back), connection_to(place.url) as connection:
        request = purge_request(place, max_rows_in_tx=ROWS_IN_BATCH)
        job = service.client.purges.create("waited-for", request)
        _await_blocked(connection, job.id)
    result = succeeded(service.client, job.id)
    after = snapshot(place)
    assert listed(result) == []
    _assert_kept(before, after, MIDDLE)
    assert len(before["data"]) - len(after["data"]) == result["removed"]["data"]
    assert result["removed"]["data"] == (len(before["data"]) - ROWS_IN_BATCH * 1 - 1)


def test_resend_between_plan_and_run_or_while_paused_leaves_the_oracles_rows(
    service: Service, standing_postgresql: PostgresqlServer
) -> None:
    """After the plan, in the queue of a suspended store, and in PAUSED before the first unit: exact rows.

    The batch that is routed since makes the newest batch of the plan an older one; it stays all the same.
    """
    client, store = service.client, "planned"
    place = Place(standing_postgresql.create_database("planned"))
    build_stepped(place)
    add_store(client, store, place)
    planned = expect(place, snapshot(place))
    plan = client.purges.plan(store, purge_request(place))
    with connection_to(place.url) as connection:
        resender = Resender(connection)
        resender.resend(EARLY)
        client.stores.suspend(store, reason="a resend comes in between")
        job = client.purges.create(store, purge_request(place, cutoff=None, plan_id=plan.plan_id))
        await_job(client, job.id, "WAITING")
        resender.resend(MIDDLE)
        resender.route(data_of(MIDDLE + 1))
        client.jobs.pause(job.id)
        await_job(client, job.id, "PAUSED")
        client.stores.resume(store)
        resender.resend(LATE)
    before = snapshot(place)
    expected = within_plan(place, before, planned, expect(place, before))
    client.jobs.resume(job.id)
    result = succeeded(client, job.id)
    assert_exact(place, expected, result)
    assert listed(result) == []
    # Three batches were set back; the data of a fourth are in a new batch, its own events and batch go.
    data, batches = BATCHES * ROWS_IN_BATCH + ROWS_IN_BATCH - 1, BATCHES
    assert planned.counts == {
        "data": data,
        "data_event": batches * ROWS_IN_BATCH,
        "outgoing_batch": batches,
    }
    assert result["planned"] == planned.counts
    assert result["removed"] == {
        "data": data - 4 * ROWS_IN_BATCH,
        "data_event": (batches - 3) * ROWS_IN_BATCH,
        "outgoing_batch": batches - 3,
    }
    assert result["fewer_than_planned"] == 7 * ROWS_IN_BATCH + 3
    newest = [row["batch_id"] for row in snapshot(place)["data_event"]].count(BATCHES + 1)
    assert newest == ROWS_IN_BATCH


@pytest.mark.alone
def test_resend_waits_no_longer_than_the_unit_that_holds_its_batch(
    service: Service, standing_postgresql: PostgresqlServer
) -> None:
    """The service sleeps inside a unit: the resend waits; awake, the unit ends and the resend is through."""
    place = Place(standing_postgresql.create_database("asleep"))
    build_large(place, 3, rows=6_000)
    add_store(service.client, "asleep", place)
    before = snapshot(place)
    job = service.client.purges.create("asleep", purge_request(place, archive=True, max_rows_in_tx=500))
    waits = []
    with connection_to(place.url) as connection, connection_to(place.url) as second:
        resender = Resender(second)
        while len(waits) < 3 and not service.client.jobs.get(job.id).ended:
            service.freeze()
            time.sleep(0.02)
            locked = _locked_batch(connection) if is_inside_a_unit(connection, job.id) else None
            if locked is None:
                service.thaw()
                time.sleep(0.011)
                continue
            waits.append(_resend_against_sleeper(service, resender, locked))
    result = succeeded(service.client, job.id)
    assert waits, "no unit was met"
    print("waits after waking", waits, "longest hold", result["longest_hold_ms"])
    assert max(waits) <= WAIT_MAX_S
    assert listed(result) == losses(before, snapshot(place), resender.routed)


def _locked_batch(connection: psycopg.Connection[Any]) -> int | None:
    """A delivered batch that cannot be set back now."""
    free = "select batch_id from sym_outgoing_batch where status in ('OK', 'IG') for update skip locked"
    with connection.transaction():
        unlocked = {row[0] for row in connection.execute(free).fetchall()}
    every = connection.execute("select batch_id from sym_outgoing_batch where status in ('OK', 'IG')")
    return next((row[0] for row in every.fetchall() if row[0] not in unlocked), None)


def _resend_against_sleeper(service: Service, resender: Resender, batch: int) -> float:
    """Resend while the unit's holder sleeps, wake it; seconds from the wake to the resend's COMMIT."""
    thread = threading.Thread(target=resender.resend, args=(batch,))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "the batch was not locked"
    service.thaw()
    woken = time.monotonic()
    thread.join(30)
    return time.monotonic() - woken


def _stress(client: Lethe, server: PostgresqlServer, *, seed: int) -> tuple[int, float, int]:
    rng = Random(seed)
    store = f"stress-{seed}"
    place = Place(server.create_database(f"stress_{seed}"))
    build_large(place, seed, rows=5_000)
    add_store(client, store, place)
    before = snapshot(place)
    baseline = losses(before, before, [])
    batches = [row["batch_id"] for row in before["outgoing_batch"]]
    thread = StressThread(place, rng, batches, [row["data_id"] for row in before["data"]])
    thread.start()
    size = rng.choice([100, 300, 1000])
    job = client.purges.create(
        store, purge_request(place, archive=True, max_rows_in_tx=size, stranded="SKIP")
    )
    seen = 0

    def is_over() -> bool:
        nonlocal seen
        routed = 0 if thread.resender is None else len(thread.resender.routed)
        now = client.jobs.get(job.id)
        if now.ended or now.progress.fraction == 1.0:
            return True
        seen = routed
        return False

    until(is_over)
    resender = thread.finish()
    result = succeeded(client, job.id)
    assert baseline == []
    empty = never_had_events(before, resender.routed)
    found = [loss for loss in listed(result) if loss[0] not in empty or loss[2:] != (0, "EVENTS_REMOVED")]
    lost = losses(before, snapshot(place), resender.routed)
    # The purge looks for the last time when all its units are done: what is routed then may come too late.
    late = {batch for batch, _ in resender.routed[seen:]}
    assert [loss for loss in found if loss[0] not in late] == [loss for loss in lost if loss[0] not in late]
    assert set(found) <= set(lost), f"seed {seed}"
    with connection_to(place.url) as connection:
        assert activity(connection, job.id) == []
    return resender.count, resender.longest_s, result["resent_after_purge"]["count"]


@pytest.mark.alone
def test_random_resends_during_a_purge_keep_all_their_rows_or_are_listed(
    standing_service: Service, standing_postgresql: PostgresqlServer
) -> None:
    """Two workers, hundreds of resends: every undelivered batch is whole or listed, and nobody waits long."""
    count, longest_s, late = _stress(standing_service.client, standing_postgresql, seed=1)
    print(f"{count} resends, longest wait {longest_s:.3f} s, {late} listed")
    assert count > 50
    assert longest_s <= WAIT_MAX_S


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_many_random_resends_keep_all_their_rows_or_are_listed(
    tmp_path: Path, standing_postgresql: PostgresqlServer
) -> None:
    """The same with one to four workers and more seeds."""
    for workers in (1, 2, 4):
        with serving(tmp_path / f"service{workers}", {"LETHE_PURGE_WORKERS": str(workers)}) as service:
            for seed in range(100 * workers, 100 * workers + 6):
                _, longest_s, _ = _stress(service.client, standing_postgresql, seed=seed)
                assert longest_s <= WAIT_MAX_S
