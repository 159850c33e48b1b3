"""The journeys of PostgreSQL on MariaDB: the oracle's rows, kills, silence, a target without ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

import pytest
from lethe_client import Conflict, Lethe, PurgeRequest

from tests.conftest import need_mariadb
from tests.journeys.crashes import CRASHING, UNIT_ROWS, CrashedPurge
from tests.journeys.ground import (
    PAST,
    PURGED,
    add_store,
    assert_exact,
    assert_restored,
    expect,
    in_the_past,
    instant,
    purge_request,
)
from tests.journeys.mariadb import (
    LOOK_AGAIN_S,
    ask,
    at_work,
    connected,
    database_of,
    fingerprint,
    is_blocked,
    is_caught,
    is_idle,
    kill_one,
    new_place,
)
from tests.journeys.mariadb_resending import Resending, without_data
from tests.journeys.random_cases import Lane, run_case
from tests.journeys.resending import listed, losses, never_had_events
from tests.journeys.runners import LABEL, Runners
from tests.journeys.service import Process, Service, await_job, serving, succeeded, until
from tests.journeys.test_reference_databases import _assert_recorded
from tests.mariadb_server import PrivateMariadb, private_mariadb
from tests.oracles.symmetricds import VERSIONS, Place, Version, create, empty, load, snapshot
from tests.oracles.symmetricds_rows import read_reference

pytestmark = [pytest.mark.journey, pytest.mark.mariadb]

CASES = 3
LONG_CASES = 400
FREEZE_TRIES = 12
QUIET_S = 0.6
# A unit gives its own lock wait up after a second; the rest is a loaded machine.
WAIT_MAX_S = 1.5
LATENCY_MAX_S = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateMariadb]:
    """A private server with durable commits, which the last test of the module kills."""
    need_mariadb("MariaDB is not installed: no server to kill")
    with private_mariadb() as made:
        yield made


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_database_loses_exactly_the_recorded_rows(
    standing_service: Service, server: PrivateMariadb, version: Version
) -> None:
    """Row for row equal to `expected`, archived as well."""
    reference = read_reference(version)
    name = f"recorded{version[0]}"
    server.execute(f"create database {name}")
    place = Place(server.url(name), version)
    create(place)
    load(place, in_the_past(reference.rows))
    add_store(standing_service.client, f"mariadb-{name}", place)
    before = snapshot(place)
    request = PurgeRequest(
        cutoff=instant(place, local=reference.cutoff - PAST), archive=True, stranded="MARK"
    )
    job = standing_service.client.purges.create(f"mariadb-{name}", request)
    _assert_recorded(place, before, reference, succeeded(standing_service.client, job.id))


@dataclass
class MariadbLane(Lane):
    """Cases on one database for each version, used again and again."""

    server: PrivateMariadb | None = None
    mariadb: dict[Version, Place] = field(default_factory=dict)

    def place(self, rng: Random) -> Place:
        """An empty place for the next case."""
        version: Version = rng.choice(VERSIONS)
        if version not in self.mariadb:
            assert self.server is not None
            name = f"lane{self.number}_{version[0]}_{next(self.stores)}"
            self.server.execute(f"create database {name}")
            self.mariadb[version] = Place(self.server.url(name), version, prefix="node_a_")
            create(self.mariadb[version])
        empty(self.mariadb[version])
        return self.mariadb[version]


def _run_cases(client: Lethe, server: PrivateMariadb, directory: Path, seeds: range) -> None:
    lane = MariadbLane(client, directory, seeds[0], "", count(), server=server)
    for seed in seeds:
        run_case(lane, seed)


def test_random_databases_are_purged_to_the_oracles_rows(
    standing_service: Service, server: PrivateMariadb, tmp_path: Path
) -> None:
    """Rows, counts, plan and archive are the oracle's."""
    _run_cases(standing_service.client, server, tmp_path, range(50_000, 50_000 + CASES))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_hundreds_of_random_databases_are_purged_to_the_oracles_rows(
    server: PrivateMariadb, tmp_path: Path
) -> None:
    """The same with more seeds, for every number of workers."""
    for workers in (1, 2, 4):
        with serving(tmp_path / f"service{workers}", {"LETHE_PURGE_WORKERS": str(workers)}) as service:
            first = 60_000 + 1_000 * workers
            _run_cases(service.client, server, tmp_path, range(first, first + LONG_CASES // 3))


def _order(client: Lethe, server: PrivateMariadb, place: Place, job_id: str, order: str) -> float:
    """Pause or abort; nothing is at work or written from the moment the state is seen. The latency."""
    wanted = {"pause": "PAUSED", "abort": "ABORTED"}[order]
    begun = time.monotonic()
    state = getattr(client.jobs, order)(job_id).state
    while state != wanted:
        assert time.monotonic() - begun < LATENCY_MAX_S, state
        state = client.jobs.get(job_id).state
    seen = time.monotonic()
    rows = fingerprint(place)
    with connected(server, place) as connection:
        while time.monotonic() - seen < QUIET_S:
            assert at_work(connection) == []
            time.sleep(LOOK_AGAIN_S)
    assert fingerprint(place) == rows, "something was written after the end"
    return seen - begun


def test_paused_and_aborted_show_no_statement_of_the_job(
    standing_service: Service, server: PrivateMariadb
) -> None:
    """Paused and resumed in full work, then aborted: silent and unchanged each time."""
    client = standing_service.client
    place = new_place(server, "silence", seed=8, rows=1_000)
    add_store(client, "mariadb-silent", place)
    request = purge_request(place, archive=True, max_rows_in_tx=25, rows_per_s=375)
    job = client.purges.create("mariadb-silent", request)
    latencies = []
    for order in ("pause", "abort"):
        done = client.jobs.get(job.id).progress.done
        until(lambda done=done: client.jobs.get(job.id).progress.done > done)
        latencies.append(_order(client, server, place, job.id, order))
        if order == "pause":
            client.jobs.resume(job.id)
    print(f"pause {latencies[0]:.3f} s, abort {latencies[1]:.3f} s")
    result = client.jobs.get(job.id).result
    assert result is not None
    assert client.archives.get(job.id).rows == sum(result["removed"].values())
    expected = expect(place, snapshot(place))
    assert_exact(
        place, expected, succeeded(client, client.purges.create("mariadb-silent", purge_request(place)).id)
    )


def test_abort_ends_a_unit_that_is_blocked_by_somebody_elses_lock(
    standing_service: Service, server: PrivateMariadb
) -> None:
    """The test's own session holds the rows; the order is carried out while it still does."""
    client = standing_service.client
    place = new_place(server, "blocked", seed=9, rows=400)
    add_store(client, "mariadb-blocked", place)
    before = snapshot(place)
    with connected(server, place) as holder, connected(server, place) as look:
        holder.begin()
        ask(holder, "select 1 from sym_outgoing_batch for update")
        job = client.purges.create("mariadb-blocked", purge_request(place))
        until(lambda: is_blocked(look))
        begun = time.monotonic()
        client.jobs.abort(job.id)
        assert await_job(client, job.id, timeout_s=LATENCY_MAX_S).state == "ABORTED"
        print(f"abort of a blocked unit: {time.monotonic() - begun:.3f} s")
        others = [row for row in at_work(look) if row[1] != "Sleep"]
        assert others == []
        holder.rollback()
    assert snapshot(place)["data"] == before["data"]


@pytest.mark.alone
def test_random_resends_during_a_purge_keep_all_their_rows_or_are_listed(
    standing_service: Service, server: PrivateMariadb
) -> None:
    """Two workers, many resends: every undelivered batch is whole or listed, and nobody waits long."""
    client = standing_service.client
    place = new_place(server, "resent", seed=1, rows=3_000)
    add_store(client, "mariadb-resent", place)
    before = snapshot(place)
    resending = Resending(server, place, Random(1), before)
    resending.start()
    request = purge_request(place, archive=True, max_rows_in_tx=200, rows_per_s=1_500, stranded="SKIP")
    job = client.purges.create("mariadb-resent", request)
    # Not to the very end: what is resent after the job has made its list is in no list.
    until(lambda: (client.jobs.get(job.id).progress.fraction or 0) > 0.7, timeout_s=60)
    resending.finish()
    assert not client.jobs.get(job.id).ended
    client.jobs.throttle(job.id, lift=True)
    result = succeeded(client, job.id)
    unclear = never_had_events(before, resending.routed) | without_data(before)
    found = [loss for loss in listed(result) if loss[0] not in unclear]
    wanted = losses(before, snapshot(place), resending.routed)
    assert found == [loss for loss in wanted if loss[0] not in unclear]
    print(
        f"{len(resending.waits_s)} resends, longest wait {max(resending.waits_s):.3f} s,"
        f" {resending.refused} refused, {result['resent_after_purge']['count']} listed"
    )
    assert len(resending.waits_s) > 50
    assert max(resending.waits_s) <= WAIT_MAX_S


def _limited(server: PrivateMariadb, name: str, *, rows: int) -> tuple[Place, str]:
    """A database, and its address for a role that may read, delete and update, and create nothing."""
    place = new_place(server, name, seed=len(name), rows=rows)
    server.execute("create user if not exists purger@'127.0.0.1'")
    server.execute("create user if not exists purger@'localhost'")
    for host in ("127.0.0.1", "localhost"):
        server.execute(f"grant select, update, delete on {name}.* to purger@'{host}'")
    return place, place.url.replace("root@", "purger@")


def test_purge_without_ledger_loses_connections_and_its_archive_has_each_row_once(
    standing_service: Service, server: PrivateMariadb, tmp_path: Path
) -> None:
    """Sessions are killed: attempts pile up, readers take every row once; a second store is refused."""
    client, rng = standing_service.client, Random(4)
    place, url = _limited(server, "limited", rows=1_500)
    add_store(client, "mariadb-limited", place, url=url)
    add_store(client, "mariadb-limited-too", place, url=url.replace("127.0.0.1", "localhost"))
    check = client.stores.check("mariadb-limited")
    assert (check.ok, check.ledger) == (True, False)
    expected = expect(place, snapshot(place))
    request = purge_request(place, archive=True, max_rows_in_tx=UNIT_ROWS, rows_per_s=1_000)
    job = client.purges.create("mariadb-limited", request)
    until(lambda: client.jobs.get(job.id).progress.removed)
    with pytest.raises(Conflict) as refused:
        client.purges.create("mariadb-limited-too", purge_request(place))
    assert refused.value.document["job_id"] == job.id
    for _ in range(3):
        time.sleep(rng.uniform(0.2, 0.6))
        kill_one(server, place, rng)
    result = succeeded(client, job.id)
    after = snapshot(place)
    for table in PURGED:
        assert after[table] == expected.after[table], table
        assert result["removed"][table] <= expected.counts[table]
    assert result["counts"] == "AT_LEAST"
    file = tmp_path / "restored.sqlite"
    restored = succeeded(client, client.archives.restore_into_file(job.id, str(file)).id)
    assert restored["rows"] == sum(expected.counts.values())
    assert_restored(file, place, expected)


def test_restored_live_rows_are_what_they_were(standing_service: Service, server: PrivateMariadb) -> None:
    """Purged with archive, restored into the live tables and into a database beside them."""
    client = standing_service.client
    place = new_place(server, "restored", seed=21, rows=400)
    add_store(client, "mariadb-restored", place)
    before = snapshot(place)
    expected = expect(place, before)
    job = client.purges.create("mariadb-restored", purge_request(place, archive=True))
    assert_exact(place, expected, succeeded(client, job.id))
    total = sum(expected.counts.values())
    beside = client.archives.restore_into_schema(job.id, "restored_beside")
    assert succeeded(client, beside.id)["rows"] == total
    with connected(server, place) as connection:
        for table, count_ in expected.counts.items():
            found = ask(connection, f"select count(*) from restored_beside.sym_{table}")
            assert found == [(count_,)]
    live = client.archives.restore_live(job.id)
    assert succeeded(client, live.id)["rows"] == total
    after = snapshot(place)
    assert {table: after[table] for table in ("data", "data_event")} == {
        table: before[table] for table in ("data", "data_event")
    }
    assert len(after["outgoing_batch"]) == len(before["outgoing_batch"])


def _freeze_inside_a_unit(
    runners: Runners, server: PrivateMariadb, place: Place, create: Callable[[], str]
) -> tuple[str, Process]:
    """Create a job; SIGSTOP its runner while it has written rows and not committed, for good.

    A lock of ours holds the unit until its runner sleeps; the server then ends the statement alone. On a
    loaded machine the statement may have given up by then: the unit comes again.
    """
    with connected(server, place) as holder, connected(server, place) as look:
        holder.begin()
        ask(holder, "select 1 from sym_data_event for update")
        job_id = create()
        for _ in range(FREEZE_TRIES):
            until(lambda: is_blocked(look))
            process = runners.holder(job_id)
            process.freeze()
            holder.rollback()
            until(lambda: is_caught(look) or is_idle(look), pause_s=LOOK_AGAIN_S)
            if is_caught(look):
                return job_id, process
            holder.begin()
            ask(holder, "select 1 from sym_data_event for update")
            process.thaw()
    raise AssertionError(f"no unit of {job_id} was caught at work")


@pytest.mark.parametrize("ledger", [True, pytest.param(False, marks=pytest.mark.long)])
def test_runner_that_sleeps_inside_a_unit_writes_nothing_when_it_wakes(
    runners: Runners, server: PrivateMariadb, ledger: bool
) -> None:
    """Its sessions are found by the locks that they hold and are killed by the one that takes over."""
    client, name = runners.client, f"asleep_{ledger}".lower()
    place, limited = _limited(server, name, rows=1_500)
    store = f"mariadb-{name}".replace("_", "-")
    add_store(client, store, place, url=place.url if ledger else limited, runs_on=[LABEL])
    expected = expect(place, snapshot(place))
    request = purge_request(place, max_rows_in_tx=UNIT_ROWS, rows_per_s=100_000)
    job_id, frozen = _freeze_inside_a_unit(
        runners, server, place, lambda: client.purges.create(store, request).id
    )
    waited_s = runners.await_other(job_id, frozen)
    result = succeeded(client, job_id, timeout_s=60)
    rows = fingerprint(place)
    frozen.thaw()
    time.sleep(1.5)
    assert fingerprint(place) == rows
    after = snapshot(place)
    for table in PURGED:
        assert after[table] == expected.after[table], table
    assert result["counts"] == ("EXACT" if ledger else "AT_LEAST")
    print(f"taken over after {waited_s:.1f} s")


@pytest.mark.parametrize("kills", [3, pytest.param(12, marks=pytest.mark.long)])
def test_kills_of_service_session_and_server_leave_rows_counts_and_archive_exact(
    tmp_path: Path, server: PrivateMariadb, kills: int
) -> None:
    """kill -9 of the service and of mariadbd, KILL of a session: the job goes on after each."""
    rng = Random(31)
    place = new_place(server, f"crashed{kills}", seed=31, rows=500 * (kills + 1))

    def kill_server() -> None:
        server.kill9()
        server.restart()

    with serving(tmp_path / "service", CRASHING) as service:
        purge = CrashedPurge(service.client, "crashed", place, tmp_path, rng)
        killers = {
            "service": service.crash,
            "server": kill_server,
            "session": lambda: kill_one(server, place, rng),
        }
        purge.run(killers, kills=kills)
    print(purge.kills)
    assert set(purge.kills) == set(killers)
    with connected(server, place) as connection:
        rows = ask(
            connection,
            "select step, cast(sum(rows_affected) as signed) from lethe_unit_ledger group by step",
        )
    assert database_of(place) == f"crashed{kills}"
    assert dict(rows)["DATA"] > 0
