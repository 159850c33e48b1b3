"""Items of real logs, read field by field into the writer's own classes, to be written again."""

from lethe_samples.je_writer.items import (
    BEFORE_IMAGE_TYPES,
    AbortVersion,
    CheckpointEndItem,
    DatabaseItem,
    LnItem,
    TxnEndItem,
    write_checkpoint_end,
    write_checkpoint_start,
    write_configured,
    write_db_tree,
    write_ln,
    write_map,
    write_name,
    write_operation,
    write_trace,
    write_truncated,
    write_txn_end,
)
from lethe_samples.je_writer.nodes import NodeItem, SlotItem, write_node
from spark.formats.je import items
from spark.formats.je.log import HAS_CREATION_TIME_TYPES, TRANSACTIONAL_TYPES, EntryType
from spark.formats.je.packed import ItemReader

NAME_TYPES = {EntryType.NAME_LN, EntryType.NAME_LN_TX}
MAP_TYPES = {EntryType.MAP_LN, EntryType.MAP_LN_TX}


def parse_ln(raw: bytes, kind: int) -> LnItem:
    reader = ItemReader(raw)
    one, two, three = reader.byte(), reader.byte(), reader.byte()
    db_id = reader.packed_long()
    expiration = reader.packed_int() if one & items.LN_EXPIRATION else None
    modified = reader.packed_long()
    has_created = kind in HAS_CREATION_TIME_TYPES or three & items.LN_INSERT_CREATION_TIME
    created = reader.packed_long() if has_created else None
    key, value = reader.byte_array(), reader.byte_array()
    assert key is not None
    after = _after_value(reader, kind)
    abort_lsn = txn = None
    previous = -1
    if kind in TRANSACTIONAL_TYPES:
        abort_lsn = reader.packed_long() if one & items.LN_ABORT_LSN else None
        txn, previous = reader.packed_long(), reader.packed_long()
    abort = AbortVersion(
        key=reader.byte_array() if one & items.LN_ABORT_KEY else None,
        data=reader.byte_array() if one & items.LN_ABORT_DATA else None,
        vlsn=reader.packed_long() if one & items.LN_ABORT_VLSN else None,
        expiration=reader.packed_int() if one & items.LN_ABORT_EXPIRATION else None,
        modified_ms=reader.packed_long() if two & items.LN_ABORT_MODIFICATION_TIME else None,
        created_ms=reader.packed_long() if two & items.LN_ABORT_CREATION_TIME else None,
        tombstone=bool(two & items.LN_ABORT_TOMBSTONE),
    )
    prior_size = reader.packed_int() if two & items.LN_PRIOR_SIZE else None
    prior_file = reader.packed_long() if two & items.LN_PRIOR_FILE else None
    image = reader.packed_int() if kind in BEFORE_IMAGE_TYPES else 0
    operation = _name_operation(reader) if kind in NAME_TYPES else b""
    reader.finish()
    return LnItem(
        db_id, key, value, modified, created, expiration,
        embedded=bool(one & items.LN_EMBEDDED), tombstone=bool(two & items.LN_TOMBSTONE),
        blind_deletion=bool(two & items.LN_BLIND_DELETION), before_image=bool(two & items.LN_BEFORE_IMAGE),
        after_value=after, txn_id=txn or 0, txn_previous=previous, abort_lsn=abort_lsn,
        abort_known_deleted=bool(one & items.LN_ABORT_KNOWN_DELETED), abort=abort,
        prior_size=prior_size, prior_file=prior_file, operation=operation, before_image_expiration=image,
    )  # fmt: skip


def _after_value(reader: ItemReader, kind: int) -> bytes:
    if kind in MAP_TYPES:
        return write_map(parse_database(reader), deleted=bool(reader.byte()))
    if kind in NAME_TYPES:
        return write_name(reader.packed_long(), deleted=bool(reader.byte()))
    assert kind != EntryType.FILE_SUMMARY_LN
    return b""


def _name_operation(reader: ItemReader) -> bytes:
    name = items.OPERATIONS[reader.byte()]
    if name == "TRUNCATE":
        return write_truncated(reader.packed_long())
    if name not in ("CREATE", "UPDATE_CONFIG"):
        return write_operation(name)
    flags, capacity = reader.byte(), reader.packed_int()
    comparator, dup_comparator = reader.byte_array(), reader.byte_array()
    assert not dup_comparator
    assert reader.packed_int() == 0
    return write_configured(name, flags, capacity=capacity, comparator=comparator)


def parse_database(reader: ItemReader) -> DatabaseItem:
    db_id = reader.packed_long()
    name = reader.text() if db_id not in (items.MAPPING_DB, items.NAMING_DB) else ""
    root: tuple[bytes | None, int | None, int] = (None, None, 0)
    if reader.byte():
        root = reader.byte_array(), reader.packed_long(), reader.byte()
    flags = reader.byte()
    comparators = reader.byte_array(), reader.byte_array()
    capacity, version = reader.packed_int(), reader.byte()
    names = tuple(reader.byte_array() or b"" for _ in range(reader.packed_int()))
    return DatabaseItem(db_id, name, root[1], flags, root[0], root[2], *comparators, capacity, version, names)


def parse_node(raw: bytes, kind: int) -> NodeItem:
    reader = ItemReader(raw)
    db_id, full, full_size = reader.packed_long(), reader.packed_long(), reader.packed_int()
    delta, delta_size = reader.packed_long(), reader.packed_int()
    bases = (-1, -1, -1)
    if kind != EntryType.IN:
        bases = reader.packed_int(), reader.packed_long(), reader.packed_long()
    node_id, identifier, flags = reader.packed_long(), reader.byte_array(), reader.byte()
    prefix = reader.byte_array() if flags & items.NODE_KEY_PREFIX else None
    compact, count = reader.packed_int(), reader.packed_int()
    level, capacity = reader.packed_int(), reader.packed_int()
    slots = tuple(_parse_slot(reader, flags, has_expiration=bases[0] != -1) for _ in range(count))
    is_delta = kind == EntryType.BIN_DELTA
    full_slots, full_capacity = (reader.packed_int(), reader.packed_int()) if is_delta else (0, 0)
    bloom = reader.byte_array() if flags & items.NODE_BLOOM_FILTER else None
    reader.finish()
    return NodeItem(
        db_id, node_id, level, identifier, flags, slots, prefix, compact, capacity,
        full, full_size, delta, delta_size, *bases, full_slots, full_capacity, bloom,
    )  # fmt: skip


def _parse_slot(reader: ItemReader, flags: int, *, has_expiration: bool) -> SlotItem:
    key, lsn, state = reader.byte_array(), reader.fixed_long(), reader.byte()
    assert key is not None
    embedded = state & items.SLOT_EMBEDDED
    size = reader.packed_int() if flags & items.NODE_LOGGED_SIZES and not embedded else 0
    vlsn = reader.packed_long() if flags & items.NODE_VLSN_CACHE and embedded else 0
    expiration = reader.packed_int() if has_expiration else 0
    created, modified = (reader.packed_long(), reader.packed_long()) if embedded else (0, 0)
    return SlotItem(key, lsn, state, size, vlsn, expiration, created, modified)


def parse_checkpoint_end(raw: bytes) -> CheckpointEndItem:
    reader = ItemReader(raw)
    invoker, ended, start = reader.text(), reader.packed_long(), reader.packed_long()
    flags = reader.byte()
    root = reader.packed_long() if flags & items.CHECKPOINT_ROOT else None
    first_active = reader.packed_long()
    node, other_node, db, other_db = (reader.packed_long() for _ in range(4))
    txn, other_txn, extinction, other_extinction = (reader.packed_long() for _ in range(4))
    number = reader.packed_long()
    scans = tuple(reader.packed_long() for _ in range(reader.packed_long()))
    reader.finish()
    return CheckpointEndItem(
        invoker, ended, start, root, first_active, number, node, db, txn, other_node, other_db, other_txn,
        extinction, other_extinction, bool(flags & items.CHECKPOINT_CLEANED_FILES), scans,
    )  # fmt: skip


def rewrite(raw: bytes, kind: int) -> bytes | None:
    """Write an item again from what was read of it; None for a kind that the writer does not write."""
    reader = ItemReader(raw)
    if kind in {EntryType.IN, EntryType.BIN, EntryType.BIN_DELTA}:
        return write_node(parse_node(raw, kind), kind)
    if kind in {EntryType.COMMIT, EntryType.ABORT}:
        return write_txn_end(
            TxnEndItem(
                reader.packed_long(), reader.packed_long(), reader.packed_long(), reader.packed_int(),
                reader.packed_long(), reader.packed_long(),
            )
        )  # fmt: skip
    if kind == EntryType.CKPT_START:
        return write_checkpoint_start(reader.packed_long(), reader.packed_long(), reader.text())
    if kind == EntryType.CKPT_END:
        return write_checkpoint_end(parse_checkpoint_end(raw))
    if kind == EntryType.DB_TREE:
        last_local, last_replicated = reader.fixed_long(), reader.fixed_long()
        mapping, naming = parse_database(reader), parse_database(reader)
        return write_db_tree(
            mapping, naming, last_local_db=last_local, last_replicated_db=last_replicated,
            flags=reader.byte(), initial_version=reader.packed_int(),
        )  # fmt: skip
    if kind == EntryType.TRACE:
        return write_trace(reader.packed_long(), reader.text())
    if kind in {EntryType.FILE_SUMMARY_LN, EntryType.FILE_HEADER} or kind in REST:
        return None
    return write_ln(parse_ln(raw, kind), kind)


REST = {EntryType.ROLLBACK_START, EntryType.ROLLBACK_END, EntryType.MATCHPOINT, EntryType.ERASED}
REST |= {EntryType.IMMUTABLE_FILE, EntryType.RESTORE_REQUIRED}
