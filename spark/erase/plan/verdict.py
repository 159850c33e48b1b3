"""The third look at a file: what goes and what stays, by its entries and what the whole log says of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spark.erase.calls.calls import Costs, PlannedFile
from spark.erase.calls.request import LogExtinction, PlanRequest
from spark.erase.errors import LogRefused
from spark.erase.native.types import Table
from spark.erase.plan.overview import FilePart, find_outcomes_in_file
from spark.erase.plan.plan import Judge, plan_file
from spark.erase.plan.plan_answer import VETOED_MAX, planned_file
from spark.erase.plan.survey import FileTask, TransactionEnds, unpack, unpack_rising
from spark.erase.reading.databases import Databases
from spark.erase.reading.files import Reads
from spark.erase.reading.log import (
    Entries,
    Lns,
    Log,
    Mask,
    all_ends,
    all_entries,
    all_lns,
    all_nodes,
    distinct,
    mark,
)
from spark.erase.reasons import Cause, Reason
from spark.erase.rule.barren import find_barren
from spark.erase.rule.deciding import CAUSES, Decision, Facts, decide
from spark.erase.rule.tree import Reached
from spark.erase.rule.versions import Superseded
from spark.erase.rule.vlsn import VlsnIndex
from spark.formats.je.log import lsn_file, lsn_of


@dataclass(frozen=True, slots=True)
class VerdictTerms:
    """What every task must know."""

    request: PlanRequest
    first_active: int
    databases: Databases
    spread: TransactionEnds
    vlsn_index: VlsnIndex | None
    reserved: frozenset[int]
    newest: frozenset[int]
    last: int
    names: Mapping[int, str]
    log_extinctions: tuple[LogExtinction, ...]


@dataclass(frozen=True, slots=True)
class VerdictTask:
    """A file, and what the whole log says of it.

    Attributes:
        superseded, collided, later: packed offsets of LNs, as the parts of the window found them.
        abort_offsets: of versions that transactions of the tail would return to.
    """

    file: FileTask
    part: FilePart
    superseded: tuple[bytes, ...]
    collided: tuple[bytes, ...]
    later: tuple[bytes, ...]
    abort_offsets: Table


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided about one file.

    Attributes:
        vetoed: the first of them, (LSN, reason).
        missing_count: LSNs in this file that slots name, where no entry is.
    """

    planned: PlannedFile
    vetoed: tuple[tuple[int, str], ...]
    vetoed_count: int
    missing_count: int
    costs: Costs


def decide_file(task: VerdictTask, *, terms: VerdictTerms) -> Verdict | LogRefused:
    """Read a file once more and decide about its entries; a refusal is a value."""
    try:
        columns, reads = task.file.read(verify=False)
    except LogRefused as refused:
        return refused
    log = Log(Path(task.file.directory), (), (columns,), Reads())
    facts = _gather(log, task, terms)
    request = terms.request
    decision = decide(
        facts,
        request.switches,
        now_ms=request.now_ms,
        expired=request.erase_expired,
        extinctions=request.extinctions,
    )
    end_file = lsn_file(terms.first_active)
    judge = Judge(terms.last, request, terms.databases, terms.vlsn_index, end_file, terms.reserved)
    reserved = terms.reserved & {columns.number}
    barren = find_barren(facts, decision, reserved, vlsn_index=terms.vlsn_index, newest=terms.newest)
    vetoed = np.flatnonzero(decision.cause == CAUSES.index(Cause.VETOED) + 1)
    there = mark(facts.reached.lsns, facts.entries.lsn)
    return Verdict(
        planned=planned_file(
            plan_file(judge, columns, decision, facts.reached.lsns), barren=columns.number in barren
        ),
        vetoed=tuple(_named(facts.entries, decision, vetoed[:VETOED_MAX])),
        vetoed_count=len(vetoed),
        missing_count=int((~there).sum()),
        costs=Costs(reads=reads.count, read_bytes=reads.byte_count),
    )


def _gather(log: Log, task: VerdictTask, terms: VerdictTerms) -> Facts:
    """Put together what the rule is asked about, as `plan.gather_facts` does for a whole log."""
    entries, lns, nodes, ends = all_entries(log), all_lns(log), all_nodes(log), all_ends(log)
    part, number = task.part, task.file.number
    old_nodes = np.unpackbits(unpack(part.old_nodes), count=len(nodes.entry)).astype(bool)
    return Facts(
        log=log,
        entries=entries,
        lns=lns,
        nodes=nodes,
        ends=ends,
        outcomes=find_outcomes_in_file(entries, lns, ends, terms.spread),
        databases=terms.databases,
        reached=Reached(
            lsns=unpack_rising(part.reached) + lsn_of(number, 0),
            abort_lsns=task.abort_offsets + lsn_of(number, 0),
            gone=(),
        ),
        first_active=terms.first_active,
        superseded=Superseded(
            *(_lns_at(entries, lns, number, each) for each in (task.superseded, task.collided, task.later))
        ),
        old_nodes=old_nodes,
        old_later=np.unpackbits(unpack(part.old_later), count=len(nodes.entry)).astype(bool),
        listed=_listed(part, number),
        names=terms.names,
        log_extinctions=terms.log_extinctions,
    )


def _listed(part: FilePart, number: int) -> Table:
    if part.listed is None:
        return np.empty(0, dtype=np.int64)
    return unpack_rising(part.listed) + lsn_of(number, 0)


def _lns_at(entries: Entries, lns: Lns, number: int, offsets: Sequence[bytes]) -> Mask:
    """Mark the LNs at offsets that came in several parts."""
    lsns = [unpack_rising(each) + lsn_of(number, 0) for each in offsets]
    if not lsns:
        return np.zeros(len(lns.entry), dtype=bool)
    return mark(entries.lsn[lns.entry], distinct(np.concatenate(lsns)))


def _named(entries: Entries, decision: Decision, rows: Table) -> Iterator[tuple[int, str]]:
    return ((int(entries.lsn[row]), Reason(int(decision.reason[row])).name) for row in rows.tolist())
