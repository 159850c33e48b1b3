"""The plan: which entries are erased by which reason, and which are not and why.

Nothing is written here. An entry is erased only if it lies before the checkpoint's first active LSN, in a
file before that LSN's file, one reason of the safe rule holds for it (the first one counts), nothing forbids
it, and the veto is silent.

This is the inline form. A Spark plan makes the same columns (`reading.read_file`) in a task per file, does
the one window of `versions` over (database, key), and hands the rest to the same functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from spark.erase.calls.request import LogExtinction, PlanRequest
from spark.erase.native.planned import PLANNED
from spark.erase.native.types import Table
from spark.erase.reading.columns import FileColumns
from spark.erase.reading.databases import Databases, find_databases
from spark.erase.reading.files import Reads
from spark.erase.reading.log import (
    Checkpoint,
    Lns,
    Log,
    Mask,
    all_ends,
    all_entries,
    all_lns,
    all_nodes,
    mark,
    newest_checkpoint,
    read_log,
)
from spark.erase.reading.naming import ended_in, settled_names
from spark.erase.reading.transactions import Outcomes, find_outcomes
from spark.erase.reasons import Cause, Reason
from spark.erase.rule.barren import find_barren
from spark.erase.rule.deciding import CAUSES, Decision, Facts, decide
from spark.erase.rule.extinct_scans import find_log_extinctions
from spark.erase.rule.tree import find_reached, missing_targets
from spark.erase.rule.vlsn import VlsnIndex, find_vlsn_index
from spark.formats.je.items import RESERVED_FILES_NAME
from spark.formats.je.log import EntryType, file_name, lsn_file, lsn_of

# Causes that a checkpoint in a new file takes away.
MOVED_BY_CHECKPOINT: Final = frozenset({Cause.TAIL_OF_LOG, Cause.RECOVERY_INTERVAL})


@dataclass(frozen=True, slots=True)
class Amount:
    """So many entries, and the bytes of their items."""

    entries: int
    item_bytes: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What is erased in one file, and what is not.

    Attributes:
        causes: why nothing of the file is erased; empty where something may be.
        detail: what there is to say about the causes.
        erase: (PLANNED) the entries to erase, ascending; empty where there is a cause.
        erased: the same by reason.
        kept: by cause, what has a reason and stays.
        after_checkpoint: what a checkpoint by JE would free besides, as far as the log tells.
        extinct: what is erased as EXTINCT, by the extinction's id; `in_use`: offsets (four bytes each, the
            lowest first) of those entries among them that slots still name.
        reserved: JE has put the file aside for deletion.
    """

    columns: FileColumns
    causes: tuple[Cause, ...]
    detail: Mapping[Cause, str]
    erase: pa.Table
    erased: Mapping[Reason, Amount]
    kept: Mapping[Cause, Amount]
    reserved: bool
    after_checkpoint: Amount
    extinct: Mapping[str, Amount] = field(default_factory=dict)
    in_use: bytes = b""

    @property
    def name(self) -> str:
        """The file's name."""
        return file_name(self.columns.number)


@dataclass(frozen=True, slots=True)
class Plan:
    """What an erasure of an environment would do.

    Attributes:
        vetoed: (LSN, reason) of entries that the rule would erase and the trees still reach: a plan with them
            wants a look.
        missing: LSNs that slots name and the log has not; records that expired, for one.
        erased_reached: LSNs that slots name and that are erased already.
        gone: tree nodes of databases in removal that are not in the log any more.
        barren: reserved files that hold nothing any more.
        reads: what reading has cost.
        nodes_wait: in an environment that is in use, old nodes are left for later.
        log_extinctions: those that the log itself has.
        vanished: files that JE has deleted while the plan was made; they are known, and nothing is planned
            in them.
    """

    directory: Path
    checkpoint: Checkpoint
    files: tuple[FilePlan, ...]
    databases: Databases
    vlsn_index: VlsnIndex | None
    vetoed: tuple[tuple[int, Reason], ...]
    missing: tuple[int, ...]
    erased_reached: tuple[int, ...]
    gone: tuple[int, ...]
    barren: frozenset[int] = frozenset()
    reads: Reads = field(default_factory=Reads)
    nodes_wait: bool = False
    log_extinctions: tuple[LogExtinction, ...] = ()
    vanished: frozenset[int] = frozenset()

    @property
    def torn_at(self) -> tuple[str, int] | None:
        """Where the last file is torn off; None where it is whole."""
        last = self.files[-1].columns
        return None if last.torn_at is None else (file_name(last.number), last.torn_at)


def plan_erasure(directory: Path, request: PlanRequest) -> Plan:
    """Read an environment and plan its erasure.

    Raises: LogRefused: naming file and offset.
    Source: facts je-safe-rule.
    """
    with read_log(directory, verify=True, durable=True) as log:
        plan = plan_log(log, request)
        for file in log.open_files:
            file.look_again()
    return plan


def plan_log(log: Log, request: PlanRequest) -> Plan:
    """Plan the erasure of a log that has been read."""
    checkpoint = newest_checkpoint(log)
    facts = gather_facts(log, checkpoint)
    decision = decide(
        facts,
        request.switches,
        now_ms=request.now_ms,
        expired=request.erase_expired,
        extinctions=request.extinctions,
    )
    return make_plan(facts, checkpoint, decision, request)


def make_plan(
    facts: Facts,
    checkpoint: Checkpoint,
    decision: Decision,
    request: PlanRequest,
    *,
    nodes_wait: bool = False,
) -> Plan:
    """Put a plan together from what was decided of each entry; causes of whole files are added here."""
    log, end_file = facts.log, lsn_file(checkpoint.first_active)
    vlsn_index = find_vlsn_index(
        log, facts.entries, facts.lns, facts.outcomes, facts.databases, end_file=end_file
    )
    reserved = reserved_files(facts.lns, facts.outcomes, facts.databases)
    judge = Judge(log.files[-1].number, request, facts.databases, vlsn_index, end_file, reserved)
    vetoed = np.flatnonzero(decision.cause == CAUSES.index(Cause.VETOED) + 1)
    erased = (facts.entries.type == EntryType.ERASED) & mark(facts.entries.lsn, facts.reached.lsns)
    return Plan(
        directory=log.directory,
        checkpoint=checkpoint,
        files=tuple(_plan_files(judge, log.files, decision, facts.reached.lsns)),
        databases=facts.databases,
        vlsn_index=vlsn_index,
        vetoed=tuple((int(facts.entries.lsn[row]), Reason(int(decision.reason[row]))) for row in vetoed),
        missing=tuple(missing_targets(facts.reached, facts.entries).tolist()),
        erased_reached=tuple(facts.entries.lsn[erased].tolist()),
        gone=facts.reached.gone,
        barren=find_barren(facts, decision, reserved, vlsn_index=vlsn_index),
        reads=log.reads,
        nodes_wait=nodes_wait,
        log_extinctions=facts.log_extinctions,
    )


def gather_facts(log: Log, checkpoint: Checkpoint) -> Facts:
    """Put together what the rule is asked about."""
    entries, lns, nodes, ends = all_entries(log), all_lns(log), all_nodes(log), all_ends(log)
    databases = find_databases(log, checkpoint)
    first_active = checkpoint.first_active
    ended = ended_in(log)
    names = settled_names(log, ended, first_active=first_active)
    return Facts(
        log=log,
        entries=entries,
        lns=lns,
        nodes=nodes,
        ends=ends,
        outcomes=find_outcomes(entries, lns, ends),
        databases=databases,
        reached=find_reached(log, entries, lns, nodes, databases, first_active=first_active),
        first_active=first_active,
        names=names,
        log_extinctions=find_log_extinctions(
            log, names, ended, first_active=first_active, secondary=databases.dups
        ),
    )


@dataclass(frozen=True, slots=True)
class Judge:
    """What decides about whole files; `last` is the number of the log's last one."""

    last: int
    request: PlanRequest
    databases: Databases
    vlsn_index: VlsnIndex | None
    end_file: int
    reserved: frozenset[int]

    def causes(self, columns: FileColumns) -> dict[Cause, str]:
        """Find why nothing of a file may be erased, the weightiest cause first."""
        number, found = columns.number, {}
        if number == self.last:
            found[Cause.TAIL_OF_LOG] = "the last file; writing goes on in it"
        if number >= self.end_file:
            found[Cause.RECOVERY_INTERVAL] = f"recovery would read from {file_name(self.end_file)} on"
        found |= self._replication(number)
        if columns.identity.links > 1:
            found[Cause.HARD_LINKED] = f"{columns.identity.links} names share its bytes"
        if name := self.request.protected.get(number):
            found[Cause.PROTECTED] = name
        before = self.request.created_before_ms
        if before is not None and columns.header is not None and columns.header.created_ms > before:
            found[Cause.TOO_YOUNG] = f"created at {columns.header.created_ms} ms, after {before} ms"
        for cause, ids in (
            (Cause.COMPARATOR, self.databases.with_comparator),
            (Cause.DEFERRED_WRITE, self.databases.deferred_write),
        ):
            if held := sorted(ids & _databases_in(columns)):
                found[cause] = ", ".join(self.databases.known[each].name for each in held)
        return found

    def _replication(self, number: int) -> dict[Cause, str]:
        index = self.vlsn_index
        if index is None or number < index.first_file:
            return {}
        if index.range is None:
            return {Cause.VLSN_INDEX: "the log has VLSNs, but no record of what their index covers"}
        covers = f"the index covers VLSN {index.range.first} to {index.range.last}"
        if index.truncation is None and number < self.end_file:
            return {Cause.NO_VLSN: f"{covers}; no file that could be erased has a VLSN to truncate it at"}
        return {Cause.VLSN_INDEX: covers}


def _plan_files(
    judge: Judge, files: Sequence[FileColumns], decision: Decision, reached: Table
) -> list[FilePlan]:
    plans, row = [], 0
    for columns in files:
        end = row + columns.entries.num_rows
        plans.append(plan_file(judge, columns, decision.part(row, end), reached))
        row = end
    return plans


def plan_file(judge: Judge, columns: FileColumns, decision: Decision, reached: Table) -> FilePlan:
    """Put together what was decided of a file's entries, and what forbids the whole file.

    Args:
        reached: LSNs that slots and the tail of the log lead to, at least those in this file.
    """
    causes = judge.causes(columns)
    if decision.extinct is not None and decision.extinct.waits.any():
        count = int(decision.extinct.waits.sum())
        detail = f"{count} entries may be extinct: it is not known yet whether an extinction is committed"
        causes[Cause.EXTINCTION_METADATA] = detail
    item_bytes = columns.entries["item_bytes"].to_numpy()
    erasable = (decision.reason != 0) & (decision.cause == 0)
    after_checkpoint = _after_checkpoint(causes, decision, erasable)
    kept = {
        cause: amount
        for number, cause in enumerate(CAUSES, start=1)
        if (amount := _amount(decision.cause == number, item_bytes)).entries
    }
    if causes:
        first = next(iter(causes))
        if erasable.any():
            kept[first] = _amount(erasable, item_bytes)
        erasable = np.zeros_like(erasable)
    erased = {
        reason: amount
        for reason in Reason
        if (amount := _amount(erasable & (decision.reason == reason), item_bytes)).entries
    }
    chosen = columns.entries.append_column("reason", pa.array(decision.reason, pa.uint8()))
    return FilePlan(
        columns=columns,
        causes=tuple(causes),
        detail=causes,
        erase=chosen.filter(pa.array(erasable)).select(PLANNED.names).cast(PLANNED),
        erased=erased,
        kept=kept,
        reserved=columns.number in judge.reserved,
        after_checkpoint=_amount(after_checkpoint, item_bytes),
        extinct=_by_extinction(decision, erasable, item_bytes),
        in_use=_in_use(columns, decision, erasable, reached),
    )


def _after_checkpoint(causes: Mapping[Cause, str], decision: Decision, erasable: Mask) -> Mask:
    """What a checkpoint behind the end of the log would free in a file that nothing else holds."""
    if causes.keys() - MOVED_BY_CHECKPOINT:
        return np.zeros_like(erasable)
    freed: Mask = decision.later != 0
    return freed | erasable if causes else freed


def _by_extinction(
    decision: Decision, erasable: Mask, item_bytes: "np.ndarray[tuple[int], np.dtype[np.int32]]"
) -> dict[str, Amount]:
    extinct = decision.extinct
    if extinct is None:
        return {}
    chosen = erasable & (decision.reason == Reason.EXTINCT)
    return {
        extinct.ids[number - 1]: _amount(chosen & (extinct.number == number), item_bytes)
        for number in np.unique(extinct.number[chosen]).tolist()
    }


def _in_use(columns: FileColumns, decision: Decision, erasable: Mask, reached: Table) -> bytes:
    """Offsets of erased entries that slots name: only JE's own filter keeps it from fetching them."""
    chosen = erasable & (decision.reason == Reason.EXTINCT)
    if not chosen.any():
        return b""
    offsets = columns.entries["offset"].to_numpy().astype(np.int64)[chosen]
    named: Table = offsets[mark(offsets + lsn_of(columns.number, 0), reached)]
    return named.astype("<u4").tobytes()


def _amount(rows: Mask, item_bytes: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> Amount:
    return Amount(int(rows.sum()), int(item_bytes[rows].sum(dtype=np.int64)))


def _databases_in(columns: FileColumns) -> frozenset[int]:
    found = np.concatenate([columns.lns["db"].to_numpy(), columns.nodes["db"].to_numpy()])
    return frozenset(np.unique(found).tolist())


def reserved_files(lns: Lns, outcomes: Outcomes, databases: Databases) -> frozenset[int]:
    """Find the files that JE has put aside: newest committed record of each, not deleted."""
    db = databases.named(RESERVED_FILES_NAME)
    if db is None:
        return frozenset()
    newest: dict[bytes, bool] = {}
    for row in np.flatnonzero((lns.db == db) & outcomes.committed).tolist():
        newest[lns.key(row)] = bool(lns.value_bytes[row] >= 0)
    # Keys sort as numbers do: eight bytes, big-endian, with the sign turned over.
    numbers_of = {
        int.from_bytes(key, "big") ^ (1 << 63) for key, there in newest.items() if there and len(key) == 8
    }
    return frozenset(numbers_of)
