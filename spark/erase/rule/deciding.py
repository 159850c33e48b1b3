"""The safe rule: a reason, and at times a cause against it, for every entry of the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark.erase.calls.request import ExtinctionTerms, FilterMode, LogExtinction
from spark.erase.reading.databases import Databases
from spark.erase.reading.log import Ends, Entries, Lns, Log, Mask, Nodes, mark
from spark.erase.reading.nodes import find_old_nodes
from spark.erase.reading.transactions import Outcomes
from spark.erase.reasons import Cause, Reason, Switches
from spark.erase.rule.extinct import Coverage, Extinct
from spark.erase.rule.tree import Reached
from spark.erase.rule.versions import Superseded, find_superseded
from spark.formats.je.items import LN_EMBEDDED, RareLn
from spark.formats.je.log import NULL_LSN, USER_LN_TYPES, EntryType, lsn_of

Codes = NDArray[np.uint8]

USER_LN: Final = np.array([number in USER_LN_TYPES for number in range(256)])
CAUSES: Final = tuple(Cause)
NO_CAUSE: Final = 0
NO_EXTINCTIONS: Final = ExtinctionTerms()
HOUR_MS: Final = 3_600_000
LSN_MAX: Final = (1 << 63) - 1
DAY_MS: Final = 24 * HOUR_MS
# An expired record is left alone for so long, since JE itself may still be looking at it.
EXPIRY_GRACE_MS: Final = 2 * HOUR_MS

# An entry at or behind A may name these as the version that an abort returns to; JE does not fetch them then.
# One whose erasure was begun had such a reason before, and can no more be fetched than one that is finished.
NEVER_FETCHED: Final = (
    Reason.UNFINISHED_ERASURE,
    Reason.DELETED_RECORD,
    Reason.EMBEDDED,
    Reason.DUPLICATE,
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Of each entry of the log: its reason (0: none) and what speaks against it (0: nothing).

    Attributes:
        extinct: what extinctions say of it; None where nothing can be covered.
        later: the reason that an entry without one gets once a checkpoint has ended behind it (0: none).
    """

    reason: Codes
    cause: Codes
    later: Codes
    extinct: Extinct | None = None

    def part(self, begin: int, end: int) -> "Decision":
        """The decision about some entries that follow each other."""
        extinct = None if self.extinct is None else self.extinct.part(begin, end)
        return Decision(self.reason[begin:end], self.cause[begin:end], self.later[begin:end], extinct)

    def forbid(self, entries: Mask, cause: Cause) -> None:
        """Note a cause for entries that have none yet."""
        self.cause[entries & (self.cause == NO_CAUSE)] = CAUSES.index(cause) + 1


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rule is asked about.

    Attributes:
        superseded, old_nodes, listed: what only the whole log tells: superseded LNs, old nodes, and LSNs on
            JE's lists of obsolete offsets. Where they are None, the log here is the whole log.
        old_later: nodes that are old once a checkpoint has ended behind all of them.
        names: of the databases that extinctions may name; log_extinctions: those that the log itself has.
    """

    log: Log
    entries: Entries
    lns: Lns
    nodes: Nodes
    ends: Ends
    outcomes: Outcomes
    databases: Databases
    reached: Reached
    first_active: int
    superseded: Superseded | None = None
    old_nodes: Mask | None = None
    old_later: Mask | None = None
    listed: NDArray[np.int64] | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    log_extinctions: tuple[LogExtinction, ...] = ()


def decide(
    facts: Facts,
    switches: Switches,
    *,
    now_ms: int | None,
    expired: bool,
    extinctions: ExtinctionTerms = NO_EXTINCTIONS,
) -> Decision:
    """Find a reason for each entry before A, and what forbids it.

    Args:
        facts: of the log.
        switches: kinds that are off are decided all the same, and then forbidden.
        now_ms: the time by which records have expired; without it nothing has.
        expired: erase expired records that nothing reaches.
        extinctions: of the store.
    """
    count = len(facts.entries.lsn)
    nothing = np.zeros(count, dtype=np.uint8)
    decision = Decision(nothing, nothing.copy(), nothing.copy())
    before = facts.entries.lsn < facts.first_active
    half_erased = (facts.entries.type == EntryType.ERASED) & (facts.entries.all_zero == 0)
    decision.reason[before & half_erased] = Reason.UNFINISHED_ERASURE
    _decide_lns(facts, decision, before, now_ms=now_ms)
    _decide_nodes(facts, decision, before)
    reached = mark(facts.entries.lsn, facts.reached.lsns)
    # An expired record that a slot still names is no veto: it is what most of them are.
    decision.reason[reached & (decision.reason == Reason.EXPIRED)] = 0
    if switches.allows(Reason.EXTINCT):
        idle = {reason for reason in Reason if not switches.allows(reason)}
        idle |= set() if expired else {Reason.EXPIRED}
        decision = _decide_extinct(facts, decision, extinctions, before, idle)
    if decision.extinct is not None:
        # What an extinction reaches beyond the veto may go although a slot leads there.
        reached &= ~((decision.reason == Reason.EXTINCT) & decision.extinct.beyond)
    decision.forbid(reached & (decision.reason != 0), Cause.VETOED)
    _forbid_abort_versions(facts, decision)
    if not expired:
        decision.forbid(decision.reason == Reason.EXPIRED, Cause.EXPIRED_NOT_ENABLED)
    _forbid_switched_off(facts, decision, switches)
    return decision


def _decide_lns(facts: Facts, decision: Decision, before: Mask, *, now_ms: int | None) -> None:
    lns, outcomes = facts.lns, facts.outcomes
    user = USER_LN[facts.entries.type[lns.entry]]
    eligible = user & before[lns.entry]
    superseded = facts.superseded or find_superseded(
        facts.entries, lns, outcomes, user=user, first_active=facts.first_active
    )
    known = outcomes.committed | outcomes.aborted
    committed = outcomes.committed
    conditions: Sequence[tuple[Reason, Mask]] = (
        (Reason.DELETED_DATABASE, known & among(lns.db, facts.databases.dropped)),
        (Reason.ABORTED, outcomes.aborted),
        (Reason.DELETED_RECORD, committed & (lns.value_bytes < 0)),
        (Reason.SUPERSEDED, committed & superseded.rows),
        (Reason.EMBEDDED, committed & ((lns.flags & LN_EMBEDDED) != 0)),
        (Reason.DUPLICATE, committed & among(lns.db, facts.databases.dups)),
        (Reason.EXPIRED, committed & _expired(lns, now_ms)),
    )
    reason = np.zeros(len(lns.entry), dtype=np.uint8)
    later = np.zeros(len(lns.entry), dtype=np.uint8)
    for each, holds in conditions:
        reason[eligible & holds & (reason == 0)] = each
        later[user & ~eligible & holds & (later == 0)] = each
    decision.reason[lns.entry] = reason
    later[user & superseded.later & (later == 0) & (reason == 0)] = Reason.SUPERSEDED
    decision.later[lns.entry] = later
    unknown = np.zeros(len(before), dtype=bool)
    unknown[lns.entry] = eligible & ~known
    decision.forbid(unknown, Cause.OUTCOME_UNKNOWN)
    differ = np.zeros(len(before), dtype=bool)
    differ[lns.entry] = eligible & superseded.collided & (reason == 0)
    decision.forbid(differ, Cause.KEYS_DIFFER)


def _decide_extinct(
    facts: Facts, decision: Decision, terms: ExtinctionTerms, before: Mask, idle: set[Reason]
) -> Decision:
    """Find the extinct records among the LNs that no reason holds for, or only one that is idle now."""
    coverage = Coverage.of(terms, facts.log_extinctions)
    if coverage is None:
        return decision
    lns, entry = facts.lns, facts.lns.entry
    reason = decision.reason[entry]
    asked = USER_LN[facts.entries.type[entry]] & before[entry] & facts.outcomes.committed
    asked &= (lns.value_bytes >= 0) & ((reason == 0) | np.isin(reason, list(idle)))
    asked &= ~among(lns.db, facts.databases.dropped) & ~among(lns.db, facts.databases.with_comparator)
    found = coverage.judge(lns, asked, facts.databases, facts.names).of_entries(entry, len(before))
    covered: Mask = found.number != 0
    if terms.mode is FilterMode.ALWAYS_MAYBE:
        # JE asks its filter again for each of them, and never hears EXTINCT.
        decision.forbid((covered | found.waits) & (decision.reason == 0), Cause.MAYBE_EXTINCT)
        return decision
    decision.reason[covered] = Reason.EXTINCT
    return replace(decision, extinct=found)


def _decide_nodes(facts: Facts, decision: Decision, before: Mask) -> None:
    nodes = facts.nodes
    reason = np.zeros(len(nodes.entry), dtype=np.uint8)
    old = facts.old_nodes
    if old is None:
        old = find_old_nodes(facts.entries, nodes, first_active=facts.first_active)
    reason[old] = Reason.OLD_NODE
    reason[before[nodes.entry] & among(nodes.db, facts.databases.dropped)] = Reason.DELETED_DATABASE
    decision.reason[nodes.entry] = reason
    old_later = facts.old_later
    if old_later is None:
        old_later = find_old_nodes(facts.entries, nodes, first_active=LSN_MAX)
    decision.later[nodes.entry[old_later & (reason == 0)]] = Reason.OLD_NODE


def _forbid_abort_versions(facts: Facts, decision: Decision) -> None:
    """Keep what a transaction in the tail of the log would return to, unless JE would not fetch it."""
    named = mark(facts.entries.lsn, facts.reached.abort_lsns)
    decision.forbid(
        named & (decision.reason != 0) & ~np.isin(decision.reason, NEVER_FETCHED), Cause.NEEDED_FOR_ABORT
    )


def _forbid_switched_off(facts: Facts, decision: Decision, switches: Switches) -> None:
    off = [reason for reason in Reason if not switches.allows(reason)]
    if not off:
        return
    decision.later[np.isin(decision.later, off)] = 0
    forbidden = np.isin(decision.reason, off)
    if switches.known_obsolete_entries:
        # JE erases by this switch also what its own lists of obsolete offsets name.
        listed = find_listed(facts.log, facts.first_active) if facts.listed is None else facts.listed
        forbidden &= ~mark(facts.entries.lsn, listed)
        forbidden |= np.isin(decision.reason, [each for each in off if each == Reason.DELETED_DATABASE])
    decision.forbid(forbidden, Cause.SWITCHED_OFF)


def find_listed(log: Log, first_active: int) -> NDArray[np.int64]:
    """Return what the FileSummaryLNs list as obsolete, of lists that were complete before A."""
    lsns = [
        lsn_of(int.from_bytes(ln.key[:4], "big"), offset)
        for _, _, ln in log.rare(RareLn)
        if NULL_LSN < ln.anchor_lsn < first_active
        for offset in ln.obsolete_offsets
    ]
    return np.array(lsns, dtype=np.int64)


def _expired(lns: Lns, now_ms: int | None) -> Mask:
    """Find records that expired long enough ago: days are positive, hours negative."""
    if now_ms is None:
        return np.zeros(len(lns.entry), dtype=bool)
    days, hours = lns.expiration.astype(np.int64), -lns.expiration.astype(np.int64)
    expires_ms = np.where(days > 0, days * DAY_MS, hours * HOUR_MS)
    expired: Mask = (lns.expiration != 0) & (expires_ms + EXPIRY_GRACE_MS < now_ms)
    return expired


def among(values: NDArray[np.int64], ids: frozenset[int]) -> Mask:
    """Mark those numbers that are among some ids."""
    if not ids:
        return np.zeros(len(values), dtype=bool)
    wanted = np.array(sorted(ids), dtype=np.int64)
    among: Mask = wanted[np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)] == values
    return among
