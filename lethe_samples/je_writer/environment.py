"""An environment as JE would write it: databases, transactions and checkpoints over a `LogWriter`.

One caller, no concurrency: transactions interleave as their calls do. Time goes on by a step per entry, so
the same calls make the same bytes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from lethe_samples.je_writer.database import DATABASE_PREFIXING, Database, Txn, split_two_part_key
from lethe_samples.je_writer.flush import NodeLog
from lethe_samples.je_writer.items import (
    NODE_CAPACITY,
    CheckpointEndItem,
    write_checkpoint_end,
    write_checkpoint_start,
    write_configured,
    write_db_tree,
    write_extinct_scan,
    write_map,
    write_name,
    write_operation,
    write_trace,
    write_truncated,
)
from lethe_samples.je_writer.log import FILE_BYTES_DEFAULT, LogWriter
from lethe_samples.je_writer.nodes import LEVEL_MAIN, LEVEL_MAPPING
from lethe_samples.je_writer.records import (
    EXTINCT_SCAN_TYPES,
    MAP_TYPES,
    NAME_TYPES,
    RECORD_TYPES,
    RESERVED_TYPES,
    Records,
)
from lethe_samples.je_writer.tree import Slot, Tree
from spark.formats.je.extinct_scan import ExtinctScan
from spark.formats.je.items import (
    DATABASE_DUPS,
    MAPPING_DB,
    NAMING_DB,
    RESERVED_FILES_NAME,
    SLOT_KNOWN_DELETED,
)
from spark.formats.je.log import NULL_LSN, EntryType

EXTINCT_SCANS_NAME: Final = "_jeExtinctScansDb"
INTERNAL_NAMES: Final = ("_jeUtilization", RESERVED_FILES_NAME, "_jeExpiration", EXTINCT_SCANS_NAME)
# Sorted packed: one byte for small numbers.
SCAN_KEY_OF_0: Final = 127
IMMUTABLE_MARK: Final = b"*"
# Version, and that neither VLSNs nor times of the file are known.
RESERVED_FILE: Final = b"\x80\xff\xff\x00"


class Environment(Records):
    """The databases of an environment and the log that they are written to.

    Attributes:
        databases: by name, those that exist.
        first_active_lsn: what the newest checkpoint says.
        log: where the entries go.
    """

    def __init__(
        self,
        directory: Path,
        *,
        file_bytes_max: int = FILE_BYTES_DEFAULT,
        created_ms: int,
        deltas: bool = True,
        log: LogWriter | None = None,
    ) -> None:
        """Begin an environment, with JE's own databases and a first checkpoint.

        Args:
            directory: where the files go; without a log yet.
            file_bytes_max: how large a file may become.
            created_ms: the time of the first entry.
            deltas: log BINs as deltas where few slots changed.
            log: where the entries go, if not to a plain one in the directory.
        """
        super().__init__(log or LogWriter(directory, file_bytes_max=file_bytes_max, created_ms=created_ms))
        self.databases: dict[str, Database] = {}
        self._deltas = deltas
        self._last_node = self._checkpoints = 0
        self._last_db = NAMING_DB
        self.first_active_lsn = NULL_LSN
        self._naming = self._make(NAMING_DB, "", 0, b"", NODE_CAPACITY)
        self._mapping = self._make(MAPPING_DB, "", 0, b"", NODE_CAPACITY)
        self._root_lsn = self._log_db_tree()
        for name in INTERNAL_NAMES:
            self.create(name)
        self.checkpoint("recovery")

    # Records.

    def put(
        self, txn: Txn | None, name: str, key: bytes, value: bytes, *, expiration: int | None = None
    ) -> int:
        """Insert or update a record; without a transaction it is committed at once.

        Args:
            txn: the transaction, or None.
            name: the database.
            key: the record's key.
            value: the record's value; in a database with duplicates part of its key.
            expiration: days since 1970, or negative hours.

        Returns:
            the LSN.

        Raises: RecordLocked: another open transaction has changed it.
        """
        database = self.databases[name]
        stored = b"" if database.dups else value
        raw = database.key(key, value)
        return self._change(database, txn, raw, stored, RECORD_TYPES, expiration=expiration)

    def delete(self, txn: Txn | None, name: str, key: bytes, value: bytes = b"") -> int:
        """Delete a record that exists, with duplicates that of key and value; return the LSN."""
        database = self.databases[name]
        return self._change(database, txn, database.key(key, value), None, RECORD_TYPES)

    def discard(self, txn: Txn | None, number: int, scan: ExtinctScan) -> int:
        """Note a call of discardExtinctRecords; return the LSN. Records go when their slots do (`forget`)."""
        key = bytes([SCAN_KEY_OF_0 + number])
        database = self.databases[EXTINCT_SCANS_NAME]
        return self._change(database, txn, key, write_extinct_scan(scan), EXTINCT_SCAN_TYPES)

    def forget(self, name: str, keys: Iterable[bytes]) -> None:
        """Mark slots known deleted, as JE's scan for extinct records does: nothing is logged for a record."""
        tree = self.databases[name].tree
        for key in keys:
            slot = tree.find(key)
            assert slot is not None, key
            slot.state = SLOT_KNOWN_DELETED
            tree.touch(slot)

    # Databases.

    def create(
        self,
        name: str,
        *,
        dups: bool = False,
        prefixing: bool = False,
        comparator: bytes = b"",
        node_capacity: int = NODE_CAPACITY,
    ) -> Database:
        """Make an empty database, in a transaction of its own."""
        assert name not in self.databases
        flags = DATABASE_DUPS | DATABASE_PREFIXING if dups else DATABASE_PREFIXING * prefixing
        self._last_db += 1
        database = self._make(self._last_db, name, flags, comparator, node_capacity)
        operation = write_configured("CREATE", flags, capacity=node_capacity, comparator=comparator)
        txn = self.begin()
        self._change_name(txn, name, database.id, operation)
        self._log_map(database)
        self.commit(txn)
        self.databases[name] = database
        return database

    def drop(self, txn: Txn, name: str, *, finish: bool = True) -> None:
        """Remove a database.

        Args:
            txn: the transaction that removes its name.
            name: the database.
            finish: at the commit also write the end of its MapLN, which JE does a while later.
        """
        database = self.databases.pop(name)
        self._delete_name(txn, name, database.id, write_operation("REMOVE"))
        txn.on_abort.append(lambda: self.databases.update({name: database}))
        if finish:
            txn.on_commit.append(lambda: self._remove(database))

    def rename(self, txn: Txn, old: str, new: str) -> None:
        """Give a database another name; its records stay where they are."""
        assert new not in self.databases
        database = self.databases.pop(old)
        self.databases[new] = database
        self._delete_name(txn, old, database.id, write_operation("NONE"))
        self._change_name(txn, new, database.id, write_operation("RENAME"))

        def undo() -> None:
            del self.databases[new]
            self.databases[old] = database

        def follow() -> None:
            database.name = new
            self._log_map(database)

        txn.on_abort.append(undo)
        txn.on_commit.append(follow)

    def truncate(self, txn: Txn, name: str, *, finish: bool = True) -> None:
        """Give a name a new, empty database; the old one goes."""
        old = self.databases[name]
        self._last_db += 1
        new = self._make(self._last_db, name, old.flags, old.comparator, old.tree.capacity)
        self._log_map(new)
        self._change_name(txn, name, new.id, write_truncated(old.id))
        self.databases[name] = new
        txn.on_abort.append(lambda: self.databases.update({name: old}))
        txn.on_abort.append(lambda: self._remove(new))
        if finish:
            txn.on_commit.append(lambda: self._remove(old))

    def _make(self, db_id: int, name: str, flags: int, comparator: bytes, capacity: int) -> Database:
        level = LEVEL_MAPPING if db_id == MAPPING_DB else LEVEL_MAIN
        dups = bool(flags & DATABASE_DUPS)
        tree = Tree(level, capacity, split_two_part_key if dups else None, self.next_node)
        nodes = NodeLog(
            self.log,
            db_id,
            prefix=bool(flags & DATABASE_PREFIXING),
            logged_sizes=not dups,
            deltas=self._deltas,
        )
        database = Database(db_id, name, flags, comparator, tree, nodes)
        self._by_id[db_id] = database
        tree.on_split = database.split
        return database

    def next_node(self) -> int:
        """Take the id of a new tree node."""
        self._last_node += 1
        return self._last_node

    def _change_name(self, txn: Txn | None, name: str, db_id: int, operation: bytes) -> None:
        after = write_name(db_id)
        self._change(
            self._naming, txn, name.encode(), b"", NAME_TYPES, after_value=after, operation=operation
        )

    def _delete_name(self, txn: Txn, name: str, db_id: int, operation: bytes) -> None:
        after = write_name(db_id, deleted=True)
        self._change(
            self._naming, txn, name.encode(), None, NAME_TYPES, after_value=after, operation=operation
        )

    def _log_map(self, database: Database) -> None:
        database.mapped = True
        after = write_map(database.item())
        self._change(self._mapping, None, b"%d" % database.id, b"", MAP_TYPES, after_value=after)

    def _remove(self, database: Database) -> None:
        """Write the end of a database's MapLN; from here on its entries are nobody's."""
        database.removed = True
        database.tree.root = None
        after = write_map(database.item(), deleted=True)
        self._change(self._mapping, None, b"%d" % database.id, None, MAP_TYPES, after_value=after)

    # Checkpoints and files.

    def checkpoint(self, invoker: str = "api", *, cleaned_files: bool = False) -> int:
        """Write a checkpoint; return the LSN of its end."""
        self.compress()
        self._checkpoints += 1
        start = self._append(
            EntryType.CKPT_START, write_checkpoint_start(self.log.now_ms, self._checkpoints, invoker)
        )
        active = [txn.first_lsn for txn in self._open.values() if txn.first_lsn != NULL_LSN]
        if self._naming.nodes.flush(self._naming.tree):
            self._root_lsn = self._log_db_tree()
        for database in sorted(self._by_id.values(), key=lambda each: each.id):
            if database.id <= NAMING_DB or database.removed:
                continue
            if database.nodes.flush(database.tree) or not database.mapped:
                self._log_map(database)
        if self._mapping.nodes.flush(self._mapping.tree):
            self._root_lsn = self._log_db_tree()
        end = CheckpointEndItem(
            invoker=invoker,
            ended_ms=self.log.now_ms,
            start_lsn=start,
            root_lsn=self._root_lsn,
            first_active_lsn=min([start, *active]),
            number=self._checkpoints,
            last_local_node=self._last_node,
            last_local_db=self._last_db,
            last_local_txn=self.last_txn,
            cleaned_files=cleaned_files,
        )
        self.first_active_lsn = end.first_active_lsn
        return self._append(EntryType.CKPT_END, write_checkpoint_end(end))

    def _log_db_tree(self) -> int:
        item = write_db_tree(self._mapping.item(), self._naming.item(), last_local_db=self._last_db)
        return self._append(EntryType.DB_TREE, item)

    def compress(self) -> None:
        """Take the slots of records that are gone out of their BINs, as JE's compressor does."""
        for database in self._by_id.values():
            for node in database.tree.bins():
                locked = {key for db_id, key in self._locks if db_id == database.id}
                database.tree.remove_deleted(node, locked)

    def all_databases(self) -> list[Database]:
        """Return all that have a tree, the mapping and the naming database last: the others change them."""
        alive = [database for database in self._by_id.values() if not database.removed]
        return sorted(alive, key=lambda each: each.id, reverse=True)

    def open_transactions(self) -> list[Txn]:
        """Return those that have not ended."""
        return list(self._open.values())

    def migrate(self, database: Database, slot: Slot) -> int:
        """Write a record again as it is, as the cleaner does; return the new LSN."""
        expiration = slot.expiration
        return self._change(database, None, slot.key, slot.value, RECORD_TYPES, expiration=expiration)

    def migrate_name(self, database: Database, slot: Slot) -> None:
        """Write a record of the naming or the mapping database again."""
        if database is self._naming:
            name = slot.key.decode()
            self._change_name(None, name, self.databases[name].id, write_operation("NONE"))
        else:
            self._log_map(self._by_id[int(slot.key)])

    def reserve(self, number: int) -> int:
        """Note in JE's own database that a file holds nothing any more; return the LSN."""
        key = (number ^ 1 << 63).to_bytes(8, "big")
        return self._change(self.databases[RESERVED_FILES_NAME], None, key, RESERVED_FILE, RESERVED_TYPES)

    def release(self, number: int) -> None:
        """Take the note back when the file is deleted."""
        key = (number ^ 1 << 63).to_bytes(8, "big")
        database = self.databases[RESERVED_FILES_NAME]
        slot = database.tree.find(key)
        if slot is not None and not slot.deleted:
            self._change(database, None, key, None, RESERVED_TYPES)

    def evict(self, name: str, number: int) -> bool:
        """Log one of the changed BINs of a database, chosen by number; return whether there is one."""
        database = self.databases[name]
        changed = [node for node in database.tree.bins() if node.dirty and node.slots]
        if changed:
            database.nodes.evict(database.tree, changed[number % len(changed)])
        return bool(changed)

    def trace(self, message: str) -> int:
        """Write a Trace; return its LSN."""
        return self._append(EntryType.TRACE, write_trace(self.log.now_ms, message))

    def mark_immutable(self) -> int:
        """Write the mark that a backup puts at a file's end, and begin the next; return its LSN."""
        lsn = self._append(EntryType.IMMUTABLE_FILE, IMMUTABLE_MARK)
        self.log.flip()
        return lsn

    def close(self) -> None:
        """Write a last checkpoint and the last file. Transactions must have ended."""
        assert not self._open
        self.checkpoint("close")
        self.log.close()

    def crash(self, *, torn: bytes = b"") -> None:
        """Stop where the log stands, without a checkpoint: open transactions never end."""
        self.log.close(torn=torn)
