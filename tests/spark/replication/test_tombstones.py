"""Purging tombstones against the definition, record by record, and in its single cases; on both databases."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.agreements import (
    FLOOR_KEEP_S,
    Floors,
    acknowledge,
    register_agreement,
    remove_agreement,
)
from spark.replication.csn_generator import GeneratorState, next_csn
from spark.replication.dead_letters import Direction, Refused, put_dead_letters
from spark.replication.errors import ReplicaNotWhole
from spark.replication.replica.replica import snapshot
from spark.replication.sessions.peers import PeerRole, note_announced, note_peer
from spark.replication.tombstones import ceiling, units
from spark.replication.tombstones.plan import TombstonePlan, TombstoneRules, plan_tombstones
from spark.replication.tombstones.units import (
    STEP,
    TombstoneUnit,
    TombstoneWalk,
    run_tombstones,
    shorter,
)
from spark.targets.connection import Connection, Target, target_now
from spark.targets.errors import FenceRaised, TargetError
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger, ledger_totals
from tests.dying import Dying
from tests.spark.replication.broken_rule import broken_rule, does_nothing
from tests.spark.replication.replica_tables import (
    NOW_S,
    csn,
    make_tables,
    opened,
)
from tests.spark.replication.tombstone_tables import keys_left, put_entries

RESOURCE = "public.replica_entries"
CASES = 60
"""On each database."""
RIDS = (1, 2, 3, 7)
ENDLESS_S = 2**32 - 1
SERVICE_S = csn(80, 1).timestamp
"""The service's clock: a little behind the youngest of the changes."""


@pytest.fixture
def conn(bare_place: Target) -> Iterator[Connection]:
    with opened(bare_place) as connection:
        make_tables(connection)
        connection.execute(
            f"insert into {tables_of(connection).generator}"
            " (one, sampled_s, local_offset_s, remote_offset_s, sequence) values (1, 0, 0, 0, 0)"
        )
        connection.execute(
            f"insert into {tables_of(connection).session} (one, epoch, batch_seq) values (1, 0, 0)"
        )
        assert ensure_ledger(connection)
        yield connection


@dataclass
class Case:
    """One random situation.

    Attributes:
        entries: by key (CSN, whether it is a tombstone).
        acks: of each agreement its consumer's replica id and what it has acknowledged; None: it does not
            count any more.
        missing: replica ids of which a change was refused, or an extinction announced, and has not come.
    """

    ruv: dict[int, Csn] = field(default_factory=dict)
    entries: dict[bytes, tuple[Csn, bool]] = field(default_factory=dict)
    acks: dict[str, tuple[int | None, Mapping[int, Csn]] | None] = field(default_factory=dict)
    suppliers: set[int] = field(default_factory=set)
    missing: set[int] = field(default_factory=set)
    gone: frozenset[int] = frozenset()
    cutoff_s: int | None = None

    def may_go(self, tombstone: Csn) -> bool:
        """The rule, for one tombstone: nobody can bring, or lacks, a change from before it."""
        counted = [each for each in self.acks.values() if each is not None]
        consumers = {rid for rid, _ in counted if rid is not None}
        elsewhere = {rid for _, ack in counted for rid in ack}
        known = {*self.ruv, *consumers, *elsewhere, *self.suppliers, *self.missing}
        for rid in (known - {1}) - self.gone:
            here = self.ruv.get(rid, "") >= tombstone
            if not here and not any(self._is_silent(rid, each, tombstone) for each in counted):
                return False
        for _, ack in counted:
            for rid, own in self.ruv.items():
                if ack.get(rid, "") < own and ack.get(rid, "") < tombstone:
                    return False
        return True

    def _is_silent(self, rid: int, each: tuple[int | None, Mapping[int, Csn]], tombstone: Csn) -> bool:
        """Whether a consumer has nothing of its own that is not here, and was past the tombstone then."""
        consumer, ack = each
        knows = any(acknowledged >= tombstone for acknowledged in ack.values())
        return consumer == rid and knows and ack.get(rid, "") <= self.ruv.get(rid, "")

    def old(self) -> set[bytes]:
        """Tombstones that are old enough."""
        if self.cutoff_s is None:
            return set()
        dead = [(key, found) for key, (found, is_dead) in self.entries.items() if is_dead]
        return {key for key, found in dead if found.timestamp < self.cutoff_s}

    def removed(self) -> set[bytes]:
        """The definition, tombstone by tombstone."""
        if not self.ruv:
            return set()
        return {key for key in self.old() if self.may_go(self.entries[key][0])}


def random_case(rng: random.Random) -> Case:
    case = Case()
    for rid in rng.sample(RIDS, rng.randint(0 if rng.random() < 0.1 else 1, 4)):
        case.ruv[rid] = csn(rng.randint(20, 70), rid)
    for number in range(rng.randint(0, 40) if case.ruv else 0):
        rid = rng.choice(sorted(case.ruv))
        found = csn(rng.randint(0, case.ruv[rid].timestamp - csn(0, 1).timestamp), rid)
        case.entries[b"k%03d" % number] = (found, rng.random() < 0.6)
    for name in rng.sample(["agr_a", "agr_b", "agr_c"], rng.choice((0, 1, 1, 2, 3))):
        is_level = rng.random() < 0.6
        known = {
            rid: own if is_level or rng.random() < 0.4 else csn(rng.randint(0, 75), rid)
            for rid, own in case.ruv.items()
            if rng.random() < 0.93
        }
        if rng.random() < 0.1:
            known[8] = csn(rng.randint(0, 75), 8)
        consumer = rng.choice((None, 2, 3, 7, 9))
        case.acks[name] = None if rng.random() < 0.15 else (consumer, known)
    case.suppliers = set(rng.sample((2, 3, 9), rng.choice((0, 0, 0, 1))))
    case.missing = set(rng.sample((2, 10), rng.choice((0, 0, 0, 0, 0, 1))))
    case.gone = frozenset(rng.sample((2, 3, 7, 8, 9, 10), rng.choice((0, 0, 1, 2, 3))))
    case.cutoff_s = None if rng.random() < 0.05 else csn(rng.randint(10, 75), 1).timestamp
    return case


def put_case(conn: Connection, case: Case, rng: random.Random) -> None:
    tables, now_s = tables_of(conn), int(target_now(conn).timestamp())
    with conn.transaction():
        for table in (
            tables.entries,
            tables.ruv,
            tables.agreements,
            tables.agreement_ruv,
            tables.peers,
            tables.dead_letters,
            tables.announced,
        ):
            conn.execute(f"delete from {table}")
        conn.execute_many(
            f"insert into {tables.ruv} (rid, min_csn, max_csn) values (:rid, :csn, :csn)",
            [{"rid": rid, "csn": str(found)} for rid, found in case.ruv.items()],
        )
        put_entries(conn, case.entries)
        for rid in case.suppliers:
            note_peer(conn, PeerRole.SUPPLIER, f"s {rid}", rid=rid, capabilities=(), now_s=now_s)
        for rid in case.missing:
            if rng.random() < 0.5:
                note_announced(conn, tables, {rid: csn(90, rid)}, ruv=case.ruv)
            else:
                letter = Refused(csn(90, rid), "CHANGE", b"db", b"k", b"v", "RECORD_TOO_LONG", "too long")
                put_dead_letters(conn, Direction.RECEIVED, "s", [letter], now_s=now_s)
        for name, found in case.acks.items():
            consumer, known = found or (2, {})
            register_agreement(conn, name, now_s=now_s, consumer_rid=consumer)
            acknowledge(conn, name, known)
            if found is None:
                remove_agreement(conn, name, now_s=now_s - FLOOR_KEEP_S - 1)
            elif rng.random() < 0.2:  # removed, and still counting
                remove_agreement(conn, name, now_s=now_s - FLOOR_KEEP_S + 1_000)


def bury(conn: Connection, rules: TombstoneRules, *, rows_max: int = 5, job: str = "job_a") -> int:
    """Purge to the end; how many went."""
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    now_s, walk, gone = int(target_now(conn).timestamp()), TombstoneWalk(rules), 0
    while span := walk.next_span(conn, now_s=now_s, rows_max=rows_max):
        done = run_tombstones(conn, TombstoneUnit(job, span, rules, 1, RESOURCE, SERVICE_S))
        assert done.rows == span.rows
        walk.passed(span)
        gone += done.rows
    return gone


def planned(conn: Connection, rules: TombstoneRules) -> TombstonePlan:
    return plan_tombstones(conn, rules, now_s=int(target_now(conn).timestamp()))


def level(conn: Connection, entries: Mapping[bytes, tuple[Csn, bool]]) -> None:
    """Entries of replica 1 alone, all of which are here."""
    case = Case(ruv={1: csn(70, 1)}, entries=dict(entries))
    put_case(conn, case, random.Random(0))


# -- the definition


def check_cases(conn: Connection, seed: int, cases: int) -> int:
    rng, removed, bound = random.Random(seed), 0, None
    for number in range(cases):
        case = random_case(rng)
        put_case(conn, case, rng)
        expected, rules = case.removed(), TombstoneRules(case.cutoff_s, case.gone)
        plan = planned(conn, rules)
        gone = bury(conn, rules, rows_max=rng.randint(1, 9), job=f"job_{number}")

        assert keys_left(conn) == set(case.entries) - expected
        dead = {key for key, (_, is_dead) in case.entries.items() if is_dead}
        assert (plan.entries, plan.rows) == (len(case.entries), len(dead))
        assert gone == plan.rows_to_remove == len(expected)
        assert sum(item.rows_held for item in plan.rids) == len(case.old() - expected)
        assert bool(plan.held_by) == bool(case.old() - expected) or not case.ruv
        totals = ledger_totals(conn, f"job_{number}")
        assert sum(item.rows for item in totals.values()) == len(expected)
        greatest = max((case.entries[key][0] for key in expected), default=None)
        assert plan.upto == greatest
        bound = max(filter(None, (bound, greatest)), default=None)
        seen = snapshot(conn)
        assert (seen.replica.buried, dict(seen.vectors.ruv)) == (bound, case.ruv)
        if greatest is not None:  # a clock that was set back makes no change from before it
            assert next_csn(seen.generator, now_s=SERVICE_S - 80)[0] > greatest
        removed += gone
    return removed


def test_a_purge_removes_what_the_definition_says_and_nothing_else(conn: Connection) -> None:
    assert check_cases(conn, 0, CASES) > CASES, "the cases remove something"


@pytest.mark.parametrize("bare_place", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("module", "name", "naive"),
    [
        pytest.param(units, "_pass", does_nothing, id="the generator does not follow"),
        pytest.param(units, "raise_bound", does_nothing, id="no bound is kept"),
        pytest.param(ceiling, "floors", lambda *_, **__: Floors(), id="consumers are ignored"),
        pytest.param(ceiling, "_covered", lambda rid, ruv, _: ruv.get(rid), id="silence is not seen"),
        pytest.param(TombstoneRules, "before", "~", id="age is ignored"),
    ],
)
def test_the_definition_bites(conn: Connection, module: Any, name: str, naive: Any) -> None:
    with broken_rule(module, name, naive), pytest.raises(AssertionError):
        check_cases(conn, 0, CASES)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_purges_remove_what_the_definition_says(conn: Connection, seed: int) -> None:
    check_cases(conn, seed, 100)


# -- single cases


def test_the_plan_names_who_holds_what(conn: Connection) -> None:
    entries = {b"k%d" % number: (csn(number, 1), True) for number in range(10)}
    case = Case(
        ruv={1: csn(9, 1), 2: csn(5, 2)},
        entries=entries,
        acks={"agr_a": (3, {1: csn(7, 1), 2: csn(5, 2)}), "agr_b": (4, {1: csn(9, 1), 2: csn(5, 2)})},
    )
    put_case(conn, case, random.Random(0))
    plan = planned(conn, TombstoneRules(ENDLESS_S))
    assert (plan.ceiling, plan.held_by) == (csn(5, 2), ("RID 2", "RID 3", "agr_a"))
    assert (plan.rows, plan.rows_to_remove, plan.upto) == (10, 6, csn(5, 1))
    told = planned(conn, TombstoneRules(ENDLESS_S, frozenset({2})))
    assert (told.ceiling, told.held_by, told.rows_to_remove) == (csn(7, 1), ("RID 3", "agr_a"), 8)


def test_a_silent_consumer_holds_nothing_that_it_has_seen(conn: Connection) -> None:
    """It has never written: without its acknowledgement nobody knows what it is about to bring."""
    case = Case(ruv={1: csn(9, 1)}, entries={b"k": (csn(5, 1), True)}, acks={"agr_a": (3, {})})
    put_case(conn, case, random.Random(0))
    assert planned(conn, TombstoneRules(ENDLESS_S)).held_by == ("RID 3", "agr_a")
    acknowledge(conn, "agr_a", {1: csn(9, 1)})
    assert planned(conn, TombstoneRules(ENDLESS_S)).rows_to_remove == 1
    acknowledge(conn, "agr_a", {3: csn(4, 3)})  # it has a change that is not here, older than the delete
    assert planned(conn, TombstoneRules(ENDLESS_S)).rows_to_remove == 0


def test_a_replica_id_that_only_a_consumer_has_is_waited_for(conn: Connection) -> None:
    """The consumer has changes of it that have not come here: they may be from before the delete."""
    case = Case(ruv={1: csn(9, 1)}, entries={b"k": (csn(5, 1), True)})
    case.acks = {"agr_a": (3, {1: csn(9, 1), 7: csn(8, 7)})}
    put_case(conn, case, random.Random(0))
    plan = planned(conn, TombstoneRules(ENDLESS_S))
    assert (plan.held_by, plan.rows_to_remove) == (("RID 7",), 0)
    assert planned(conn, TombstoneRules(ENDLESS_S, frozenset({7}))).rows_to_remove == 1


def test_nothing_beyond_a_reviewed_plan_goes(conn: Connection) -> None:
    level(conn, {b"k%d" % number: (csn(number, 1), True) for number in range(10)})
    rules = TombstoneRules(ENDLESS_S, frozenset(), str(csn(4, 1)))
    assert bury(conn, rules) == 5
    assert bury(conn, TombstoneRules(ENDLESS_S, frozenset(), ""), job="job_b") == 0
    assert keys_left(conn) == {b"k%d" % number for number in range(5, 10)}


def test_a_unit_done_twice_counts_once(conn: Connection) -> None:
    level(conn, {b"k%d" % number: (csn(number, 1), True) for number in range(4)})
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    rules = TombstoneRules(ENDLESS_S)
    span = TombstoneWalk(rules).next_span(conn, now_s=NOW_S, rows_max=3)
    assert span is not None
    unit = TombstoneUnit("job_a", span, rules, 1, RESOURCE, NOW_S)
    first, second = run_tombstones(conn, unit), run_tombstones(conn, unit)
    assert (first.rows, first.repeated, second.rows, second.repeated) == (3, False, 3, True)
    assert keys_left(conn) == {b"k3"}
    assert ledger_totals(conn, "job_a")[STEP].rows == 3


def test_a_unit_of_an_older_claim_removes_nothing(conn: Connection) -> None:
    level(conn, {b"k": (csn(1, 1), True)})
    raise_fence(conn, RESOURCE, token=2, owner="job_b")
    rules = TombstoneRules(ENDLESS_S)
    span = TombstoneWalk(rules).next_span(conn, now_s=NOW_S, rows_max=3)
    assert span is not None
    with pytest.raises(FenceRaised):
        run_tombstones(conn, TombstoneUnit("job_a", span, rules, 1, RESOURCE, NOW_S))
    assert (keys_left(conn), snapshot(conn).replica.buried) == ({b"k"}, None)


def test_what_is_needed_by_now_stays(conn: Connection) -> None:
    """An agreement that came between the look and the unit holds its tombstones."""
    level(conn, {b"k": (csn(1, 1), True)})
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    rules = TombstoneRules(ENDLESS_S)
    span = TombstoneWalk(rules).next_span(conn, now_s=NOW_S, rows_max=3)
    assert span is not None
    register_agreement(conn, "agr_new", now_s=int(target_now(conn).timestamp()))
    assert run_tombstones(conn, TombstoneUnit("job_a", span, rules, 1, RESOURCE, NOW_S)).rows == 0
    assert (keys_left(conn), snapshot(conn).replica.buried) == ({b"k"}, None)


@pytest.mark.parametrize("status", ["RESTORED", "INITIALIZING"])
def test_a_replica_that_is_not_whole_keeps_its_tombstones(conn: Connection, status: str) -> None:
    level(conn, {b"k": (csn(1, 1), True)})
    conn.execute(f"update {tables_of(conn).replica} set status = :status", {"status": status})
    with pytest.raises(ReplicaNotWhole):
        bury(conn, TombstoneRules(ENDLESS_S))
    assert keys_left(conn) == {b"k"}


def test_a_span_that_is_too_long_is_cut(conn: Connection) -> None:
    level(conn, {b"k%d" % number: (csn(9 - number, 1), number != 1) for number in range(6)})
    rules = TombstoneRules(ENDLESS_S)
    span = TombstoneWalk(rules).next_span(conn, now_s=NOW_S, rows_max=50)
    assert span is not None
    part = shorter(conn, span, rules, rows=2)
    assert (part.rows, part.after, part.upto) == (2, span.after, (b"db", b"k2"))
    assert (span.rows, span.first, span.last) == (5, csn(4, 1), csn(9, 1))


def test_the_generator_follows_what_was_purged(conn: Connection) -> None:
    level(conn, {b"k": (csn(60, 1), True)})
    assert snapshot(conn).generator == GeneratorState(1, 0)
    bury(conn, TombstoneRules(ENDLESS_S))
    assert snapshot(conn).generator.timestamp >= csn(60, 1).timestamp


@pytest.mark.parametrize("after", [False, True], ids=["unheard", "unanswered"])
def test_a_death_at_any_statement_leaves_all_or_nothing(
    conn: Connection, bare_place: Target, tmp_path: Path, after: bool
) -> None:
    level(conn, {b"k%d" % number: (csn(number, 1), number != 2) for number in range(4)})
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    rules = TombstoneRules(ENDLESS_S)
    span = TombstoneWalk(rules).next_span(conn, now_s=NOW_S, rows_max=9)
    assert span is not None
    unit = TombstoneUnit("job_a", span, rules, 1, RESOURCE, NOW_S, archive_dir=str(tmp_path / "archive"))
    before, states, at = held(conn), [], 0
    while True:
        at += 1
        states.append(held(conn))
        with opened(bare_place) as dying:
            session = Dying(dying._session, at, after=after)
            dying._session = session  # type: ignore[assignment]
            try:
                run_tombstones(dying, unit)
            except TargetError:
                continue
        break
    assert session.calls < at, "every statement was met"
    gone = held(conn)
    assert gone[:2] == ({b"k2"}, csn(3, 1))
    assert ledger_totals(conn, "job_a")[STEP].rows == 3
    assert [state for state in states if state not in (before, gone)] == []


def held(conn: Connection) -> tuple[set[bytes], str | None, GeneratorState, int]:
    """What a unit moves: entries, the bound, the generator, rows of the ledger."""
    seen = snapshot(conn)
    return keys_left(conn), seen.replica.buried, seen.generator, len(ledger_totals(conn, "job_a"))
