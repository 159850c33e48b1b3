"""What became of the transaction of each LN."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from spark.erase.native.types import Table
from spark.erase.reading.log import Ends, Entries, Lns, Mask
from spark.formats.je.log import FLAG_INVISIBLE, NULL_LSN, TRANSACTIONAL_TYPES, EntryType

TRANSACTIONAL: Final = np.array([number in TRANSACTIONAL_TYPES for number in range(256)])


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Of each LN: whether and where it is committed, whether it is aborted. Neither: it stays.

    `end_lsn` is where its transaction ended, in whatever way: at the LN itself where it has none.
    """

    committed: Mask
    commit_lsn: Table
    aborted: Mask
    end_lsn: Table


def find_outcomes(entries: Entries, lns: Lns, ends: Ends) -> Outcomes:
    """Join LNs with the ends of their transactions.

    A commit or an abort that became invisible in a rollback does not count. An LN behind the end of its own
    transaction, or a transaction with both ends, is not understood: its outcome is unknown.
    """
    lsn = entries.lsn[lns.entry]
    invisible = (entries.flags[lns.entry] & FLAG_INVISIBLE) != 0
    transactional = TRANSACTIONAL[entries.type[lns.entry]]
    commit = _end_of(entries, ends, EntryType.COMMIT, lns.txn)
    abort = _end_of(entries, ends, EntryType.ABORT, lns.txn)
    one_end = (commit == NULL_LSN) | (abort == NULL_LSN)
    by_transaction = transactional & one_end & (commit > lsn)
    committed = (by_transaction | ~transactional) & ~invisible
    aborted = (transactional & one_end & (abort > lsn)) | invisible
    end_lsn = np.where(transactional, np.maximum(commit, abort), lsn)
    return Outcomes(committed, np.where(transactional, commit, lsn), aborted, end_lsn)


def _end_of(entries: Entries, ends: Ends, kind: EntryType, txns: Table) -> Table:
    """Find the last visible end of a kind for each transaction id; NULL_LSN where there is none."""
    visible = (entries.flags[ends.entry] & FLAG_INVISIBLE) == 0
    chosen = (entries.type[ends.entry] == kind) & visible
    txn, lsn = ends.txn[chosen], entries.lsn[ends.entry[chosen]]
    if not len(txn):
        return np.full(len(txns), NULL_LSN, dtype=np.int64)
    order = np.argsort(txn, kind="stable")
    txn, lsn = txn[order], lsn[order]
    at = np.searchsorted(txn, txns, side="right") - 1
    found = (at >= 0) & (txn[at] == txns)
    return np.where(found, lsn[at], NULL_LSN)
