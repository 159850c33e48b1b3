"""The index of VLSNs: from which file on replication still needs what is there."""

from dataclasses import dataclass

import numpy as np

from spark.erase.errors import LogItemMalformed
from spark.erase.native.types import Table
from spark.erase.reading.databases import Databases
from spark.erase.reading.log import Entries, Lns, Log
from spark.erase.reading.properties import VLSNS_LEFT_DEFAULT, vlsns_left
from spark.erase.reading.transactions import Outcomes
from spark.formats.je import log as je_log
from spark.formats.je.items import (
    VLSN_INDEX_NAME,
    VLSN_RANGE_KEY,
    VlsnRange,
    read_rare_ln,
    read_vlsn_range,
)
from spark.formats.je.log import FLAG_INVISIBLE, FLAG_REPLICATED, lsn_file, lsn_offset
from spark.formats.je.packed import ItemMalformed


@dataclass(frozen=True, slots=True)
class Truncation:
    """Up to where the engine would have to truncate its index so that files become erasable."""

    file: int
    last_vlsn: int
    possible: bool


@dataclass(frozen=True, slots=True)
class VlsnIndex:
    """What replication needs.

    Attributes:
        range: of the index; None where the log has VLSNs but no record of a range.
        first_file: this file and all later ones are inside the index.
        truncation: None where no file that could be erased then holds a VLSN. Where none is possible it names
            the lowest such file.
        left_min: so many VLSNs stay in the index, whatever is erased.
    """

    range: VlsnRange | None
    first_file: int
    truncation: Truncation | None
    left_min: int = VLSNS_LEFT_DEFAULT


def find_vlsn_index(
    log: Log, entries: Entries, lns: Lns, outcomes: Outcomes, databases: Databases, *, end_file: int
) -> VlsnIndex | None:
    """Find what the index covers; None where the log has no VLSN.

    Args:
        log: whose files can be read again.
        entries: all of the log.
        lns: all of the log.
        outcomes: of the LNs.
        databases: of the log.
        end_file: files from here on are not erased in any case.
    """
    replicated = (entries.vlsn > 0) & ((entries.flags & FLAG_REPLICATED) != 0)
    ranges = _ranges(log, entries, lns, outcomes, databases)
    if not ranges and not (entries.vlsn > 0).any():
        return None
    left_min = vlsns_left(log.directory)
    if not ranges:
        first_file = int(entries.lsn[entries.vlsn > 0][0] >> 32)
        return VlsnIndex(None, first_file, None, left_min)
    # A truncation that may not have been committed has not happened: the lowest first VLSN counts.
    first = min(each.first for each in ranges)
    covered = np.flatnonzero((entries.vlsn >= first) & (entries.vlsn > 0))
    if not len(covered):
        return None
    first_file = int((entries.lsn[covered] >> 32).min())
    visible = replicated & ((entries.flags & FLAG_INVISIBLE) == 0)
    in_reach = visible & (entries.lsn >> 32 >= first_file) & (entries.lsn >> 32 < end_file)
    truncation = _truncation(entries, np.flatnonzero(in_reach), ranges[-1], left_min)
    return VlsnIndex(ranges[-1], first_file, truncation, left_min)


def _truncation(entries: Entries, in_reach: Table, covered: VlsnRange, left_min: int) -> Truncation | None:
    """Say what the index would have to be truncated to: the last VLSN of the highest file where it can be.

    JE itself tries only the highest file, so that one young file holds up all older ones.
    """
    files = entries.lsn[in_reach] >> 32
    limit = min(covered.last_sync, covered.last - left_min)
    found: Truncation | None = None
    for file in np.unique(files).tolist():
        last = int(entries.vlsn[in_reach[files == file]].max())
        if found is None or last < limit:
            found = Truncation(file, last, possible=last < limit)
    return found


def _ranges(
    log: Log, entries: Entries, lns: Lns, outcomes: Outcomes, databases: Databases
) -> list[VlsnRange]:
    """Read the newest committed record of the range, and those behind it that may still become so.

    Empty where none has committed: recovery takes the others back, and nothing says what is covered then.
    """
    db = databases.named(VLSN_INDEX_NAME)
    if db is None:
        return []
    found: list[VlsnRange] = []
    for row in reversed(np.flatnonzero((lns.db == db) & ~outcomes.aborted).tolist()):
        if lns.key(row) != VLSN_RANGE_KEY or lns.value_bytes[row] < 0:
            continue
        found.append(_read_range(log, entries, int(lns.entry[row])))
        if outcomes.committed[row]:
            return found[::-1]
    return []


def _read_range(log: Log, entries: Entries, entry: int) -> VlsnRange:
    lsn = int(entries.lsn[entry])
    header = je_log.HEADER_BYTES
    if entries.flags[entry] & je_log.FLAGS_WITH_VLSN:
        header = je_log.HEADER_BYTES_WITH_VLSN
    item = log.open_file(lsn_file(lsn)).read(lsn_offset(lsn) + header, int(entries.item_bytes[entry]))
    try:
        ln = read_rare_ln(item, int(entries.type[entry]))
        return read_vlsn_range(ln.value or b"")
    except ItemMalformed as error:
        detail = f"the range of the VLSN index: {error}"
        raise LogItemMalformed(
            detail, file=je_log.file_name(lsn_file(lsn)), offset=lsn_offset(lsn)
        ) from error
