"""Two runners on one PostgreSQL: a dead one is replaced, a sleeping one can write nothing when it wakes."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from tests.journeys.crashes import UNIT_ROWS, CrashedPurge, build_large
from tests.journeys.ground import Expected, add_store, expect, fingerprint, purge_request
from tests.journeys.runners import (
    LABEL,
    LEASE_TTL_S,
    Runners,
    freeze_inside_a_unit,
    tokens_by_time,
)
from tests.journeys.service import await_job, succeeded, until
from tests.oracles.symmetricds import Place, snapshot
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.journey

AFTER_WAKING_S = 1.5
# The lease has to end, and a poll interval is as long as it is.
TAKEN_OVER_WITHIN_S = LEASE_TTL_S + 3.0


def _begin(
    runners: Runners, server: PostgresqlServer, directory: Path, *, name: str, rows_per_s: float = 500
) -> tuple[CrashedPurge, Expected]:
    place = Place(server.create_database(f"target_{name}"))
    build_large(place, len(name), rows=2_000)
    purge = CrashedPurge(runners.client, f"store-{name}", place, directory, Random(1))
    add_store(runners.client, purge.store, place, runs_on=[LABEL])
    expected = expect(place, snapshot(place))
    request = purge_request(place, archive=True, max_rows_in_tx=UNIT_ROWS, rows_per_s=rows_per_s)
    purge.job_id = runners.client.purges.create(purge.store, request).id
    until(lambda: runners.client.jobs.get(purge.job_id).progress.removed)
    return purge, expected


def _assert_one_handover(place: Place, job_id: str) -> None:
    """From the first row of the new token on, none of the old one: what was committed is in one order."""
    tokens = tokens_by_time(place.url, job_id)
    assert tokens == sorted(tokens), tokens
    assert len(set(tokens)) >= 2


def test_killed_runner_is_replaced_after_its_lease(
    tmp_path: Path, runners: Runners, standing_postgresql: PostgresqlServer
) -> None:
    """kill -9: the other one goes on when the lease has run out, not before, and everything is exact."""
    purge, expected = _begin(runners, standing_postgresql, tmp_path, name="killed")
    killed = runners.holder(purge.job_id)
    killed.kill9()
    waited_s = runners.await_other(purge.job_id, killed)
    assert LEASE_TTL_S - 1.0 <= waited_s <= TAKEN_OVER_WITHIN_S
    runners.client.jobs.throttle(purge.job_id, lift=True)
    result = succeeded(runners.client, purge.job_id)
    purge.check(expected, result)
    _assert_one_handover(purge.place, purge.job_id)
    assert runners.client.jobs.get(purge.job_id).attempt == 2


def test_runner_that_sleeps_inside_a_transaction_writes_nothing_when_it_wakes(
    tmp_path: Path, runners: Runners, standing_postgresql: PostgresqlServer
) -> None:
    """SIGSTOP in the middle of a unit, past the lease, SIGCONT after the other one has finished."""
    purge, expected = _begin(runners, standing_postgresql, tmp_path, name="inside", rows_per_s=100_000)
    frozen = freeze_inside_a_unit(runners, purge.place.url, purge.job_id)
    runners.await_other(purge.job_id, frozen)
    result = succeeded(runners.client, purge.job_id)
    before = fingerprint(purge.place)
    frozen.thaw()
    time.sleep(AFTER_WAKING_S)
    assert fingerprint(purge.place) == before
    purge.check(expected, result)
    _assert_one_handover(purge.place, purge.job_id)
    assert not frozen.has_ended(), "it goes on with other work"


@pytest.mark.long
def test_runner_that_wakes_beside_its_successor_writes_nothing(
    tmp_path: Path, runners: Runners, standing_postgresql: PostgresqlServer
) -> None:
    """SIGSTOP past the lease, SIGCONT while the other one is at work."""
    purge, expected = _begin(runners, standing_postgresql, tmp_path, name="beside", rows_per_s=500)
    frozen = runners.holder(purge.job_id)
    frozen.freeze()
    runners.await_other(purge.job_id, frozen)
    attempt = runners.client.jobs.get(purge.job_id).attempt
    frozen.thaw()
    time.sleep(AFTER_WAKING_S)
    runners.client.jobs.throttle(purge.job_id, lift=True)
    result = succeeded(runners.client, purge.job_id)
    assert runners.client.jobs.get(purge.job_id).attempt == attempt
    purge.check(expected, result)
    _assert_one_handover(purge.place, purge.job_id)


@pytest.mark.parametrize("order", [pytest.param("pause", marks=pytest.mark.long), "abort"])
def test_order_to_a_job_whose_runner_sleeps_is_fulfilled_by_the_other_one(
    tmp_path: Path, runners: Runners, standing_postgresql: PostgresqlServer, order: str
) -> None:
    """PAUSED or ABORTED is proved at the target; the sleeper, woken afterwards, changes no row."""
    purge, _ = _begin(runners, standing_postgresql, tmp_path, name=order, rows_per_s=100_000)
    frozen = freeze_inside_a_unit(runners, purge.place.url, purge.job_id)
    getattr(runners.client.jobs, order)(purge.job_id)
    begun = time.monotonic()
    wanted = {"pause": "PAUSED", "abort": "ABORTED"}[order]
    job = await_job(runners.client, purge.job_id, wanted, timeout_s=40)
    assert job.state == wanted
    assert time.monotonic() - begun <= TAKEN_OVER_WITHIN_S
    before = fingerprint(purge.place)
    frozen.thaw()
    time.sleep(AFTER_WAKING_S)
    assert fingerprint(purge.place) == before
    assert runners.client.jobs.get(purge.job_id).state == wanted


def test_abort_of_a_job_whose_runner_is_dead_is_proved_by_the_other_one(
    tmp_path: Path, runners: Runners, standing_postgresql: PostgresqlServer
) -> None:
    """ABORTING outlives its runner; what was done by then stays counted, exactly."""
    purge, _ = _begin(runners, standing_postgresql, tmp_path, name="dead")
    dead = runners.holder(purge.job_id)
    dead.kill9()
    begun = time.monotonic()
    runners.client.jobs.abort(purge.job_id, reason="runner is dead")
    job = await_job(runners.client, purge.job_id, timeout_s=40)
    latency_s = time.monotonic() - begun
    assert job.state == "ABORTED"
    assert latency_s <= TAKEN_OVER_WITHIN_S
    left = snapshot(purge.place)
    before = fingerprint(purge.place)
    time.sleep(1.0)
    assert fingerprint(purge.place) == before
    removed = dict((job.result or {})["removed"])
    assert sum(removed.values()) > 0
    archive = runners.client.archives.get(purge.job_id)
    assert archive.rows == sum(removed.values())
    assert left["data"]
