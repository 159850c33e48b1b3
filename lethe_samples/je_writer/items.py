"""Items of log version 26, written: LNs, tree nodes, and the entries of transactions and checkpoints.

The classes hold what an entry says, field by field; `write_…` gives the item's bytes. What the fields mean is
in `je_log_items`.
"""

from dataclasses import dataclass
from typing import Final

from lethe_samples.je_writer.packed import byte_array, fixed_long, pack, text, triggers
from spark.formats.je import items
from spark.formats.je.extinct_scan import OF_RECORDS, RECORD_VERSION, ExtinctScan
from spark.formats.je.log import HAS_CREATION_TIME_TYPES, NULL_LSN, TRANSACTIONAL_TYPES, VERSION, EntryType

NODE_CAPACITY: Final = 128
NO_EXPIRATION_BASE: Final = -1
# The last ids that a log without replication carries along.
LAST_REPLICATED_NODE: Final = -9
LAST_REPLICATED_DB: Final = -256
LAST_REPLICATED_TXN: Final = -10

BEFORE_IMAGE_TYPES: Final = frozenset(
    {EntryType.UPD_LN_TX_WITH_BEFORE_IMAGE, EntryType.DEL_LN_TX_WITH_BEFORE_IMAGE}
)


@dataclass(frozen=True, slots=True)
class AbortVersion:
    """The version that an abort returns to, as far as it lies in the newer LN itself.

    Attributes:
        data: its value, where that was embedded.
        key: its key, where the comparator lets keys differ that are equal.
    """

    data: bytes | None = None
    key: bytes | None = None
    vlsn: int | None = None
    expiration: int | None = None
    modified_ms: int | None = None
    created_ms: int | None = None
    tombstone: bool = False


@dataclass(frozen=True, slots=True)
class LnItem:
    """One LN.

    Attributes:
        created_ms: of an insertion None where the flags do not say it; other types of records always have it.
        after_value: what internal kinds append to the value.
        operation: what ends a NameLN.
        before_image_expiration: of types 44 and 45 alone.
    """

    db_id: int
    key: bytes
    value: bytes | None
    modified_ms: int
    created_ms: int | None = None
    expiration: int | None = None
    embedded: bool = False
    tombstone: bool = False
    blind_deletion: bool = False
    before_image: bool = False
    after_value: bytes = b""
    txn_id: int = 0
    txn_previous: int = NULL_LSN
    abort_lsn: int | None = None
    abort_known_deleted: bool = False
    abort: AbortVersion = AbortVersion()
    prior_size: int | None = None
    prior_file: int | None = None
    operation: bytes = b""
    before_image_expiration: int = 0


def write_ln(ln: LnItem, entry_type: int) -> bytes:
    """Write the item of an LN of any kind."""
    flags3 = items.LN_INSERT_CREATION_TIME * (
        ln.created_ms is not None and entry_type not in HAS_CREATION_TIME_TYPES
    )
    parts = [bytes((_first_flags(ln), _second_flags(ln), flags3)), pack(ln.db_id)]
    if ln.expiration is not None:
        parts.append(pack(ln.expiration))
    parts.append(pack(ln.modified_ms))
    if ln.created_ms is not None:
        parts.append(pack(ln.created_ms))
    else:
        assert entry_type not in HAS_CREATION_TIME_TYPES, entry_type
    parts += (byte_array(ln.key), byte_array(ln.value), ln.after_value)
    if entry_type in TRANSACTIONAL_TYPES:
        if ln.abort_lsn is not None:
            parts.append(pack(ln.abort_lsn))
        parts += (pack(ln.txn_id), pack(ln.txn_previous))
    parts.append(_version_before(ln))
    if entry_type in BEFORE_IMAGE_TYPES:
        parts.append(pack(ln.before_image_expiration))
    parts.append(ln.operation)
    return b"".join(parts)


def _first_flags(ln: LnItem) -> int:
    return (
        items.LN_ABORT_KNOWN_DELETED * ln.abort_known_deleted
        | items.LN_EMBEDDED * ln.embedded
        | items.LN_ABORT_KEY * (ln.abort.key is not None)
        | items.LN_ABORT_DATA * (ln.abort.data is not None)
        | items.LN_ABORT_VLSN * (ln.abort.vlsn is not None)
        | items.LN_ABORT_LSN * (ln.abort_lsn is not None)
        | items.LN_ABORT_EXPIRATION * (ln.abort.expiration is not None)
        | items.LN_EXPIRATION * (ln.expiration is not None)
    )


def _second_flags(ln: LnItem) -> int:
    return (
        items.LN_PRIOR_SIZE * (ln.prior_size is not None)
        | items.LN_PRIOR_FILE * (ln.prior_file is not None)
        | items.LN_TOMBSTONE * ln.tombstone
        | items.LN_ABORT_TOMBSTONE * ln.abort.tombstone
        | items.LN_ABORT_MODIFICATION_TIME * (ln.abort.modified_ms is not None)
        | items.LN_BLIND_DELETION * ln.blind_deletion
        | items.LN_BEFORE_IMAGE * ln.before_image
        | items.LN_ABORT_CREATION_TIME * (ln.abort.created_ms is not None)
    )


def _version_before(ln: LnItem) -> bytes:
    raw = b""
    if ln.abort.key is not None:
        raw += byte_array(ln.abort.key)
    if ln.abort.data is not None:
        raw += byte_array(ln.abort.data)
    abort = ln.abort
    for value in (abort.vlsn, abort.expiration, abort.modified_ms, abort.created_ms):
        if value is not None:
            raw += pack(value)
    for value in (ln.prior_size, ln.prior_file):
        if value is not None:
            raw += pack(value)
    return raw


@dataclass(frozen=True, slots=True)
class DatabaseItem:
    """What a MapLN or a DbTree says of a database."""

    id: int
    name: str
    root_lsn: int | None
    flags: int
    root_key: bytes | None = b""
    root_state: int = 0
    btree_comparator: bytes | None = b""
    dup_comparator: bytes | None = b""
    capacity: int = NODE_CAPACITY
    created_at_version: int = VERSION
    triggers: tuple[bytes, ...] = ()


def write_database(database: DatabaseItem) -> bytes:
    """Write a database, as MapLNs and DbTrees hold it."""
    raw = pack(database.id)
    if database.id not in (items.MAPPING_DB, items.NAMING_DB):
        raw += text(database.name)
    if database.root_lsn is None:
        raw += b"\x00"
    else:
        raw += b"\x01" + byte_array(database.root_key) + pack(database.root_lsn)
        raw += bytes((database.root_state,))
    raw += bytes((database.flags,)) + byte_array(database.btree_comparator)
    raw += byte_array(database.dup_comparator) + pack(database.capacity)
    return raw + bytes((database.created_at_version,)) + triggers(database.triggers)


def write_db_tree(
    mapping: DatabaseItem,
    naming: DatabaseItem,
    *,
    last_local_db: int,
    last_replicated_db: int = LAST_REPLICATED_DB,
    flags: int = 0,
    initial_version: int = VERSION,
) -> bytes:
    """Write a DbTree."""
    ids = fixed_long(last_local_db) + fixed_long(last_replicated_db)
    return ids + write_database(mapping) + write_database(naming) + bytes((flags,)) + pack(initial_version)


@dataclass(frozen=True, slots=True)
class TxnEndItem:
    """A Commit or an Abort."""

    last_lsn: int
    txn_id: int
    ended_ms: int
    node_id: int = -1
    durable_vlsn: int = 0
    term: int = 0


def write_txn_end(end: TxnEndItem) -> bytes:
    """Write a Commit or an Abort."""
    fields = (end.last_lsn, end.txn_id, end.ended_ms, end.node_id, end.durable_vlsn, end.term)
    return b"".join(pack(field) for field in fields)


def write_checkpoint_start(started_ms: int, number: int, invoker: str) -> bytes:
    """Write a CkptStart."""
    return pack(started_ms) + pack(number) + text(invoker)


@dataclass(frozen=True, slots=True)
class CheckpointEndItem:
    """A CkptEnd."""

    invoker: str
    ended_ms: int
    start_lsn: int
    root_lsn: int | None
    first_active_lsn: int
    number: int
    last_local_node: int
    last_local_db: int
    last_local_txn: int
    last_replicated_node: int = LAST_REPLICATED_NODE
    last_replicated_db: int = LAST_REPLICATED_DB
    last_replicated_txn: int = LAST_REPLICATED_TXN
    last_local_extinction: int = 0
    last_replicated_extinction: int = 0
    cleaned_files: bool = False
    scan_ids: tuple[int, ...] = ()


def write_checkpoint_end(end: CheckpointEndItem) -> bytes:
    """Write a CkptEnd."""
    flags = items.CHECKPOINT_ROOT * (end.root_lsn is not None)
    flags |= items.CHECKPOINT_CLEANED_FILES * end.cleaned_files
    raw = text(end.invoker) + pack(end.ended_ms) + pack(end.start_lsn) + bytes((flags,))
    if end.root_lsn is not None:
        raw += pack(end.root_lsn)
    fields = (
        end.first_active_lsn,
        end.last_local_node,
        end.last_replicated_node,
        end.last_local_db,
        end.last_replicated_db,
        end.last_local_txn,
        end.last_replicated_txn,
        end.last_local_extinction,
        end.last_replicated_extinction,
        end.number,
        len(end.scan_ids),
        *end.scan_ids,
    )
    return raw + b"".join(pack(field) for field in fields)


def write_trace(written_ms: int, message: str) -> bytes:
    """Write a Trace."""
    return pack(written_ms) + text(message)


def write_name(db_id: int, *, deleted: bool = False) -> bytes:
    """Write what a NameLN appends to its empty value."""
    return pack(db_id) + bytes((deleted,))


def write_map(database: DatabaseItem, *, deleted: bool = False) -> bytes:
    """Write what a MapLN appends to its empty value."""
    return write_database(database) + bytes((deleted,))


def write_configured(
    operation: str, flags: int, *, capacity: int = NODE_CAPACITY, comparator: bytes | None = b""
) -> bytes:
    """Write the end of a NameLN that makes a database or changes its configuration."""
    config = bytes((flags,)) + pack(capacity) + byte_array(comparator) + byte_array(b"") + triggers(())
    return write_operation(operation) + config


def write_truncated(old_id: int) -> bytes:
    """Write the end of the NameLN that gives a name a new, empty database."""
    return write_operation("TRUNCATE") + pack(old_id)


def write_operation(name: str) -> bytes:
    """Write the end of a NameLN, or of one whose operation has no more to say: NONE, REMOVE, RENAME."""
    return bytes((items.OPERATIONS.index(name),))


def write_extinct_scan(scan: ExtinctScan) -> bytes:
    """Write the value of an ExtinctScanLN; nothing has been counted yet."""
    value = pack(OF_RECORDS) + pack(RECORD_VERSION) + b"0" + pack(len(scan.databases))
    before = 0
    for db in scan.databases:
        value += pack(db - before)
        before = db
    for data in (scan.begin_key, scan.end_key, scan.filter):
        value += pack(len(data or b"")) + (data or b"")
    return value + scan.label.encode() + b"\0" + pack(0) + pack(0)
