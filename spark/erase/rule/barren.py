"""Files that JE has put aside and that hold nothing any more: they may be deleted whole."""

from typing import Final

import numpy as np

from spark.erase.reading.log import Entries, Lns, Log, Mask, mark
from spark.erase.reasons import Cause
from spark.erase.rule.deciding import CAUSES, Decision, Facts
from spark.erase.rule.vlsn import VlsnIndex
from spark.formats.je.items import RareLn
from spark.formats.je.log import NODE_TYPES, USER_LN_TYPES, EntryType

DECIDABLE: Final = np.array([number in USER_LN_TYPES | NODE_TYPES for number in range(256)])
# Database and key -> LSN, and whether it is a deletion.
Newest = dict[tuple[int, bytes], tuple[int, bool]]
# LNs that no reason is ever asked for, and that are no RareLn: only the newest of a key means anything.
OTHER_LNS: Final = (EntryType.RESERVED_FILE_LN,)


def find_barren(
    facts: Facts,
    decision: Decision,
    reserved: frozenset[int],
    *,
    vlsn_index: VlsnIndex | None,
    newest: frozenset[int] | None = None,
) -> frozenset[int]:
    """Find the reserved files in which nothing is live, vetoed or unknown.

    Nor may anything in them be the newest of its key in a database of JE's own, nor may replication or
    recovery need them.

    Args:
        newest: the files that hold such a newest one; None where the log here is the whole log.
    """
    end_file = facts.first_active >> 32
    if vlsn_index is not None:
        end_file = min(end_file, vlsn_index.first_file)
    wanted = {number for number in reserved if number < end_file}
    if not wanted:
        return frozenset()
    entries = facts.entries
    harmless = (decision.cause == 0) | (decision.cause == CAUSES.index(Cause.SWITCHED_OFF) + 1)
    needed = DECIDABLE[entries.type] & ~((decision.reason != 0) & harmless)
    needed |= mark(entries.lsn, facts.reached.lsns) | mark(entries.lsn, facts.reached.abort_lsns)
    wanted -= set(np.unique(entries.lsn[needed] >> 32).tolist())
    if newest is None:
        newest = files_of_newest(newest_others(facts.log, facts.entries, facts.lns))
    return frozenset(wanted - newest)


def newest_others(log: Log, entries: Entries, lns: Lns) -> Newest:
    """Find the newest of each key among the LNs that no reason is asked for, and whether it is a deletion."""
    newest: Newest = {}
    for lsn, _, ln in log.rare(RareLn):
        newest[ln.db_id, ln.key] = (lsn, ln.deleted)
    chosen: Mask = np.isin(entries.type[lns.entry], OTHER_LNS)
    for row in np.flatnonzero(chosen).tolist():
        lsn = int(entries.lsn[lns.entry[row]])
        newest[int(lns.db[row]), lns.key(row)] = (lsn, bool(lns.value_bytes[row] < 0))
    return newest


def files_of_newest(newest: Newest) -> frozenset[int]:
    """Return the files that hold something that is newest, and no deletion."""
    return frozenset(lsn >> 32 for lsn, deleted in newest.values() if not deleted)
