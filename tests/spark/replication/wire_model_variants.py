"""Naive forms of the rules, one at a time: with each of them the wire model must fail.

Each is a patch of the lower floor, or a rule of the model's own supplier; the product has no switch for any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.consumer import apply, arrival
from spark.replication.consumer.arrival import Arrival
from spark.replication.proofs import judging as proofs
from spark.replication.replica import local_write, replica
from spark.replication.sessions import session
from spark.replication.sessions.row import SessionRow, lock_session, save_session
from spark.replication.supplier import classic
from spark.replication.supplier.decide import Anchor, Consumer, Decision, Outcome, Strategy, Supplier, decide
from spark.replication.trimming import units as trim
from tests.spark.replication.broken_rule import broken_rule, does_nothing
from tests.spark.replication.wire_model import Profile
from tests.spark.replication.wire_model_session import Lease, Link, Rules

Patch = Callable[[], Any]


class Naive(StrEnum):
    RUV_BEFORE_THE_COMMIT = "the RUV is advanced before the transaction"
    RUV_AFTER_THE_COMMIT = "the RUV is advanced after the transaction"
    PRESENCE_OF_THE_ANCHOR = "the presence of the anchor is asked for, not the purge vector"
    PRESENCE_AND_NO_PREV = "the presence of the anchor is asked for, and prev is not looked at"
    NO_DEDUPE = "what is covered is applied again"
    NO_PREV = "prev is not looked at"
    NO_EPOCH = "the epoch of a lease is not looked at"
    RESTORED_NOT_FOUND = "a target that was put back is not found"
    AGREEMENTS_IGNORED = "trimming does not mind agreements"
    SNAPSHOT_AFTER_THE_ANCHOR = "CLASSIC looks at the RUV after it has chosen its anchor"
    OWN_RID_IGNORED = "the consumer's own replica id is left out"
    TOTAL_OF_ITS_END = "a copy takes the RUV of its end"
    BATCHES_NOT_COUNTED = "the end of a copy does not ask for its batches"


@dataclass(frozen=True)
class Setting:
    """Where a variant bites, and how it is made."""

    profile: Profile | None
    rules: Rules | None = None
    patches: tuple[Patch, ...] = ()
    seeds: tuple[int, ...] = ()

    @contextmanager
    def applied(self) -> Iterator[Rules | None]:
        with ExitStack() as stack:
            for patch in self.patches:
                stack.enter_context(patch())
            yield self.rules


def _attribute(where: Any, name: str, value: Any) -> Patch:
    return lambda: broken_rule(where, name, value)


def _advance_outside(*, before: bool) -> Patch:
    """`apply_batch` that leaves the RUV to a transaction of its own."""
    real_apply, real_sort, real_advance = apply.apply_batch, apply.sort_out, replica.advance_ruv

    def naive(conn: Any, ticket: Any, batch: Any, *, now_s: int, **others: Any) -> Any:
        tables, held = tables_of(conn), apply.arrange(batch)
        with conn.transaction():
            row = lock_session(conn, tables)
            row.require(ticket)
            ruv = replica.read_vectors(conn).ruv
        is_next = ticket.batch_seq == row.batch_seq + 1

        def advance() -> None:
            ahead = {"ahead_max_s": others["ahead_max_s"]}
            moves = real_sort(held, ruv, now_s=now_s, open_letters={}, **ahead).advances if is_next else {}
            with conn.transaction():
                for rid, move in moves.items():
                    real_advance(conn, tables, rid, first=move.first, last=move.last, now_s=now_s)

        def sort_by_old(found: Arrival, _: Any, **named: Any) -> Any:
            return real_sort(found, ruv, **named)

        broken = apply.advance_ruv  # stays breakable: the fault comes inside of the transaction

        def only_breaks(*args: Any, **kwargs: Any) -> None:
            if getattr(broken, "__name__", "") == "breakable":
                with broken_rule(replica, "advance_ruv", does_nothing):
                    broken(*args, **kwargs)

        if before:
            advance()
        with broken_rule(apply, "sort_out", sort_by_old):
            if before:
                return real_apply(conn, ticket, batch, now_s=now_s, **others)
            with broken_rule(apply, "advance_ruv", does_nothing):
                answer = real_apply(conn, ticket, batch, now_s=now_s, **others)
        if len(batch) % 3:  # the process may end in between
            advance()
        return answer

    return lambda: broken_rule(apply, "apply_batch", naive)


def _presence(link: Link, supplier: Supplier, consumer: Consumer) -> Decision:
    blind = replace(supplier, purged={})
    anchored = decide(blind, consumer, strategy=Strategy.CLASSIC)
    anchor = anchored.anchor
    if anchored.outcome is Outcome.SEND and anchor is not None and anchor.csn is not None:
        sql = "select 1 from replica_changelog where csn = :csn"
        if not anchor.inclusive and not link.supplier.conn.execute(sql, {"csn": str(anchor.csn)}):
            return Decision(Outcome.NEEDS_TOTAL, anchored.need)
    return decide(blind, consumer, strategy=link.strategy)


def _without_own(link: Link, supplier: Supplier, consumer: Consumer) -> Decision:
    ruv = {rid: csn for rid, csn in supplier.ruv.items() if rid != link.consumer.rid}
    return decide(replace(supplier, ruv=ruv), consumer, strategy=link.strategy)


def _no_dedupe(found: Arrival, ruv: Any, **others: Any) -> Any:
    """Every record that comes is new; what is below the RUV was seen with a lower one."""
    lower = dict(ruv)
    for rid, start in zip(found.rids, found.starts, strict=True):
        if rid in ruv and ruv[rid] >= found.csns[start].decode():
            before = found.prevs[start].decode()
            lower = {other: csn for other, csn in lower.items() if other != rid}
            lower |= {rid: Csn(before)} if before else {}
    return _REAL_SORT(found, lower, **others)


_REAL_SORT = apply.sort_out


def _chain_of_anyone(*args: Any, is_trusted: bool) -> Any:
    """The chain is kept, but no signature of the records' replica is asked for."""
    assert not is_trusted, "the model trusts nobody"
    return _REAL_CHAIN(*args, is_trusted=True)


_REAL_CHAIN = apply.chain_of_applied


def _require_session(self: SessionRow, ticket: Any) -> None:
    _REAL_REQUIRE(self, replace(ticket, epoch=self.epoch))


_REAL_REQUIRE = SessionRow.require


def _total_of_its_end(lease: Lease) -> None:
    link, record = lease.link, lease.link.record
    assert record is not None
    ruv = dict(link.supplier.state().vectors.ruv)
    conn = link.consumer.conn
    with conn.transaction():
        row = lock_session(conn, tables_of(conn))
        if row.total is not None and row.session_id == record.session_id:
            save_session(conn, tables_of(conn), replace(row, total=replace(row.total, ruv=ruv)))
            record.total_ruv = ruv


def _own_only(conn: Any, *, now_s: int) -> Any:
    return {rid: trim.Ceiling(own, own, None) for rid, own in replica.read_vectors(conn).ruv.items()}


class _RulesOfNow(classic.SkipRules):
    """Skip rules over a RUV that is read when the anchor is chosen already."""

    conn: Any = None

    def __init__(self, *, snapshot: Any, seen: Any) -> None:
        super().__init__(snapshot=replica.read_vectors(self.conn).ruv, seen=seen)


_REAL_READ = classic.ClassicReader._read


def _remember_conn(self: Any, anchor: Anchor) -> Any:
    _RulesOfNow.conn = self._conn
    return _REAL_READ(self, anchor)


_QUIET = Profile(loss=0.02, faults=0.0, deaths=0.2, classic=0.0, trims=False)
_BAD = Profile(loss=0.12, faults=0.15, classic=0.0, trims=False)
_PUT_BACK = Profile(steps=120, put_backs=2, trims=False, sites=2, classic=0.0)
_TOTALS = Profile(totals=True, put_backs=0, classic=0.0, sites=2)
_NO_PROOF = (
    _attribute(apply, "chain_of_applied", _chain_of_anyone),
    _attribute(proofs, "_check_last", does_nothing),
)
"""Records need not lead to the supplier's chain: else it finds what another rule should have found."""


class _Gap:
    """Whether the batch that is applied now has one: only such a batch goes on without its proof."""

    is_there = False


def _pass_gap(_: Arrival, is_gap: Any, __: Any) -> None:
    _Gap.is_there = bool(is_gap.any())


def _chain_over_a_gap(*args: Any, is_trusted: bool) -> Any:
    act = _chain_of_anyone if _Gap.is_there else _REAL_CHAIN
    return act(*args, is_trusted=is_trusted)


_NO_PREV = (
    _attribute(arrival, "_refuse_gap", _pass_gap),
    _attribute(apply, "chain_of_applied", _chain_over_a_gap),
    _attribute(proofs, "_check_last", does_nothing),
)

SETTINGS = {
    Naive.RUV_BEFORE_THE_COMMIT: Setting(_BAD, patches=(_advance_outside(before=True),)),
    Naive.RUV_AFTER_THE_COMMIT: Setting(_BAD, patches=(_advance_outside(before=False),)),
    Naive.PRESENCE_OF_THE_ANCHOR: Setting(Profile(classic=0.0, sites=3), Rules(decide=_presence)),
    Naive.PRESENCE_AND_NO_PREV: Setting(Profile(classic=0.0, sites=3), Rules(decide=_presence), _NO_PREV),
    Naive.NO_DEDUPE: Setting(
        replace(_BAD, sites=3), patches=(_attribute(apply, "sort_out", _no_dedupe), *_NO_PROOF)
    ),
    Naive.NO_PREV: Setting(_PUT_BACK, patches=_NO_PREV, seeds=(87,)),
    Naive.NO_EPOCH: Setting(
        replace(_BAD, totals=True, deaths=4.0, sites=2, steps=120),
        patches=(_attribute(SessionRow, "require", _require_session),),
    ),
    Naive.RESTORED_NOT_FOUND: Setting(
        _PUT_BACK,
        patches=(
            _attribute(replica, "loss_of", lambda *_: None),
            _attribute(local_write, "loss_of", lambda *_: None),
            _attribute(session, "_look_for_loss", lambda *_, **__: None),
        ),
    ),
    Naive.AGREEMENTS_IGNORED: Setting(
        Profile(classic=0.0), patches=(_attribute(trim, "ceilings", _own_only),)
    ),
    Naive.SNAPSHOT_AFTER_THE_ANCHOR: Setting(
        replace(_QUIET, classic=1.0, sites=3, steps=150),
        patches=(
            _attribute(classic, "SkipRules", _RulesOfNow),
            _attribute(classic.ClassicReader, "_read", _remember_conn),
        ),
        seeds=(99, 142),
    ),
    Naive.OWN_RID_IGNORED: Setting(_PUT_BACK, Rules(decide=_without_own)),
    Naive.TOTAL_OF_ITS_END: Setting(_TOTALS, Rules(before_complete=_total_of_its_end)),
    Naive.BATCHES_NOT_COUNTED: Setting(
        replace(_TOTALS, steps=150, put_backs=6, trims=False, loss=0.02, faults=0.0, deaths=0.3),
        patches=(_attribute(SessionRow, "require_batches", lambda *_: None),),
        seeds=(46, 197),
    ),
}
