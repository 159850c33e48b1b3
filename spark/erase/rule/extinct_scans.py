"""Extinctions that JE itself has noted in its log: ExtinctScanLNs that are committed.

Rules:
1. One counts only if it and its commit lie before the checkpoint's first active LSN and are visible.
2. One with a filter of JE's, a Java object, is named and covers nothing.
Source: facts je-safe-rule, EXTINCT; eraser-behaviour, 11.
"""

import base64
import hashlib
from collections.abc import Mapping, Set

from spark.erase.calls.request import LogExtinction
from spark.erase.reading.log import Log, numbers
from spark.erase.reading.naming import Ended
from spark.erase.rule.extinct import LOG_ID_PREFIX
from spark.formats.extinction import LABEL_MAX_CHARS, Extinction, ExtinctionInvalid
from spark.formats.je.extinct_scan import ExtinctScan
from spark.formats.je.items import RareLn
from spark.formats.je.log import FLAG_INVISIBLE, FLAG_REPLICATED, NULL_LSN, lsn_of


def find_log_extinctions(
    log: Log, names: Mapping[int, str], ended: Ended, *, first_active: int, secondary: Set[int]
) -> tuple[LogExtinction, ...]:
    """Find those that count, in the order of their ids.

    Args:
        secondary: ids of the databases with duplicates.

    One that names none of the databases that there are, or has bounds that no extinction may have, is left
    out.
    """
    found: dict[str, LogExtinction] = {}
    for file in log.files:
        offsets, flags = numbers(file.entries, "offset"), numbers(file.entries, "flags")
        for row, ln in file.rare:
            if not isinstance(ln, RareLn) or ln.extinct_scan is None or flags[row] & FLAG_INVISIBLE:
                continue
            lsn = lsn_of(file.number, int(offsets[row]))
            if not lsn <= _commit_lsn(ln, lsn, ended) < first_active:
                continue
            extinction = _extinction(ln, ln.extinct_scan, names)
            if extinction is not None:
                has_filter = ln.extinct_scan.filter is not None
                dups = sorted(
                    {names[db] for db in ln.extinct_scan.databases if db in names.keys() & secondary}
                )
                found[extinction.id] = LogExtinction(lsn, extinction.to_json(), has_filter, tuple(dups))
    return tuple(found[each] for each in sorted(found))


def has_undecided(log: Log, ended: Ended, *, first_active: int) -> bool:
    """Whether the log has a discard that may still become one, or be undone.

    That is one whose transaction has not ended, and a replicated one that a rollback may yet reach.
    """
    for file in log.files:
        offsets, flags = numbers(file.entries, "offset"), numbers(file.entries, "flags")
        for row, ln in file.rare:
            if not isinstance(ln, RareLn) or ln.extinct_scan is None or flags[row] & FLAG_INVISIBLE:
                continue
            if ln.txn_id in ended.aborted:
                continue
            lsn = lsn_of(file.number, int(offsets[row]))
            committed = _commit_lsn(ln, lsn, ended)
            if committed == NULL_LSN or (flags[row] & FLAG_REPLICATED and committed >= first_active):
                return True
    return False


def _commit_lsn(ln: RareLn, lsn: int, ended: Ended) -> int:
    """Where it was committed, NULL_LSN where it was not; without a transaction it is by itself."""
    if not ln.txn_id:
        return lsn
    return NULL_LSN if ln.txn_id in ended.aborted else ended.committed.get(ln.txn_id, NULL_LSN)


def _extinction(ln: RareLn, scan: ExtinctScan, names: Mapping[int, str]) -> Extinction | None:
    databases = frozenset(names[db].encode() for db in scan.databases if db in names)
    said = repr((ln.key, scan.databases, scan.begin_key, scan.end_key, scan.filter, scan.label))
    digest = base64.b32hexencode(hashlib.sha256(said.encode()).digest()[:10]).decode().lower()
    try:
        return Extinction(
            LOG_ID_PREFIX + digest,
            databases,
            start_key=scan.begin_key,
            end_key=scan.end_key,
            label=scan.label[:LABEL_MAX_CHARS],
        )
    except ExtinctionInvalid:
        return None
