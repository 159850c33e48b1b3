"""A SYNC where one is due: against a naive model, against the program's own function, raced and cut off."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random

import pytest

from spark.events.catalog import read_catalog
from spark.events.errors import FunctionsMissing, NodeUninitialised
from spark.events.syncing import STEP, SyncOutcome, SyncUnit, make_due_sync, read_last_sync
from spark.targets.connection import Connection, SessionLimits
from spark.targets.errors import FenceRaised, TargetError, TargetLockTimeout
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger, list_jobs
from tests.dying import Dying
from tests.slony_cluster import SlonyCluster
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.dying import wait_for_lock

NODE = 2
INTERVAL = timedelta(minutes=10)
UNIT = SyncUnit("job-1", 1, "_lab.sync", INTERVAL, has_ledger=False)
BASE = 4_000_000_000
HANDS = 6
CREATE_EVENT = """
create or replace function createEvent(p_cluster name, p_type text) returns bigint language sql as $$
    insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)
    select last_value, nextval('sl_event_seq'), now(), txid_current_snapshot(), p_type
    from sl_local_node_id returning ev_seqno
$$
"""
Row = tuple[int, int, str, int]
"""Origin, seqno, type, age in seconds."""


@pytest.fixture
def node(catalogs: Catalogs) -> LoadedCatalog:
    """A recorded node with a function as the program's; its events are replaced."""
    loaded = catalogs.load("fxa", NODE)
    loaded.execute(CREATE_EVENT)
    return loaded


def put(node: LoadedCatalog, rows: list[Row]) -> None:
    node.execute(
        "delete from sl_event",
        *(
            "insert into sl_event (ev_origin, ev_seqno, ev_type, ev_timestamp, ev_snapshot)"
            f" values ({origin}, {seqno}, '{kind}', now() - interval '{age} seconds', '1:1:')"
            for origin, seqno, kind, age in rows
        ),
    )


def make(node: LoadedCatalog, unit: SyncUnit = UNIT, limits: SessionLimits | None = None) -> SyncOutcome:
    with node.connect(limits=limits) as conn:
        return make_due_sync(conn, read_catalog(conn, node.cluster), unit)


def events(node: LoadedCatalog) -> list[tuple[int, int, str]]:
    return sorted(node.query("select ev_origin, ev_seqno, ev_type from sl_event"))


@dataclass(frozen=True)
class Model:
    """What must come: by all rows, one after the other."""

    rows: list[Row]
    interval_s: int

    @property
    def newest(self) -> Row | None:
        found = None
        for row in self.rows:
            if row[0] == NODE and row[2] == "SYNC" and (found is None or row[1] > found[1]):
                found = row
        return found

    @property
    def is_due(self) -> bool:
        if self.newest is None:
            return True
        age = self.newest[3]
        return age >= self.interval_s or -age >= self.interval_s + 60


def random_rows(random: Random, interval_s: int) -> list[Row]:
    """Events of three nodes; no age within a minute of what decides."""
    ages = [interval_s - 61, interval_s + 61, 1, 10, 10 * interval_s, -10 * interval_s, -30]
    rows = []
    for number in range(random.randint(0, 12)):
        kind = random.choice(["SYNC", "SYNC", "SYNC", "STORE_PATH", "SUBSCRIBE_SET"])
        rows.append((random.randint(1, 3), BASE + number, kind, random.choice(ages)))
    random.shuffle(rows)
    return rows


def check_random(node: LoadedCatalog, cases: int) -> None:
    random = Random(f"syncs {cases}")
    made = 0
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        for _ in range(cases):
            model = Model(random_rows(random, 600), random.choice([600, 600, 900]))
            model = replace(model, rows=random_rows(random, model.interval_s))
            put(node, model.rows)
            before = events(node)
            unit = replace(UNIT, interval=timedelta(seconds=model.interval_s))
            done = make_due_sync(conn, catalog, unit)
            assert (done.made is not None) == model.is_due, model
            assert (done.last and done.last.seqno) == (model.newest and model.newest[1]), model
            new = [] if done.made is None else [(NODE, done.made, "SYNC")]
            assert events(node) == sorted(before + new), model
            made += len(new)
    assert cases // 5 < made < cases


def test_random_catalogs_agree_with_the_model(node: LoadedCatalog) -> None:
    check_random(node, 60)


@pytest.mark.long
def test_many_random_catalogs_agree_with_the_model(node: LoadedCatalog) -> None:
    check_random(node, 1_000)


def check_program(bare_slony: SlonyCluster, cases: int) -> None:
    """As long as no clock is set: a SYNC of the future silences the program's function."""
    node = LoadedCatalog(bare_slony.url(1), bare_slony.name)
    random = Random(f"program {cases}")
    said = []
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        for _ in range(cases):
            newest = random.randint(1, 400)
            rows = [(o, n, t, abs(a)) for o, n, t, a in random_rows(random, 600)]
            rows.sort(key=lambda row: -row[3])  # the later an event, the greater its number
            rows = [(1 if o == NODE else o, BASE + i, t, a + newest) for i, (o, _, t, a) in enumerate(rows)]
            put(node, rows)
            with node.raw(autocommit=False) as raw:
                [(program,)] = raw.execute("select generate_sync_event('10 minutes')").fetchall()
                raw.rollback()
            done = make_due_sync(conn, catalog, UNIT)
            assert (done.made is not None) == bool(program), rows
            said.append(bool(program))
            if done.made is not None:
                last = read_last_sync(conn, catalog)
                assert last is not None
                assert (last.seqno, last.age < timedelta(seconds=20)) == (done.made, True)
                assert make_due_sync(conn, catalog, UNIT).made is None
    assert {True, False} == set(said)


def test_the_programs_own_function_decides_the_same(bare_slony: SlonyCluster) -> None:
    check_program(bare_slony, 60)


@pytest.mark.long
def test_the_programs_own_function_decides_the_same_over_and_over(bare_slony: SlonyCluster) -> None:
    check_program(bare_slony, 1_000)


# -- two at once


def test_of_many_at_once_one_makes_it(node: LoadedCatalog) -> None:
    """All have begun, and looked, before the first may make its own."""
    put(node, [(NODE, BASE, "SYNC", 3_600)])
    done: list[SyncOutcome] = []
    gate = threading.Barrier(HANDS + 1)

    def hand(number: int) -> None:
        with node.connect() as conn:
            catalog = read_catalog(conn, node.cluster)
            gate.wait(30)
            done.append(make_due_sync(conn, catalog, replace(UNIT, job_id=f"job-{number}")))

    threads = [threading.Thread(target=hand, args=(number,)) for number in range(HANDS)]
    with node.raw(autocommit=False) as slon:
        slon.execute("lock table sl_event_lock")
        for thread in threads:
            thread.start()
        gate.wait(30)
        wait_for_lock(node, "job-")
        slon.rollback()
    for thread in threads:
        thread.join(30)
    [made] = [each for each in done if each.made is not None]
    assert len(done) == HANDS
    assert events(node) == [(NODE, BASE, "SYNC"), (NODE, made.made, "SYNC")]
    assert {each.last and each.last.seqno for each in done if each is not made} == {made.made}


def test_none_is_made_beside_that_of_a_slon(node: LoadedCatalog) -> None:
    """The slon has the lock and has not committed: whoever looks now sees the old SYNC alone."""
    put(node, [(NODE, BASE, "SYNC", 3_600)])
    done: list[SyncOutcome] = []
    waiting = threading.Thread(target=lambda: done.append(make(node)))
    with node.raw(autocommit=False) as slon:
        slon.execute("lock table sl_event_lock")
        [(seqno,)] = slon.execute("select createEvent('_lab', 'SYNC')").fetchall()
        waiting.start()
        wait_for_lock(node, "job-1:")
        slon.commit()
    waiting.join(30)
    [found] = done
    assert (found.made, found.last and found.last.seqno) == (None, seqno)
    assert events(node) == [(NODE, BASE, "SYNC"), (NODE, seqno, "SYNC")]


def test_a_sync_that_came_while_it_waited_for_the_lock_is_young(node: LoadedCatalog) -> None:
    """By the clock of the moment: by that of its transaction's begin it would lie in the future."""
    put(node, [(NODE, BASE, "SYNC", 10)])
    unit = replace(UNIT, interval=timedelta(seconds=0.3))
    done: list[SyncOutcome] = []
    patient = SessionLimits(lock_timeout_ms=30_000)
    waiting = threading.Thread(target=lambda: done.append(make(node, unit, patient)))
    with node.raw(autocommit=False) as slon:
        slon.execute("lock table sl_event_lock")
        waiting.start()
        wait_for_lock(node, "job-1:")
        slon.execute("select pg_sleep(0.5)")
        slon.execute(
            "insert into sl_event (ev_origin, ev_seqno, ev_type, ev_timestamp, ev_snapshot)"
            f" values ({NODE}, {BASE + 1}, 'SYNC', clock_timestamp(), '1:1:')"
        )
        slon.commit()
    waiting.join(30)
    assert [(found.made, found.last and found.last.seqno) for found in done] == [(None, BASE + 1)]


def test_a_sync_without_a_time_is_none(node: LoadedCatalog) -> None:
    put(node, [(NODE, BASE, "SYNC", 700)])
    node.execute("update sl_event set ev_timestamp = 'infinity'")
    assert make(node).made is not None


def test_a_lock_that_is_not_had_in_time_writes_nothing(node: LoadedCatalog) -> None:
    put(node, [])
    with node.raw(autocommit=False) as slon:
        slon.execute("lock table sl_event_lock")
        with pytest.raises(TargetLockTimeout):
            make(node)
    assert events(node) == []


# -- whose it is


def test_a_catalog_that_belongs_to_another_node_by_now_gets_none(node: LoadedCatalog) -> None:
    """A restored database: what was read of it is of another moment."""
    put(node, [])
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        node.execute("select setval('sl_local_node_id', 3)")
        with pytest.raises(NodeUninitialised, match="does not belong to node 2 any more"):
            make_due_sync(conn, catalog, UNIT)
    assert events(node) == []


def test_without_the_function_nothing_is_written(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", NODE)
    before = events(loaded)
    with pytest.raises(FunctionsMissing):
        make(loaded, replace(UNIT, interval=timedelta(seconds=0.3)))
    assert events(loaded) == before


# -- cut off


def fenced(node: LoadedCatalog, token: int) -> SyncUnit:
    """The unit of an attempt with its fence raised, as its claim does it."""
    with node.connect() as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, UNIT.resource, token=token, owner=UNIT.job_id)
    return replace(UNIT, token=token, has_ledger=True)


def dying(node: LoadedCatalog, unit: SyncUnit, at: int, *, after: bool) -> int:
    """Work on a session that breaks at one of its calls; how many it had."""
    conn: Connection = node.connect()
    catalog = read_catalog(conn, node.cluster)
    session = Dying(conn._session, at, after=after)
    conn._session = session  # type: ignore[assignment]
    try:
        make_due_sync(conn, catalog, unit)
    except TargetError:
        conn.close()
        return session.calls
    conn.close()
    return session.calls


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_cut_off_at_any_call_it_is_made_once_and_the_next_attempt_tells_of_it(
    node: LoadedCatalog, after: bool
) -> None:
    put(node, [(NODE, BASE, "SYNC", 3_600)])
    calls = dying(node, fenced(node, 1), 0, after=False)
    assert calls >= 7  # the name, BEGIN, fence, lock, ledger, look, SYNC, its row, COMMIT
    for at in range(1, calls + 1):
        put(node, [(NODE, BASE, "SYNC", 3_600)])
        node.execute("delete from lethe.unit_ledger")
        dying(node, fenced(node, 10 * at), at, after=after)
        was_made = len(events(node)) == 2
        done = make(node, fenced(node, 10 * at + 1))
        assert done.repeated == was_made
        assert was_made == (after and at == calls)
        assert events(node) == [(NODE, BASE, "SYNC"), (NODE, done.made, "SYNC")]
        assert done.last is not None
        assert (done.last.seqno, done.last.age > timedelta(minutes=59)) == (BASE, True)
        with node.connect() as conn:
            assert [(job.job_id, job.rows, job.step) for job in list_jobs(conn)] == [("job-1", 1, STEP)]


def test_a_worker_that_lost_its_claim_makes_none(node: LoadedCatalog) -> None:
    put(node, [])
    late, _ = fenced(node, 1), fenced(node, 2)
    with pytest.raises(FenceRaised):
        make(node, late)
    assert events(node) == []
