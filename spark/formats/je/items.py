"""Items of log version 26: the flags of LNs and nodes, and those rare entries that are read one by one.

Every reader uses up its item exactly, or raises ItemMalformed.
"""

import struct
from dataclasses import dataclass
from typing import Final

from spark.formats.je.extinct_scan import ExtinctScan, read_extinct_scan
from spark.formats.je.log import HAS_CREATION_TIME_TYPES, NULL_LSN, TRANSACTIONAL_TYPES, EntryType
from spark.formats.je.packed import ItemMalformed, ItemReader

# LN, first flags byte.
LN_ABORT_KNOWN_DELETED: Final = 0x01
LN_EMBEDDED: Final = 0x02
LN_ABORT_KEY: Final = 0x04
LN_ABORT_DATA: Final = 0x08
LN_ABORT_VLSN: Final = 0x10
LN_ABORT_LSN: Final = 0x20
LN_ABORT_EXPIRATION: Final = 0x40
LN_EXPIRATION: Final = 0x80
# LN, second flags byte.
LN_PRIOR_SIZE: Final = 0x01
LN_PRIOR_FILE: Final = 0x02
LN_TOMBSTONE: Final = 0x04
LN_ABORT_TOMBSTONE: Final = 0x08
LN_ABORT_MODIFICATION_TIME: Final = 0x10
LN_BLIND_DELETION: Final = 0x20
LN_BEFORE_IMAGE: Final = 0x40
LN_ABORT_CREATION_TIME: Final = 0x80
# LN, third flags byte.
LN_INSERT_CREATION_TIME: Final = 0x01

# The file of an LSN that was never written: an abort LSN with it means "none".
TRANSIENT_FILE: Final = 0xFFFFFFFF

NODE_ROOT: Final = 0x01
NODE_KEY_PREFIX: Final = 0x02
NODE_LOGGED_SIZES: Final = 0x04
NODE_BLOOM_FILTER: Final = 0x08
NODE_VLSN_CACHE: Final = 0x10
NODE_EXPIRATION_IN_HOURS: Final = 0x20
# The level of a node in its low bits: 1 is a BIN.
NODE_LEVEL_MASK: Final = 0xFFFF

SLOT_KNOWN_DELETED: Final = 0x01
SLOT_DIRTY: Final = 0x02
SLOT_PENDING_DELETED: Final = 0x08
SLOT_EMBEDDED: Final = 0x10
SLOT_NO_DATA: Final = 0x20

MAPPING_DB: Final = 0
NAMING_DB: Final = 1

DATABASE_DUPS: Final = 0x01
# No longer written; databases with it were deferred-write.
DATABASE_TEMPORARY: Final = 0x02

VLSN_INDEX_NAME: Final = "_jeVlsnMapDb"
VLSN_RANGE_KEY: Final = bytes.fromhex("7fffffffffffffff")
RESERVED_FILES_NAME: Final = "_jeReservedFilesDb"

CHECKPOINT_ROOT: Final = 0x01
CHECKPOINT_CLEANED_FILES: Final = 0x02

OPERATIONS: Final = ("NONE", "CREATE", "REMOVE", "TRUNCATE", "RENAME", "UPDATE_CONFIG")


@dataclass(frozen=True, slots=True)
class Database:
    """What a MapLN or a DbTree says of a database."""

    id: int
    name: str
    root_lsn: int
    flags: int
    has_comparator: bool

    @property
    def dups(self) -> bool:
        """Whether a record's data is part of its key, in the order of bytes."""
        return bool(self.flags & DATABASE_DUPS)


@dataclass(frozen=True, slots=True)
class RareLn:
    """An LN of an internal kind: the columns that all LNs share, and what follows the value."""

    db_id: int
    txn_id: int
    txn_previous: int
    abort_lsn: int
    expiration: int
    flags: int
    abort_data_bytes: int
    key: bytes
    value: bytes | None
    database: Database | None
    deleted: bool
    named_id: int | None
    obsolete_offsets: tuple[int, ...]
    anchor_lsn: int
    extinct_scan: ExtinctScan | None = None


@dataclass(frozen=True, slots=True)
class CheckpointEnd:
    """The end of a checkpoint, from which recovery would start."""

    invoker: str
    ended_ms: int
    start_lsn: int
    root_lsn: int
    first_active_lsn: int
    id: int


@dataclass(frozen=True, slots=True)
class DbTree:
    """The two databases that are found without a name."""

    mapping: Database
    naming: Database


@dataclass(frozen=True, slots=True)
class VlsnRange:
    """What the index of VLSNs covers."""

    first: int
    last: int
    last_sync: int
    last_txn_end: int


@dataclass(frozen=True, slots=True)
class Rollback:
    """A rollback's start or end. An end names its start in `start_lsn`, which is NULL in a start."""

    matchpoint_lsn: int
    start_lsn: int


def read_rare_ln(item: bytes, entry_type: int) -> RareLn:
    """Read a MapLN, NameLN, FileSummaryLN or ExtinctScanLN, or one other LN whose value is asked for."""
    reader = ItemReader(item)
    flags, flags2, flags3 = reader.byte(), reader.byte(), reader.byte()
    db_id = reader.packed_long()
    expiration = reader.packed_int() if flags & LN_EXPIRATION else 0
    reader.packed_long()
    if entry_type in HAS_CREATION_TIME_TYPES or flags3 & LN_INSERT_CREATION_TIME:
        reader.packed_long()
    key = reader.byte_array()
    if key is None:
        raise ItemMalformed("an LN without a key")
    value = reader.byte_array()
    database, deleted, named_id = None, value is None, None
    offsets: tuple[int, ...] = ()
    anchor = NULL_LSN
    if entry_type in (EntryType.MAP_LN, EntryType.MAP_LN_TX):
        database = _read_database(reader)
        deleted = bool(reader.byte() & 1) or deleted
    elif entry_type in (EntryType.NAME_LN, EntryType.NAME_LN_TX):
        named_id = reader.packed_long()
        deleted = bool(reader.byte() & 1) or deleted
    elif entry_type == EntryType.FILE_SUMMARY_LN:
        anchor = reader.packed_long()
        offsets = () if deleted else _read_file_summary(reader)
    txn_id, txn_previous, abort_lsn = _read_transaction(reader, entry_type, flags)
    abort_data_bytes = _read_version_before(reader, flags, flags2)
    if entry_type in (EntryType.NAME_LN, EntryType.NAME_LN_TX):
        _read_name_operation(reader)
    if entry_type in (EntryType.UPD_LN_TX_WITH_BEFORE_IMAGE, EntryType.DEL_LN_TX_WITH_BEFORE_IMAGE):
        reader.packed_int()
    reader.finish()
    return RareLn(
        db_id=db_id,
        txn_id=txn_id,
        txn_previous=txn_previous,
        abort_lsn=abort_lsn,
        expiration=expiration,
        flags=flags | flags2 << 8 | flags3 << 16,
        abort_data_bytes=abort_data_bytes,
        key=key,
        value=value,
        database=database,
        deleted=deleted,
        named_id=named_id,
        obsolete_offsets=offsets,
        anchor_lsn=anchor,
        extinct_scan=_read_extinct_scan(value, entry_type),
    )


def _read_extinct_scan(value: bytes | None, entry_type: int) -> ExtinctScan | None:
    if value is None or entry_type not in (EntryType.EXTINCT_SCAN_LN, EntryType.EXTINCT_SCAN_LN_TX):
        return None
    return read_extinct_scan(value)


def _read_transaction(reader: ItemReader, entry_type: int, flags: int) -> tuple[int, int, int]:
    if entry_type not in TRANSACTIONAL_TYPES:
        return 0, NULL_LSN, NULL_LSN
    abort_lsn = reader.packed_long() if flags & LN_ABORT_LSN else NULL_LSN
    if abort_lsn >> 32 & 0xFFFFFFFF == TRANSIENT_FILE:
        abort_lsn = NULL_LSN
    return reader.packed_long(), reader.packed_long(), abort_lsn


def _read_version_before(reader: ItemReader, flags: int, flags2: int) -> int:
    abort_data_bytes = -1
    if flags & LN_ABORT_KEY:
        reader.byte_array()
    if flags & LN_ABORT_DATA:
        data = reader.byte_array()
        abort_data_bytes = -1 if data is None else len(data)
    if flags & LN_ABORT_VLSN:
        reader.packed_long()
    if flags & LN_ABORT_EXPIRATION:
        reader.packed_int()
    if flags2 & LN_ABORT_MODIFICATION_TIME:
        reader.packed_long()
    if flags2 & LN_ABORT_CREATION_TIME:
        reader.packed_long()
    if flags2 & LN_PRIOR_SIZE:
        reader.packed_int()
    if flags2 & LN_PRIOR_FILE:
        reader.packed_long()
    return abort_data_bytes


def _read_database(reader: ItemReader) -> Database:
    db_id = reader.packed_long()
    name = {MAPPING_DB: "_jeIdMap", NAMING_DB: "_jeNameMap"}.get(db_id)
    if name is None:
        name = reader.text()
    root_lsn = NULL_LSN
    if reader.byte() & 1:
        reader.byte_array()
        root_lsn = reader.packed_long()
        reader.byte()
    flags = reader.byte()
    comparators = [reader.byte_array(), reader.byte_array()]
    reader.packed_int()
    reader.byte()
    _read_triggers(reader)
    return Database(db_id, name, root_lsn, flags, any(comparators))


def _read_triggers(reader: ItemReader) -> None:
    for _ in range(reader.packed_int()):
        reader.byte_array()


def _read_name_operation(reader: ItemReader) -> None:
    number = reader.byte()
    operation = OPERATIONS[number] if number < len(OPERATIONS) else "NONE"
    if operation in ("CREATE", "UPDATE_CONFIG"):
        reader.byte()
        reader.packed_int()
        reader.byte_array()
        reader.byte_array()
        _read_triggers(reader)
    elif operation == "TRUNCATE":
        reader.packed_long()


def _read_file_summary(reader: ItemReader) -> tuple[int, ...]:
    """Read a file's counters and the offsets known to be obsolete: differences in groups of 15 bits."""
    reader.take(11 * 4)
    wanted = reader.packed_int()
    shorts = reader.packed_int()
    offsets: list[int] = []
    offset = shift = 0
    for part in struct.unpack(f"<{max(shorts, 0)}h", reader.take(2 * max(shorts, 0))):
        more = part < 0
        offset += (-1 - part if more else part) << shift
        shift = shift + 15 if more else 0
        if not more:
            offsets.append(offset)
    if len(offsets) != wanted or shift:
        raise ItemMalformed(f"{len(offsets)} obsolete offsets where {wanted} are announced")
    return tuple(offsets)


def read_checkpoint_end(item: bytes) -> CheckpointEnd:
    """Read a CkptEnd."""
    reader = ItemReader(item)
    invoker = reader.text()
    ended_ms = reader.packed_long()
    start_lsn = reader.packed_long()
    root_lsn = reader.packed_long() if reader.byte() & CHECKPOINT_ROOT else NULL_LSN
    first_active_lsn = reader.packed_long()
    for _ in range(8):
        reader.packed_long()
    checkpoint_id = reader.packed_long()
    for _ in range(reader.packed_long()):
        reader.packed_long()
    reader.finish()
    return CheckpointEnd(invoker, ended_ms, start_lsn, root_lsn, first_active_lsn, checkpoint_id)


def read_db_tree(item: bytes) -> DbTree:
    """Read a DbTree."""
    reader = ItemReader(item)
    reader.fixed_long()
    reader.fixed_long()
    mapping, naming = _read_database(reader), _read_database(reader)
    reader.byte()
    reader.packed_int()
    reader.finish()
    return DbTree(mapping, naming)


def read_rollback(item: bytes, entry_type: int) -> Rollback:
    """Read a RollbackStart or a RollbackEnd."""
    reader = ItemReader(item)
    if entry_type == EntryType.ROLLBACK_START:
        reader.packed_long()
        rollback = Rollback(reader.packed_long(), NULL_LSN)
        reader.packed_long()
        for _ in range(reader.packed_int()):
            reader.packed_long()
    else:
        rollback = Rollback(reader.packed_long(), reader.packed_long())
        reader.packed_long()
    reader.finish()
    return rollback


def read_vlsn_range(value: bytes) -> VlsnRange:
    """Read the value of the range record of the VLSN index."""
    reader = ItemReader(value)
    reader.packed_int()
    found = VlsnRange(reader.packed_long(), reader.packed_long(), reader.packed_long(), reader.packed_long())
    reader.finish()
    return found


def check_plain(item: bytes, entry_type: int) -> None:
    """Read an entry whose content nothing asks for, only to see that it is whole."""
    reader = ItemReader(item)
    if entry_type == EntryType.CKPT_START:
        reader.packed_long()
        reader.packed_long()
        reader.text()
    elif entry_type == EntryType.TRACE:
        reader.packed_long()
        reader.text()
    elif entry_type == EntryType.MATCHPOINT:
        reader.packed_long()
        reader.packed_int()
    elif entry_type == EntryType.IMMUTABLE_FILE:
        reader.byte()
    else:
        assert entry_type == EntryType.RESTORE_REQUIRED, entry_type
        reader.text()
        reader.packed_long()
        reader.text()
    reader.finish()
