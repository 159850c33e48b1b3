"""What a running JE process adds to the safe rule: which checkpoint counts, what waits, what is refused.

Leaves are decided by the newest checkpoint. Nodes are decided by an older one too: a thread of JE may have
read the pointer to a node and stand still before it reads the node, while the rest completes a checkpoint.
So a checkpoint counts for nodes only when a later one has ended some time after it, by the times that the
log itself names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from spark.erase.calls.calls import LiveTerms
from spark.erase.calls.request import ExtinctionTerms, PlanRequest
from spark.erase.errors import LiveBackupUnknown, LiveReplicated, NoCheckpoint
from spark.erase.plan.plan import gather_facts
from spark.erase.reading.databases import Databases, find_databases
from spark.erase.reading.log import Checkpoint, Log, Mask, is_entry, numbers, refuse_restore
from spark.erase.reasons import Cause, Reason
from spark.erase.rule.deciding import CAUSES, NO_CAUSE, NO_EXTINCTIONS, Decision, Facts, among, decide
from spark.erase.rule.tree import find_reached
from spark.formats.je.items import NAMING_DB, CheckpointEnd
from spark.formats.je.log import (
    FLAG_INVISIBLE,
    FLAGS_WITH_VLSN,
    NODE_TYPES,
    EntryType,
    file_name,
    lsn_file,
    lsn_offset,
)

IS_NODE: Final = np.array([number in NODE_TYPES for number in range(256)])
REPLICATION_TYPES: Final = (EntryType.ROLLBACK_START, EntryType.ROLLBACK_END, EntryType.MATCHPOINT)
# JE's own databases bear names that begin so.
INTERNAL_PREFIX: Final = "_je"


@dataclass(frozen=True, slots=True)
class LiveDecision:
    """What was decided, by the newest checkpoint that can be relied on."""

    facts: Facts
    checkpoint: Checkpoint
    decision: Decision
    nodes_wait: bool


def decide_live(log: Log, request: PlanRequest, terms: LiveTerms) -> LiveDecision:
    """Decide about a log that is in use, on nothing but what was read.

    Raises: LogRefused
    Source: facts je-live, rules 3 to 5.
    """
    checkpoints = usable_checkpoints(log)
    if not checkpoints:
        raise NoCheckpoint(f"no checkpoint has ended in the {len(log.files)} files of {log.directory}")
    newest = checkpoints[-1]
    refuse_restore(log, newest)
    facts = gather_facts(log, newest)
    decision = _decide(facts, request, request.extinctions)
    _forbid_internal(facts, decision)
    _forbid_unsettled(facts, decision)
    _forbid_extinct_in_memory(decision)
    settled = settled_checkpoint(checkpoints, node_grace_ms=terms.node_grace_ms)
    _forbid_young_nodes(facts, decision, settled, request)
    nodes_wait = bool((decision.cause == CAUSES.index(Cause.NODES_WAIT) + 1).any())
    return LiveDecision(facts, newest, decision, nodes_wait)


def usable_checkpoints(log: Log) -> list[Checkpoint]:
    """Find the checkpoints with all of their recovery's files up to them, in log order.

    That each of these files is whole, and every checksum right, was seen when it was read.
    """
    there = {file.number for file in log.files}
    found = []
    for lsn, _, end in log.rare(CheckpointEnd):
        checkpoint = Checkpoint(lsn, end)
        first = checkpoint.first_active
        if not 0 <= first <= lsn or not is_entry(log, first):
            continue
        if there.issuperset(range(lsn_file(first), lsn_file(lsn) + 1)):
            found.append(checkpoint)
    return found


def settled_checkpoint(checkpoints: Sequence[Checkpoint], *, node_grace_ms: int) -> Checkpoint | None:
    """Find the newest checkpoint that a later one outlived by the grace; none in a young log."""
    latest_ms: int | None = None
    for checkpoint in reversed(checkpoints):
        ended_ms = checkpoint.end.ended_ms
        if latest_ms is not None and latest_ms - ended_ms >= node_grace_ms:
            return checkpoint
        latest_ms = ended_ms if latest_ms is None else max(latest_ms, ended_ms)
    return None


def refuse_replicated(log: Log) -> None:
    """Refuse a log in which replication has left its traces: replicas need what the rule takes for obsolete.

    An invisible entry is one: only a rollback makes it, and no checksum covers the flag.
    """
    for file in log.files:
        types, flags = numbers(file.entries, "type"), numbers(file.entries, "flags")
        marked = (flags & (FLAGS_WITH_VLSN | FLAG_INVISIBLE)) != 0
        # The header of a file ignores its flags.
        traces = np.isin(types, REPLICATION_TYPES) | (marked & (types != EntryType.FILE_HEADER))
        for row in np.flatnonzero(traces)[:1].tolist():
            kind = EntryType(int(types[row])).name
            detail = f"{kind} with flags {int(flags[row]):#04x}: the environment is, or was, replicated"
            offset = int(numbers(file.entries, "offset")[row])
            raise LiveReplicated(detail, file=file_name(file.number), offset=offset)


def refuse_unknown_backup(log: Log, terms: LiveTerms) -> None:
    """Refuse a log in which a backup began a short while ago that is not one of ours.

    A backup of JE writes its marker and goes on in a new file: the time at which that one was created is the
    marker's own. Nothing tells when such a backup ended.
    """
    for lsn in log.of_type(EntryType.IMMUTABLE_FILE):
        later = (file for file in log.files if file.number > lsn_file(lsn) and file.header is not None)
        header = next((file.header for file in later), None)
        began_ms = terms.now_ms if header is None else header.created_ms
        is_ours = any(begin <= began_ms <= end for begin, end in terms.backups_ms)
        if is_ours or terms.now_ms - began_ms >= terms.backup_grace_ms:
            continue
        detail = f"a backup that is not one of ours began at {began_ms} ms; it is {terms.now_ms} ms"
        raise LiveBackupUnknown(detail, file=file_name(lsn_file(lsn)), offset=lsn_offset(lsn))


def _decide(facts: Facts, request: PlanRequest, extinctions: ExtinctionTerms = NO_EXTINCTIONS) -> Decision:
    # A slot in memory may still lead to an expired record, and no veto sees it: these stay.
    return decide(facts, request.switches, now_ms=request.now_ms, expired=False, extinctions=extinctions)


def _forbid_internal(facts: Facts, decision: Decision) -> None:
    """Leave alone what belongs to JE itself, or to a database that the log does not name."""
    users = _user_databases(facts.databases)
    for entry, db in ((facts.lns.entry, facts.lns.db), (facts.nodes.entry, facts.nodes.db)):
        others = np.zeros(len(decision.reason), dtype=bool)
        others[entry[~among(db, users)]] = True
        decision.forbid(others & (decision.reason != 0), Cause.INTERNAL_DATABASE)


def _user_databases(databases: Databases) -> frozenset[int]:
    return frozenset(
        each.id
        for each in databases.known.values()
        if each.id not in (0, NAMING_DB) and each.name and not each.name.startswith(INTERNAL_PREFIX)
    )


def _forbid_unsettled(facts: Facts, decision: Decision) -> None:
    """Leave alone an LN whose transaction ended at or behind the checkpoint's first active LSN."""
    unsettled = np.zeros(len(decision.reason), dtype=bool)
    unsettled[facts.lns.entry] = facts.outcomes.end_lsn >= facts.first_active
    decision.forbid(unsettled & (decision.reason != 0), Cause.UNSETTLED)


def _forbid_extinct_in_memory(decision: Decision) -> None:
    """A slot in memory may lead to an extinct record too: JE must know by itself that it is extinct."""
    if decision.extinct is not None:
        known = (decision.reason == Reason.EXTINCT) & ~decision.extinct.beyond
        decision.forbid(known, Cause.UNSETTLED)


def _forbid_young_nodes(
    facts: Facts, decision: Decision, settled: Checkpoint | None, request: PlanRequest
) -> None:
    """Let only those nodes go that the settled checkpoint lets go too, in files before its own first one."""
    entries = facts.entries
    files = entries.lsn >> 32
    young: Mask = IS_NODE[entries.type] & (decision.reason != 0) & (decision.cause == NO_CAUSE)
    young &= files < lsn_file(facts.first_active)
    if settled is not None and young.any():
        other = _decide(facts_at(facts, settled), request)
        old = (other.reason != 0) & (other.cause == NO_CAUSE) & (files < lsn_file(settled.first_active))
        young &= ~old
    decision.forbid(young, Cause.NODES_WAIT)


def facts_at(facts: Facts, checkpoint: Checkpoint) -> Facts:
    """Look at the same log from an older checkpoint."""
    first_active = checkpoint.first_active
    databases = find_databases(facts.log, checkpoint)
    reached = find_reached(
        facts.log, facts.entries, facts.lns, facts.nodes, databases, first_active=first_active, holes=True
    )
    return replace(facts, databases=databases, reached=reached, first_active=first_active)
