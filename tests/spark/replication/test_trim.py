"""Trimming against a brute-force model, and in its single cases: on SQLite and PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.agreements import (
    FLOOR_KEEP_S,
    acknowledge,
    register_agreement,
    remove_agreement,
)
from spark.replication.errors import ReplicaNotWhole
from spark.replication.supplier.decide import Consumer, Outcome, Reason, Strategy, Supplier, decide
from spark.replication.trimming.plan import plan_trim
from spark.replication.trimming.units import (
    Span,
    TrimRules,
    TrimUnit,
    TrimWalk,
    run_trim,
)
from spark.targets.connection import Connection, Target, target_now
from spark.targets.errors import FenceRaised
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger, ledger_totals
from tests.spark.replication.replica_tables import (
    NOW_S,
    csn,
    left_in_changelog,
    make_tables,
    opened,
    put_records,
    rolled_back,
    vectors,
)

RESOURCE = "public.replica_changelog"
CASES = 120
"""On each database."""


@pytest.fixture
def conn(bare_place: Target) -> Iterator[Connection]:
    with opened(bare_place) as connection:
        make_tables(connection)
        assert ensure_ledger(connection)
        yield connection


def _unit(span: Span, *, job: str = "job_a", token: int = 1, archive_dir: str | None = None) -> TrimUnit:
    return TrimUnit(job, span, token, RESOURCE, archive_dir=archive_dir)


def _trim(conn: Connection, rules: TrimRules, *, rows_max: int = 5, job: str = "job_a") -> int:
    """Trim to the end; how many rows went."""
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    now_s = int(target_now(conn).timestamp())
    walk = TrimWalk(rules)
    gone = 0
    while spans := walk.next_spans(conn, now_s=now_s, rows_max=rows_max):
        for span in spans:
            done = run_trim(conn, _unit(span, job=job))
            assert done.rows == span.rows
            walk.note(span, done.rows)
            gone += done.rows
    return gone


# -- the model


@dataclass
class _Case:
    """One random situation; `acks` is None of an agreement that does not count any more."""

    records: dict[int, list[tuple[Csn, int]]] = field(default_factory=dict)
    acks: dict[str, Mapping[int, Csn] | None] = field(default_factory=dict)
    cutoff_s: int | None = None
    max_entries: int | None = None

    @property
    def count(self) -> int:
        return sum(len(found) for found in self.records.values())

    def may_go(self, rid: int, record: Csn) -> bool:
        counted = [ack for ack in self.acks.values() if ack is not None]
        return all(rid in ack and record <= ack[rid] for ack in counted)

    def removed(self) -> set[Csn]:
        """The definition, record by record."""
        free = sorted(
            item[0] for rid, found in self.records.items() for item in found if self.may_go(rid, item[0])
        )
        excess = 0 if self.max_entries is None else max(0, self.count - self.max_entries)
        by_count = set(free[:excess])
        gone = set()
        for rid, found in self.records.items():
            for record, logged_at_s in found:
                is_old = self.cutoff_s is not None and logged_at_s < self.cutoff_s
                if not self.may_go(rid, record) or not (is_old or record in by_count):
                    break
                gone.add(record)
        return gone


def _random_case(rng: random.Random) -> _Case:
    case = _Case()
    at = 0
    for rid in rng.sample([1, 2, 3, 7], rng.randint(1, 4)):
        found = []
        late_s = rng.choice([0, 0, 25, -25])  # a replica whose changes arrived late, or early
        for number in sorted(rng.sample(range(60), rng.randint(0, 25))):
            # Clocks jump: the order of times is nearly that of the CSNs, not always.
            at = NOW_S + number + late_s + (rng.randint(-20, 20) if rng.random() < 0.15 else 0)
            found.append((csn(number, rid), at))
        if found:
            case.records[rid] = found
    for name in rng.sample(["agr_a", "agr_b", "agr_c"], rng.randint(0, 3)):
        known = {rid: csn(rng.randint(0, 70), rid) for rid in (1, 2, 3, 7) if rng.random() < 0.85}
        case.acks[name] = None if rng.random() < 0.15 else known
    if rng.random() < 0.75:
        case.cutoff_s = NOW_S + rng.randint(0, 62)
    if rng.random() < 0.5 or case.cutoff_s is None:
        case.max_entries = rng.randint(0, case.count + 3)
    return case


def _put_case(conn: Connection, case: _Case, rng: random.Random) -> None:
    tables = tables_of(conn)
    now_s = int(target_now(conn).timestamp())
    with conn.transaction():
        for table in (tables.changelog, tables.ruv, tables.agreements, tables.agreement_ruv):
            conn.execute(f"delete from {table}")
        put_records(conn, [item for found in case.records.values() for item in found])
        for name, known in case.acks.items():
            register_agreement(conn, name, now_s=now_s)
            acknowledge(conn, name, known or {})
            if known is None:
                remove_agreement(conn, name, now_s=now_s - FLOOR_KEEP_S - 1)
            elif rng.random() < 0.2:  # removed, and still counting
                remove_agreement(conn, name, now_s=now_s - FLOOR_KEEP_S + 1_000)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_trimming_removes_what_the_definition_says_and_nothing_else(conn: Connection, seed: int) -> None:
    rng = random.Random(seed)
    removed = 0
    for number in range(CASES // 4):
        case = _random_case(rng)
        _put_case(conn, case, rng)
        ruv, least, _ = vectors(conn)
        now_s = int(target_now(conn).timestamp())
        plan = plan_trim(conn, cutoff_s=case.cutoff_s, max_entries=case.max_entries, now_s=now_s)
        excess = 0 if case.max_entries is None else max(0, case.count - case.max_entries)
        job = f"job_{number}"
        gone = _trim(conn, TrimRules(case.cutoff_s, excess), rows_max=rng.randint(1, 9), job=job)

        expected = case.removed()
        everything = {item[0] for found in case.records.values() for item in found}
        assert left_in_changelog(conn) == everything - expected
        assert gone == plan.rows_to_remove == len(expected)
        assert plan.rows == case.count
        totals = ledger_totals(conn, job)
        assert sum(item.rows for item in totals.values()) == len(expected)
        ruv_after, least_after, purged = vectors(conn)
        assert (ruv_after, least_after) == (ruv, least)
        assert purged == {
            rid: max(item for item in expected if item.rid == rid)
            for rid in case.records
            if any(item.rid == rid for item in expected)
        }
        _check_consumers(case, ruv, least, purged)
        removed += gone
    assert removed > CASES, "the cases remove something"


def _check_consumers(
    case: _Case, ruv: Mapping[int, Csn], least: Mapping[int, Csn], purged: Mapping[int, Csn]
) -> None:
    """No consumer that counts was left behind."""
    for known in case.acks.values():
        if known is None:
            continue
        for strategy in Strategy:
            found = decide(Supplier(ruv, least, purged), Consumer(known), strategy=strategy)
            assert found.outcome is not Outcome.NEEDS_TOTAL


# -- single cases


def test_the_plan_says_per_replica_id_what_is_held_and_by_whom(conn: Connection) -> None:
    put_records(conn, [(csn(number, rid), NOW_S + number) for number in range(10) for rid in (1, 2, 3)])
    for name in ("agr_a", "agr_b"):
        register_agreement(conn, name, now_s=NOW_S)
    acknowledge(conn, "agr_a", {1: csn(9, 1), 2: csn(3, 2)})
    acknowledge(conn, "agr_b", {1: csn(8, 1), 2: csn(9, 2), 3: csn(9, 3)})
    one, two, three = plan_trim(conn, cutoff_s=NOW_S + 6, max_entries=None, now_s=NOW_S).rids
    assert (one.rows, one.rows_eligible_by_age, one.rows_to_remove, one.rows_held) == (10, 6, 6, 0)
    assert (one.held_by, one.upto, one.headroom, one.purged) == ((), csn(5, 1), 3, None)
    assert (two.rows_eligible_by_age, two.rows_to_remove, two.rows_held) == (6, 4, 2)
    assert (two.held_by, two.floor, two.upto, two.headroom) == (("agr_a",), csn(3, 2), csn(3, 2), 0)
    assert (three.rows_eligible_by_age, three.rows_to_remove, three.rows_held) == (6, 0, 6)
    assert (three.held_by, three.floor, three.upto, three.headroom) == (("agr_a",), None, None, 0)


def test_a_count_that_cannot_be_reached_names_who_holds_it(conn: Connection) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(10)])
    register_agreement(conn, "agr_a", now_s=NOW_S)
    acknowledge(conn, "agr_a", {1: csn(3, 1)})
    plan = plan_trim(conn, cutoff_s=None, max_entries=4, now_s=NOW_S)
    assert (plan.excess, plan.rows_to_remove) == (6, 4)
    assert plan.rids[0].held_by == ("agr_a",)


def test_by_count_the_oldest_go_over_all_replica_ids(conn: Connection) -> None:
    put_records(conn, [(csn(number, 1 + number % 3), NOW_S) for number in range(30)])
    assert _trim(conn, TrimRules(None, 17), rows_max=2) == 17
    assert left_in_changelog(conn) == {csn(number, 1 + number % 3) for number in range(17, 30)}


def test_nothing_beyond_a_reviewed_plan_goes(conn: Connection) -> None:
    """Only cut-off and bound came from the plan: what had been acknowledged in between went unreviewed."""
    put_records(conn, [(csn(number, rid), NOW_S) for number in range(10) for rid in (1, 2, 3)])
    register_agreement(conn, "agr_a", now_s=NOW_S)
    acknowledge(conn, "agr_a", {1: csn(3, 1), 2: csn(5, 2)})
    plan = plan_trim(conn, cutoff_s=NOW_S + 6, max_entries=None, now_s=NOW_S)
    upto = {item.rid: item.upto for item in plan.rids if item.upto is not None}
    acknowledge(conn, "agr_a", {1: csn(9, 1), 2: csn(9, 2), 3: csn(9, 3)})
    for excess in (0, 20):
        rules = TrimRules(NOW_S + 6, excess, upto)
        assert _trim(conn, rules, rows_max=2, job=f"job_{excess}") == (0 if excess else plan.rows_to_remove)
    left = {csn(number, rid) for number in range(10) for rid in (1, 2, 3)}
    gone = {csn(number, 1) for number in range(4)} | {csn(number, 2) for number in range(6)}
    assert left_in_changelog(conn) == left - gone


def test_a_unit_done_twice_counts_once(conn: Connection) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(4)])
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    unit = _unit(Span(1, csn(0, 1), csn(2, 1), 3))
    first, second = run_trim(conn, unit), run_trim(conn, unit)
    assert (first.rows, first.repeated, second.rows, second.repeated) == (3, False, 3, True)
    assert left_in_changelog(conn) == {csn(3, 1)}
    assert ledger_totals(conn, "job_a")["RID_1"].rows == 3


def test_a_unit_that_is_rolled_back_leaves_rows_and_purge_vector(conn: Connection) -> None:
    """As a kill before the commit does."""
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(4)])
    with rolled_back(conn):
        conn.execute(
            f"delete from {tables_of(conn).changelog} where rid = 1 and csn <= :hi", {"hi": csn(2, 1)}
        )
        conn.execute(f"update {tables_of(conn).ruv} set purged_csn = :hi", {"hi": csn(2, 1)})
    assert len(left_in_changelog(conn)) == 4
    assert vectors(conn)[2] == {}


def test_the_purge_vector_never_goes_back(conn: Connection) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(9)])
    _trim(conn, TrimRules(None, 6))
    # Somebody has brought rows back from an archive: removed again, they lower nothing.
    with conn.transaction():
        put_records(conn, [(csn(2, 1), NOW_S)])
        conn.execute(f"update {tables_of(conn).ruv} set max_csn = :csn", {"csn": csn(8, 1)})
    assert _trim(conn, TrimRules(None, 1), job="job_b") == 1
    assert vectors(conn)[2] == {1: csn(5, 1)}


def test_an_agreement_registered_between_plan_and_unit_counts(conn: Connection) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(9)])
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    walk = TrimWalk(TrimRules(NOW_S + 1))
    [span] = walk.next_spans(conn, now_s=NOW_S, rows_max=100)
    register_agreement(conn, "agr_a", now_s=NOW_S)
    walk.note(span, run_trim(conn, _unit(span, job="job_0")).rows)
    assert len(left_in_changelog(conn)) == 9
    assert walk.next_spans(conn, now_s=NOW_S, rows_max=100) == []
    acknowledge(conn, "agr_a", {1: csn(4, 1)})
    [allowed] = walk.next_spans(conn, now_s=NOW_S, rows_max=100)
    assert allowed == Span(1, csn(0, 1), csn(4, 1), 5)
    # Planned when nobody held anything back, done when somebody does: the unit sees it.
    done = run_trim(conn, _unit(span, job="job_1"))
    walk.note(span, done.rows)
    assert (done.rows, vectors(conn)[2]) == (5, {1: csn(4, 1)})
    acknowledge(conn, "agr_a", {1: csn(6, 1)})
    [rest] = walk.next_spans(conn, now_s=NOW_S, rows_max=100)
    assert rest == Span(1, csn(5, 1), csn(6, 1), 2)


def test_a_record_above_the_own_ruv_stays(conn: Connection) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(4)])
    conn.execute(f"update {tables_of(conn).ruv} set max_csn = :csn", {"csn": csn(1, 1)})
    assert _trim(conn, TrimRules(NOW_S + 1)) == 2
    assert left_in_changelog(conn) == {csn(2, 1), csn(3, 1)}


@pytest.mark.parametrize("status", ["RESTORED", "INITIALIZING"])
def test_a_replica_that_is_not_whole_is_not_trimmed(conn: Connection, status: str) -> None:
    put_records(conn, [(csn(1, 1), NOW_S)])
    conn.execute(f"update {tables_of(conn).replica} set status = :status", {"status": status})
    with pytest.raises(ReplicaNotWhole, match=status):
        _trim(conn, TrimRules(NOW_S + 1))
    assert len(left_in_changelog(conn)) == 1


def test_a_unit_of_an_older_claim_removes_nothing(conn: Connection) -> None:
    put_records(conn, [(csn(1, 1), NOW_S)])
    raise_fence(conn, RESOURCE, token=2, owner="job_b")
    with pytest.raises(FenceRaised):
        run_trim(conn, _unit(Span(1, csn(1, 1), csn(1, 1), 1)))
    assert len(left_in_changelog(conn)) == 1


def test_entries_and_first_csns_are_not_touched(conn: Connection) -> None:
    tables = tables_of(conn)
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(9)])
    conn.execute(
        f"insert into {tables.entries} (database, key, value, csn, is_tombstone)"
        " values (:database, :key, :value, :csn, :dead)",
        {"database": b"db", "key": b"k", "value": None, "csn": csn(0, 1), "dead": True},
    )
    before = conn.execute(f"select * from {tables.entries}")
    _trim(conn, TrimRules(NOW_S + 1))
    assert left_in_changelog(conn) == set()
    assert conn.execute(f"select * from {tables.entries}") == before
    assert vectors(conn)[1] == {1: csn(0, 1)}


def test_an_archive_keeps_what_is_removed(conn: Connection, tmp_path: Path) -> None:
    put_records(conn, [(csn(number, 1), NOW_S) for number in range(4)])
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    done = run_trim(conn, _unit(Span(1, csn(0, 1), csn(2, 1), 3), archive_dir=str(tmp_path / "archive")))
    assert done.archive is not None
    assert (done.rows, done.archive.rows) == (3, 3)
    assert vectors(conn)[2] == {1: csn(2, 1)}


def test_a_trimmed_log_with_an_idle_anchor_present_needs_a_total(conn: Connection) -> None:
    """The real silent loss: trimmed past what a consumer lacks, while the anchor of an idle replica stands.

    389 looks for the one anchor only, finds it, sends the rest and reports green.
    """
    idle, busy = 3, 1
    put_records(conn, [(csn(1, idle), NOW_S + 1_000)])
    put_records(conn, [(csn(number, busy), NOW_S + number) for number in range(2, 12)])
    consumer = {idle: csn(0, idle), busy: csn(4, busy)}
    # The consumer is not registered here: nobody speaks for it when the log is trimmed.
    _trim(conn, TrimRules(NOW_S + 9))
    assert csn(1, idle) in left_in_changelog(conn)
    assert csn(8, busy) not in left_in_changelog(conn)
    ruv, least, purged = vectors(conn)
    for strategy in Strategy:
        found = decide(Supplier(ruv, least, purged), Consumer(consumer), strategy=strategy)
        assert (found.outcome, found.reason) == (Outcome.NEEDS_TOTAL, Reason.PURGED)
        assert found.blocked_rids == (busy,)
    # Registered it is spared that: what it lacks stays.
    register_agreement(conn, "agr_a", now_s=NOW_S)
    acknowledge(conn, "agr_a", {idle: csn(1, idle), busy: csn(9, busy)})
    _trim(conn, TrimRules(NOW_S + 2_000), job="job_b")
    ruv, least, purged = vectors(conn)
    consumer = {idle: csn(1, idle), busy: csn(9, busy)}
    found = decide(Supplier(ruv, least, purged), Consumer(consumer), strategy=Strategy.WINDOW)
    assert found.outcome is Outcome.SEND
    assert {csn(10, busy), csn(11, busy)} <= left_in_changelog(conn)
