"""Transactions and their records, written: which fields an LN gets from what was there before.

The rules are those of JE: an LN names the version that an abort returns to, with its value where that lies in
no LN of its own (embedded), and the size and file of the version that it makes obsolete.
"""

import copy
from typing import Any, Final, TypeAlias

from lethe_samples.je_writer.database import Database, RecordLocked, Txn
from lethe_samples.je_writer.items import AbortVersion, LnItem, TxnEndItem, write_ln, write_txn_end
from lethe_samples.je_writer.log import LogWriter
from lethe_samples.je_writer.tree import Slot
from spark.formats.je import log as je_log
from spark.formats.je.items import SLOT_KNOWN_DELETED, SLOT_PENDING_DELETED
from spark.formats.je.log import NULL_LSN, EntryType, lsn_file

LnTypes: TypeAlias = tuple[tuple[int, int, int], tuple[int, int, int]]

STEP_MS: Final = 1

# (insertion, update, deletion) within a transaction and without.
RECORD_TYPES: Final = (
    (EntryType.INS_LN_TX, EntryType.UPD_LN_TX, EntryType.DEL_LN_TX),
    (EntryType.INS_LN, EntryType.UPD_LN, EntryType.DEL_LN),
)
NAME_TYPES: Final = ((EntryType.NAME_LN_TX,) * 3, (EntryType.NAME_LN,) * 3)
RESERVED_TYPES: Final = ((EntryType.RESERVED_FILE_LN,) * 3,) * 2
EXTINCT_SCAN_TYPES: Final = ((EntryType.EXTINCT_SCAN_LN_TX,) * 3, (EntryType.EXTINCT_SCAN_LN,) * 3)
MAP_TYPES: Final = ((EntryType.MAP_LN_TX,) * 3, (EntryType.MAP_LN,) * 3)


class Records:
    """The records of all databases, their locks and transactions, and the log.

    Attributes:
        log: where the entries go.
        last_txn: the newest transaction's id.
    """

    def __init__(self, log: LogWriter) -> None:
        """Begin without databases."""
        self.log = log
        self.last_txn = 0
        self._open: dict[int, Txn] = {}
        self._locks: dict[tuple[int, bytes], Txn] = {}
        self._by_id: dict[int, Database] = {}

    def _append(self, entry_type: int, item: bytes) -> int:
        self.log.now_ms += STEP_MS
        return self.log.append(entry_type, item)

    def begin(self) -> Txn:
        """Begin a transaction."""
        self.last_txn += 1
        txn = Txn(self.last_txn)
        self._open[txn.id] = txn
        return txn

    def commit(self, txn: Txn) -> int:
        """Commit; return the LSN of the Commit, NULL_LSN where the transaction wrote nothing."""
        lsn = self._end(txn, EntryType.COMMIT)
        for follow in txn.on_commit:
            follow()
        return lsn

    def abort(self, txn: Txn) -> int:
        """Abort: the trees return to what they were, the log keeps all. Return the LSN of the Abort."""
        for (db_id, key), before in reversed(txn.before.items()):
            tree = self._by_id[db_id].tree
            slot = tree.find(key)
            assert slot is not None
            if before is None:
                slot.state, slot.lsn = SLOT_KNOWN_DELETED, NULL_LSN
            else:
                slot.become(before)
                slot.state = SLOT_KNOWN_DELETED if before.deleted else 0
            tree.touch(slot)
        lsn = self._end(txn, EntryType.ABORT)
        for follow in txn.on_abort:
            follow()
        return lsn

    def _end(self, txn: Txn, entry_type: int) -> int:
        assert txn.open, txn.id
        txn.open = False
        del self._open[txn.id]
        for lock in txn.before:
            del self._locks[lock]
        if txn.last_lsn == NULL_LSN:
            return NULL_LSN
        return self._append(entry_type, write_txn_end(TxnEndItem(txn.last_lsn, txn.id, self.log.now_ms)))

    def _change(
        self,
        database: Database,
        txn: Txn | None,
        key: bytes,
        value: bytes | None,
        types: LnTypes,
        *,
        expiration: int | None = None,
        after_value: bytes = b"",
        operation: bytes = b"",
    ) -> int:
        """Write an insertion, an update, or (without a value) a deletion, and change the tree."""
        slot = self._lock(database, txn, key)
        exists = slot is not None and not slot.deleted
        assert exists or value is not None, f"{key!r} is not there"
        if database.tree.root is None:
            database.begin(key)
        if value is None:
            assert slot is not None
            which, embedded, expiration = 2, slot.embedded, slot.expiration
        else:
            which, embedded = int(exists), database.embeds(value)
        entry_type = types[txn is None][which]
        ln = LnItem(
            db_id=database.id,
            key=key,
            value=value,
            modified_ms=0 if database.dups else self.log.now_ms,
            created_ms=None if types is not RECORD_TYPES or (database.dups and not which) else 0,
            expiration=expiration,
            embedded=embedded,
            after_value=after_value,
            operation=operation,
            **_transaction_fields(database, txn, key),
            **_prior_fields(database, txn, key, slot if exists else None),
        )
        item = write_ln(ln, entry_type)
        lsn = self._append(entry_type, item)
        if txn is not None:
            txn.wrote(lsn)
        new = _slot_after(ln, lsn, je_log.HEADER_BYTES + len(item), slot)
        database.tree.put(slot, new)
        return lsn

    def _lock(self, database: Database, txn: Txn | None, key: bytes) -> Slot | None:
        lock = (database.id, key)
        if self._locks.get(lock, txn) is not txn:
            raise RecordLocked(f"{key!r} of database {database.id}")
        slot = database.tree.find(key)
        if txn is not None and lock not in txn.before:
            assert txn.open, txn.id
            txn.before[lock] = copy.copy(slot)
            self._locks[lock] = txn
        return slot


def _transaction_fields(database: Database, txn: Txn | None, key: bytes) -> dict[str, Any]:
    """Say what an abort of the transaction would return to."""
    if txn is None:
        return {}
    fields: dict[str, Any] = {"txn_id": txn.id, "txn_previous": txn.last_lsn}
    before = txn.before[(database.id, key)]
    if before is None:
        return fields
    fields["abort_lsn"] = None if before.lsn == NULL_LSN else before.lsn
    fields["abort_known_deleted"] = before.deleted
    if not before.deleted:
        fields["abort"] = AbortVersion(
            data=before.value if before.embedded else None,
            expiration=before.expiration,
            modified_ms=before.modified_ms if before.embedded else None,
        )
    return fields


def _prior_fields(database: Database, txn: Txn | None, key: bytes, slot: Slot | None) -> dict[str, Any]:
    """Say what the LN makes obsolete, unless that was obsolete from the start."""
    if slot is None or slot.embedded or database.dups:
        return {}
    before = txn.before[(database.id, key)] if txn else None
    if before is not None and before.lsn == slot.lsn:
        return {"prior_size": slot.size}
    return {"prior_size": slot.size, "prior_file": lsn_file(slot.lsn)}


def _slot_after(ln: LnItem, lsn: int, size: int, before: Slot | None) -> Slot:
    """Make the slot that an LN leaves; that of a deletion keeps the value until it goes."""
    deleted = ln.value is None
    return Slot(
        key=ln.key,
        lsn=lsn,
        size=size,
        value=before.value if deleted and before else ln.value,
        embedded=ln.embedded,
        state=SLOT_PENDING_DELETED if deleted else 0,
        expiration=ln.expiration,
        modified_ms=ln.modified_ms,
    )
