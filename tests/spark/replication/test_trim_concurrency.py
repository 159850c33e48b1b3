"""Trimming beside writers, acknowledgements, registrations and reading sessions: what is needed is there."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.agreements import acknowledge, register_agreement, remove_agreement
from spark.replication.records import local_schema
from spark.replication.replica.local_write import Expected, LocalRequest, write_group
from spark.replication.replica.replica import create_file, ensure_layout, read_vectors
from spark.replication.supplier.decide import Consumer, Outcome, Strategy, Supplier, Vector, decide
from spark.replication.supplier.window import WindowReader
from spark.replication.trimming.units import TrimRules, TrimUnit, TrimWalk, run_trim
from spark.targets.connection import Connection, SessionLimits, Target, target_now
from spark.targets.errors import TargetLockTimeout
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger, ledger_totals
from tests.spark.replication.replica_tables import (
    DIALECTS,
    NOW_S,
    csn,
    left_in_changelog,
    opened,
    postgresql_target,
    put_records,
)

RESOURCE = "public.replica_changelog"
LIMITS = SessionLimits(lock_timeout_ms=2_000)
LASTS_S = 2.5
DAY_S = 86_400
OWN, OTHER = 1, 2
INCARNATION = "inc_first"


@pytest.fixture(params=DIALECTS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "postgresql":
        found = postgresql_target(request.getfixturevalue("postgresql_url"))
    else:
        found = Target(f"sqlite:///{tmp_path / 'replica.db'}", table_prefix="replica_")
        create_file(found)
    with opened(found) as conn:
        ensure_layout(conn, rid=OWN, generation=str(csn(0, OWN)), incarnation=INCARNATION)
        assert ensure_ledger(conn)
        raise_fence(conn, RESOURCE, token=1, owner="job_a")
    return found


class Beside:
    """Threads that work until the time is over; the first failure of any is the test's."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._ends = time.monotonic() + LASTS_S
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def run(self, step: Callable[[Connection], None], *, pause_s: float = 0.0) -> None:
        """Repeat a step on a connection of its own; a lock that is taken is tried again."""

        def work() -> None:
            try:
                with opened(self._target, limits=LIMITS) as conn:
                    while time.monotonic() < self._ends and not self._failures:
                        try:
                            step(conn)
                        except TargetLockTimeout:
                            continue
                        time.sleep(pause_s)
            except BaseException as error:  # noqa: BLE001 - raised again where the test waits
                self._failures.append(error)

        self._threads.append(threading.Thread(target=work))

    def join(self) -> None:
        """Begin all, wait for all."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]


class Follower:
    """A consumer with its agreement: reads windows as a session does, and acknowledges what it has read."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.seen: dict[int, Csn] = {}
        self.read: dict[int, list[Csn]] = {OWN: [], OTHER: []}

    def step(self, conn: Connection) -> None:
        """One window."""
        with conn.transaction(read_only=True):
            vectors = read_vectors(conn)
        decision = decide(
            Supplier(vectors.ruv, vectors.min, vectors.purged), Consumer(self.seen), strategy=Strategy.WINDOW
        )
        assert decision.outcome is not Outcome.NEEDS_TOTAL, (self.name, self.seen, vectors.purged)
        if decision.outcome is Outcome.UP_TO_DATE:
            return
        for batch in WindowReader(conn, decision.windows, rows_max=50, bytes_max=1_000_000):
            for text, prev in zip(
                batch.column("csn").to_pylist(), batch.column("prev").to_pylist(), strict=True
            ):
                found = Csn(text)
                assert prev == self.seen.get(found.rid), (self.name, found, prev, self.seen)
                self.seen[found.rid] = found
                self.read[found.rid].append(found)
            time.sleep(self.rng.uniform(0, 0.01))
        self._acknowledge(conn, self.seen)

    def _acknowledge(self, conn: Connection, ruv: Vector) -> None:
        while True:
            try:
                if self.rng.random() < 0.2:  # one that never was: a later one tells all the same
                    with _undone(conn):
                        acknowledge(conn, self.name, dict(ruv))
                    return
                acknowledge(conn, self.name, dict(ruv))
            except TargetLockTimeout:
                continue
            return


@contextmanager
def _undone(conn: Connection) -> Iterator[None]:
    class Undone(Exception):
        pass

    try:
        with conn.transaction():
            yield
            raise Undone
    except Undone:
        return


class Trimmer:
    """Jobs of trimming, one after the other, everything old at once."""

    def __init__(self) -> None:
        self.removed = 0
        self._number = 0

    def step(self, conn: Connection) -> None:
        """One job."""
        self._number += 1
        now_s = int(target_now(conn).timestamp())
        walk = TrimWalk(TrimRules(now_s + 60))
        while spans := walk.next_spans(conn, now_s=now_s, rows_max=40):
            for span in spans:
                unit = TrimUnit(f"job_{self._number}", span, 1, RESOURCE)
                done = self._run(conn, unit)
                walk.note(span, done)
                self.removed += done

    def _run(self, conn: Connection, unit: TrimUnit) -> int:
        for _ in range(50):
            try:
                return run_trim(conn, unit).rows
            except TargetLockTimeout:
                continue
        raise AssertionError("the unit never got its locks")


def _write(conn: Connection) -> None:
    batch = pa.record_batch([[b"db"] * 5, [b"k%d" % n for n in range(5)], [b"v"] * 5], schema=local_schema())
    write_group(
        conn, [LocalRequest(batch)], now_s=int(time.time()), expected=Expected(INCARNATION, own_max=None)
    )


class Received:
    """Changes of another replica that arrive here."""

    def __init__(self) -> None:
        # Of yesterday by the clock of the local writers, who write above all that is here.
        self._number = int(time.time()) - DAY_S - csn(0, OTHER).timestamp

    def step(self, conn: Connection) -> None:
        """Ten of them in one transaction."""
        records = [(csn(self._number + at, OTHER), 1) for at in range(10)]
        with conn.transaction():
            put_records(conn, records)
        self._number += 10


def test_trimming_beside_writers_acknowledgements_and_readers_loses_nothing(target: Target) -> None:
    rng = random.Random(7)
    followers = [Follower(name, random.Random(rng.random())) for name in ("agr_a", "agr_b")]
    trimmer = Trimmer()
    with opened(target, limits=LIMITS) as conn:
        for follower in followers:
            register_agreement(conn, follower.name, now_s=int(target_now(conn).timestamp()))
    beside = Beside(target)
    for _ in range(2):
        beside.run(_write, pause_s=0.002)
    beside.run(Received().step, pause_s=0.005)
    for follower, pause_s in zip(followers, (0.0, 0.08), strict=True):
        beside.run(follower.step, pause_s=pause_s)
    beside.run(trimmer.step)
    beside.join()

    with opened(target, limits=LIMITS) as conn:
        for follower in followers:
            follower.step(conn)
            acknowledge(conn, follower.name, dict(follower.seen))
        vectors = read_vectors(conn)
        gone_before = dict(vectors.purged)
        assert trimmer.removed > 100, "something was removed beside them"
        assert all(follower.seen == dict(vectors.ruv) for follower in followers)
        assert followers[0].read == followers[1].read
        everything = set(followers[0].read[OWN] + followers[0].read[OTHER])
        left = left_in_changelog(conn)
        # What is gone is exactly what lies at or below the purge vector.
        assert left == {each for each in everything if each > gone_before.get(each.rid, Csn.of(0, 0, 1))}
        trimmer.step(conn)
        assert left_in_changelog(conn) == set()
        assert dict(read_vectors(conn).purged) == dict(vectors.ruv)
        counted = sum(
            total.rows
            for (job,) in conn.execute(
                f"select distinct job_id from {conn.dialect.lethe_table('unit_ledger')}"
            )
            for total in ledger_totals(conn, job).values()
        )
        assert counted == trimmer.removed == len(everything)


def test_an_agreement_that_comes_beside_trimming_loses_nothing_from_then_on(target: Target) -> None:
    """Registered, it holds back everything that was there when its registration was answered."""
    trimmer = Trimmer()
    checked = []

    def come_and_go(conn: Connection) -> None:
        name = f"agr_{len(checked)}"
        register_agreement(conn, name, now_s=int(target_now(conn).timestamp()))
        with conn.transaction(read_only=True):
            before = read_vectors(conn)
            there = {each for each in left_in_changelog(conn) if each <= before.ruv.get(each.rid, "")}
        time.sleep(0.02)
        assert there <= left_in_changelog(conn)
        checked.append(len(there))
        remove_agreement(conn, name, now_s=NOW_S - 100 * 86_400)

    beside = Beside(target)
    beside.run(_write, pause_s=0.001)
    beside.run(trimmer.step)
    beside.run(come_and_go, pause_s=0.02)
    beside.join()
    assert trimmer.removed > 0
    assert sum(checked) > 0
    with opened(target, limits=LIMITS) as conn:
        [(least,)] = conn.execute(f"select min(csn) from {tables_of(conn).changelog}")
        purged = read_vectors(conn).purged
        assert least is None or purged == {} or least > purged[OWN]
