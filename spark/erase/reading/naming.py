"""Names of the databases of the application, as NameLNs give them, and how transactions of rare LNs ended."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark.erase.native.types import Table
from spark.erase.reading.log import Log, Mask, all_ends, all_entries
from spark.formats.je.items import RareLn
from spark.formats.je.log import FLAG_INVISIBLE, EntryType

INTERNAL_PREFIX: Final = "_je"


@dataclass(frozen=True, slots=True)
class Ended:
    """How some transactions ended: id -> LSN of the last visible commit, of the last visible abort."""

    committed: Mapping[int, int]
    aborted: Mapping[int, int]


def rare_txns(log: Log) -> frozenset[int]:
    """The transactions whose end decides whether a name, or a scan for extinct records, counts."""
    return frozenset(
        ln.txn_id
        for _, _, ln in log.rare(RareLn)
        if ln.txn_id and (ln.named_id is not None or ln.extinct_scan is not None)
    )


def find_ended(ends: Iterable[tuple[Table, Table, Table]], wanted: frozenset[int]) -> Ended:
    """Find how the wanted transactions ended.

    Args:
        ends: visible ones by file: transactions, LSNs, types of entries.
    """
    numbers = np.array(sorted(wanted), dtype=np.int64)
    committed: dict[int, int] = {}
    aborted: dict[int, int] = {}
    for txns, lsns, types in ends if wanted else ():
        chosen: Mask = np.isin(txns, numbers)
        rows = zip(txns[chosen].tolist(), lsns[chosen].tolist(), types[chosen].tolist(), strict=True)
        for txn, lsn, kind in rows:
            found = committed if kind == EntryType.COMMIT else aborted
            found[txn] = max(lsn, found.get(txn, lsn))
    return Ended(committed, aborted)


def ended_in(log: Log) -> Ended:
    """How the transactions of rare LNs ended, where the log here is the whole log."""
    entries, ends = all_entries(log), all_ends(log)
    visible = (entries.flags[ends.entry] & FLAG_INVISIBLE) == 0
    entry = ends.entry[visible]
    return find_ended([(ends.txn[visible], entries.lsn[entry], entries.type[entry])], rare_txns(log))


def name_databases(log: Log, ended: Ended) -> dict[int, str]:
    """Names of the databases of the application, by id, as the newest NameLN of each name says.

    A NameLN of a transaction that was aborted says nothing.
    """
    return _names(log, lambda _, txn: txn not in ended.aborted)


def _names(log: Log, counts: Callable[[int, int], bool]) -> dict[int, str]:
    ids: dict[str, int] = {}
    for lsn, _, ln in log.rare(RareLn):
        if ln.named_id is None or not counts(lsn, ln.txn_id):
            continue
        name = ln.key.decode(errors="replace")
        if not ln.deleted:
            ids[name] = ln.named_id
        elif ids.get(name) == ln.named_id:
            del ids[name]
    return {db: name for name, db in ids.items() if not name.startswith(INTERNAL_PREFIX)}


def settled_names(log: Log, ended: Ended, *, first_active: int) -> dict[int, str]:
    """The names on which a decision may rely: those that a recovery from the checkpoint would find too."""

    def counts(lsn: int, txn: int) -> bool:
        committed = ended.committed.get(txn) if txn else lsn
        return committed is not None and lsn <= committed < first_active

    newest = name_databases(log, ended)
    settled = _names(log, counts)
    return {db: name for db, name in newest.items() if settled.get(db) == name}
