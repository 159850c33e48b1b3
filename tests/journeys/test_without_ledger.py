"""A role that may not create anything: no ledger, no fence row; an advisory lock, and counts AT_LEAST.

Also: two stores that name one database, whatever their URLs look like.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from lethe_client import Conflict, Lethe

from tests.journeys.crashes import CRASHING, UNIT_ROWS, build_large, terminate_one
from tests.journeys.ground import (
    PURGED,
    Expected,
    add_store,
    assert_restored,
    connection_to,
    expect,
    fingerprint,
    purge_request,
)
from tests.journeys.runners import LABEL, LEASE_TTL_S, Runners, freeze_inside_a_unit
from tests.journeys.service import Service, await_job, serving, succeeded, until
from tests.oracles.symmetricds import Place, snapshot
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.journey

ROLE = "purger"


def _limited(server: PostgresqlServer, name: str, *, rows: int) -> tuple[Place, str]:
    """A database, and its address for a role that may read, delete and update, and create nothing."""
    place = Place(server.create_database(name))
    build_large(place, len(name), rows=rows)
    with connection_to(place.url) as connection:
        if not connection.execute("select 1 from pg_roles where rolname = %s", (ROLE,)).fetchall():
            connection.execute(f"create role {ROLE} login")
        connection.execute("revoke create on schema public from public")
        connection.execute(f"grant select, update, delete on all tables in schema public to {ROLE}")
    return place, server.url(name, user=ROLE)


def _assert_rows(place: Place, expected: Expected, result: dict) -> None:
    after = snapshot(place)
    for table in PURGED:
        assert after[table] == expected.after[table], table
    assert result["counts"] == "AT_LEAST"
    for table, count in expected.counts.items():
        assert result["removed"][table] <= count


def _purge_limited(
    service: Service, place: Place, url: str, directory: Path, *, crash: Callable[[], None]
) -> None:
    """Purge with archive, lose two connections, then crash; every row is restored once."""
    client, rng, store = service.client, Random(4), f"limited-{directory.name[-5:]}".lower().replace("_", "-")
    add_store(client, store, place, url=url)
    check = client.stores.check(store)
    assert (check.ok, check.ledger) == (True, False)
    expected = expect(place, snapshot(place))
    request = purge_request(place, archive=True, max_rows_in_tx=UNIT_ROWS, rows_per_s=1_500)
    job = client.purges.create(store, request)
    for number in range(3):
        until(lambda: client.jobs.get(job.id).state == "RUNNING")
        time.sleep(rng.uniform(0.2, 0.6))
        if number == 2:
            crash()
        else:
            terminate_one(place.url, rng, like=f"{job.id}:%")
    _assert_rows(place, expected, succeeded(client, job.id))
    file = directory / "restored.sqlite"
    restored = succeeded(client, client.archives.restore_into_file(job.id, str(file)).id)
    assert restored["rows"] == sum(expected.counts.values())
    assert_restored(file, place, expected)


def test_purge_without_ledger_loses_connections_and_its_archive_has_each_row_once(
    standing_service: Service, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """Lost connections: attempts pile up, readers take every row once."""
    place, url = _limited(standing_postgresql, "limited_connections", rows=2_000)
    _purge_limited(standing_service, place, url, tmp_path, crash=lambda: None)


@pytest.mark.long
def test_purge_without_ledger_is_killed_and_its_archive_has_each_row_once(
    standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """The same with kill -9 of the service."""
    place, url = _limited(standing_postgresql, "limited_crash", rows=4_000)
    with serving(tmp_path / "service", CRASHING) as service:
        _purge_limited(service, place, url, tmp_path, crash=service.crash)


@pytest.mark.parametrize("ledger", [True, False])
def test_two_stores_on_one_database_conflict_with_each_other(
    standing_service: Service, standing_postgresql: PostgresqlServer, ledger: bool
) -> None:
    """127.0.0.1 and localhost are one database: 409 with the other's id, both ways; QUEUE waits and runs."""
    client, name = standing_service.client, f"two_names_{ledger}".lower()
    place, limited_url = _limited(standing_postgresql, name, rows=1_500)
    url = place.url if ledger else limited_url
    first, second = f"first-{ledger}".lower(), f"second-{ledger}".lower()
    add_store(client, first, place, url=url)
    add_store(client, second, place, url=url.replace("127.0.0.1", "localhost"))
    expected = expect(place, snapshot(place))
    slow = purge_request(place, max_rows_in_tx=50, rows_per_s=300)
    for one, other in ((first, second), (second, first)):
        job = client.purges.create(one, slow)
        until(lambda job=job: client.jobs.get(job.id).progress.removed)
        with pytest.raises(Conflict) as refused:
            client.purges.create(other, purge_request(place))
        assert refused.value.code == "CONFLICTING_JOB"
        assert refused.value.document["job_id"] == job.id
        if one == first:
            client.jobs.abort(job.id)
            assert await_job(client, job.id).state == "ABORTED"
    queued = client.purges.create(first, purge_request(place, overlap="QUEUE"))
    waiting = await_job(client, queued.id, "WAITING")
    assert [(each.kind, each.ref) for each in waiting.waiting_on] == [("JOB", job.id)]
    client.jobs.throttle(job.id, lift=True)
    succeeded(client, job.id)
    ended = time.monotonic()
    succeeded(client, queued.id)
    print(f"the queued job ended {time.monotonic() - ended:.2f} s after the one before it")
    after = snapshot(place)
    for table in PURGED:
        assert after[table] == expected.after[table], table


def test_two_lethes_on_one_database_without_ledger_never_work_at_once(
    runners: Runners, standing_service: Service, standing_postgresql: PostgresqlServer
) -> None:
    """Two metadata databases know nothing of each other: the advisory lock at the target does.

    The role may not ask for the cluster's identity, and the two name the host differently.
    """
    place, url = _limited(standing_postgresql, "two_lethes", rows=2_000)
    with connection_to(place.url) as connection:
        connection.execute("revoke execute on function pg_control_system() from public")
    other = runners.service
    add_store(standing_service.client, "shared", place, url=url)
    add_store(other.client, "shared", place, url=url.replace("127.0.0.1", "localhost"), runs_on=[LABEL])
    expected = expect(place, snapshot(place))
    slow = purge_request(place, max_rows_in_tx=50, rows_per_s=500)
    one = standing_service.client.purges.create("shared", slow)
    until(lambda: standing_service.client.jobs.get(one.id).progress.removed)
    two = other.client.purges.create("shared", purge_request(place))
    with connection_to(place.url) as connection:
        _assert_never_both(connection, standing_service.client, one.id, two.id)
    succeeded(standing_service.client, one.id)
    result = succeeded(other.client, two.id)
    assert sum(result["removed"].values()) == 0
    _assert_tables(place, expected)


def _assert_tables(place: Place, expected: Expected) -> None:
    after = snapshot(place)
    for table in PURGED:
        assert after[table] == expected.after[table], table


def _assert_never_both(connection, client: Lethe, one: str, two: str) -> None:
    """As long as the first job runs, no session of the second one writes."""
    writing = (
        "select count(*) from pg_stat_activity "
        "where application_name like %s and xact_start is not null and backend_xid is not null"
    )
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline and not client.jobs.get(one).ended:
        assert connection.execute(writing, (f"{two}:%",)).fetchone() == (0,)
    assert not client.jobs.get(one).ended, "the first one was too fast for this test"
    client.jobs.throttle(one, lift=True)


@pytest.mark.long
def test_runner_that_sleeps_without_ledger_writes_nothing_when_it_wakes(
    tmp_path: Path, runners: Runners, standing_postgresql: PostgresqlServer
) -> None:
    """Its sessions are ended by the one that takes over, the idle ones too: they hold the advisory lock."""
    place, url = _limited(standing_postgresql, "limited_sleep", rows=3_000)
    client = runners.client
    add_store(client, "limited-sleep", place, url=url, runs_on=[LABEL])
    expected = expect(place, snapshot(place))
    request = purge_request(place, archive=True, max_rows_in_tx=UNIT_ROWS, rows_per_s=100_000)
    job = client.purges.create("limited-sleep", request)
    frozen = freeze_inside_a_unit(runners, place.url, job.id)
    runners.await_other(job.id, frozen)
    result = succeeded(client, job.id, timeout_s=60)
    rows = fingerprint(place)
    frozen.thaw()
    time.sleep(1.5)
    assert fingerprint(place) == rows
    _assert_rows(place, expected, result)


def test_runner_that_sleeps_between_units_without_ledger_does_not_block_its_successor(
    runners: Runners, standing_postgresql: PostgresqlServer
) -> None:
    """The sleeper's sessions are idle and hold the advisory lock: without their end nobody could go on."""
    place, url = _limited(standing_postgresql, "limited_between", rows=1_000)
    client = runners.client
    add_store(client, "limited-between", place, url=url, runs_on=[LABEL])
    expected = expect(place, snapshot(place))
    job = client.purges.create("limited-between", purge_request(place, max_rows_in_tx=50, rows_per_s=100))
    until(lambda: client.jobs.get(job.id).progress.removed)
    frozen = runners.holder(job.id)
    frozen.freeze()
    waited_s = runners.await_other(job.id, frozen)
    client.jobs.throttle(job.id, lift=True)
    begun = time.monotonic()
    result = succeeded(client, job.id, timeout_s=60)
    took_s = time.monotonic() - begun
    rows = fingerprint(place)
    frozen.thaw()
    time.sleep(1.5)
    assert fingerprint(place) == rows
    _assert_rows(place, expected, result)
    print(f"taken over after {waited_s:.1f} s, ended {took_s:.1f} s later")
    assert took_s <= LEASE_TTL_S + 5
