"""The log's bytes: packed integers, LSNs, the items that are read one by one."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.erase.native.reading import INT_BYTES, LONG_BYTES, packed
from spark.formats.je import log as je_log
from spark.formats.je.items import (
    check_plain,
    read_checkpoint_end,
    read_db_tree,
    read_rare_ln,
    read_rollback,
    read_vlsn_range,
)
from spark.formats.je.log import EntryType, lsn_file, lsn_of, lsn_offset, show_lsn
from spark.formats.je.packed import ItemMalformed, ItemReader
from tests.oracles import je_log as oracle


def pack(value: int) -> bytes:
    """A packed integer as JE writes it."""
    if -119 <= value <= 119:
        return struct.pack("b", value)
    rest = abs(value) - 119
    width = (rest.bit_length() + 7) // 8
    return struct.pack("b", 119 + width if value > 0 else -119 - width) + rest.to_bytes(width, "little")


def text(value: str) -> bytes:
    return pack(len(value.encode())) + value.encode()


@given(st.integers(-(2**63) + 1, 2**63 - 1))
@settings(max_examples=200, deadline=None)
def test_packed_long_comes_back(value: int) -> None:
    raw = pack(value)
    assert ItemReader(raw).packed_long() == value
    assert oracle.Item(raw).l() == value
    assert packed(np.frombuffer(bytearray(raw), dtype=np.uint8), 0, len(raw), LONG_BYTES) == (value, len(raw))


@given(st.binary(min_size=1, max_size=10))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_alike_by_the_three_readers(raw: bytes) -> None:
    buffer = np.frombuffer(bytearray(raw), dtype=np.uint8)
    for width in (INT_BYTES, LONG_BYTES):
        value, end = packed(buffer, 0, len(raw), width)
        reader, plain = ItemReader(raw), oracle.Item(raw)
        if end < 0:
            with pytest.raises(ItemMalformed):
                reader.packed_int() if width == INT_BYTES else reader.packed_long()
            with pytest.raises(oracle.Wrong):
                plain.integer(width)
        else:
            assert value == (reader.packed_int() if width == INT_BYTES else reader.packed_long())
            assert value == plain.integer(width)
            assert end == reader.position == plain.at


def test_lsn_has_its_file_above_its_offset() -> None:
    assert lsn_of(2, 0xE678F) == 8590878607
    assert (lsn_file(8590878607), lsn_offset(8590878607)) == (2, 0xE678F)
    assert show_lsn(8590878607) == "0x2/0xe678f"
    assert show_lsn(je_log.NULL_LSN) == "NULL"


def test_file_names_carry_their_number_in_hexadecimal() -> None:
    assert je_log.file_name(0x1A) == "0000001a.jdb"
    assert je_log.file_number("0000001a.jdb") == 26


def test_every_type_is_known_or_retired() -> None:
    retired = {1, 2, 7, 8, 9, 10, 14, 15, 21, 23, 26, 27}
    known = {int(kind) for kind in EntryType}
    assert known & retired == set()
    assert known | retired | {22} == set(range(1, 46))


def test_checkpoint_end_is_read_with_and_without_a_root() -> None:
    rest = (
        b"".join(pack(value) for value in (113, -9, 13, -256, 9355, -10, 2, 0)) + pack(7) + pack(1) + pack(4)
    )
    item = text("api") + pack(1795163067995) + pack(100) + b"\x01" + pack(200) + pack(90) + rest
    end = read_checkpoint_end(item)
    assert (end.invoker, end.start_lsn, end.root_lsn, end.first_active_lsn, end.id) == (
        "api",
        100,
        200,
        90,
        7,
    )
    item = text("api") + pack(1795163067995) + pack(100) + b"\x00" + pack(90) + rest
    assert read_checkpoint_end(item).root_lsn == je_log.NULL_LSN
    with pytest.raises(ItemMalformed, match="left over"):
        read_checkpoint_end(item + b"\x00")


def database(number: int, name: str, root: int, flags: int, comparator: bytes = b"\xff") -> bytes:
    raw = pack(number) + (text(name) if number > 1 else b"")
    raw += b"\x01" + text("") + pack(root) + b"\x00" if root >= 0 else b"\x00"
    return raw + bytes([flags]) + comparator + b"\xff" + pack(128) + b"\x1a" + pack(0)


def test_map_ln_tells_root_flags_and_comparator() -> None:
    head = b"\0\0\0" + pack(0) + pack(1) + text("7")
    ln = read_rare_ln(head + pack(0) + database(7, "tags", 300, 0x01) + b"\x00", EntryType.MAP_LN)
    assert ln.database is not None
    assert (ln.database.id, ln.database.name, ln.database.root_lsn) == (7, "tags", 300)
    assert ln.database.dups
    assert not ln.database.has_comparator
    assert not ln.deleted
    compared = head + pack(0) + database(7, "tags", 300, 0, comparator=text("C")) + b"\x00"
    assert read_rare_ln(compared, EntryType.MAP_LN).database.has_comparator  # type: ignore[union-attr]
    gone = read_rare_ln(head + pack(-1) + database(7, "tags", -1, 0) + b"\x01", EntryType.MAP_LN)
    assert gone.deleted


def test_name_ln_tells_which_id_a_name_has() -> None:
    head = b"\x20\0\0" + pack(1) + pack(1) + text("orders") + pack(0) + pack(12) + b"\x00"
    tail = pack(1815) + pack(9097) + pack(-1)
    ln = read_rare_ln(head + tail + b"\x00", EntryType.NAME_LN_TX)
    assert (ln.key, ln.named_id, ln.txn_id, ln.abort_lsn, ln.deleted) == (b"orders", 12, 9097, 1815, False)
    truncated = read_rare_ln(head + tail + b"\x03" + pack(11), EntryType.NAME_LN_TX)
    assert truncated.named_id == 12
    created = head + tail + b"\x01" + b"\x00" + pack(128) + b"\xff\xff" + pack(0)
    assert read_rare_ln(created, EntryType.NAME_LN_TX).named_id == 12


def test_file_summary_lists_its_obsolete_offsets() -> None:
    head = b"\0\0\0" + pack(2) + pack(1) + pack(8) + bytes.fromhex("000000037fffffe3") + pack(0) + pack(500)
    # 100, then 100 + 40000: a difference above 15 bits takes two groups, the first marked by its sign.
    low, high = 40000 & 0x7FFF, 40000 >> 15
    packed_offsets = pack(2) + pack(3) + struct.pack("<hhh", 100, -1 - low, high)
    ln = read_rare_ln(head + bytes(44) + packed_offsets, EntryType.FILE_SUMMARY_LN)
    assert (ln.obsolete_offsets, ln.anchor_lsn) == ((100, 40100), 500)


def test_db_tree_and_rollbacks_are_read_whole() -> None:
    raw = struct.pack("<qq", 13, -256) + database(0, "", 5, 0) + database(1, "", 6, 0) + b"\x00" + pack(26)
    tree = read_db_tree(raw)
    assert (tree.mapping.root_lsn, tree.naming.root_lsn) == (5, 6)
    start = read_rollback(
        pack(9) + pack(77) + pack(1) + pack(2) + pack(-1) + pack(-2), EntryType.ROLLBACK_START
    )
    assert (start.matchpoint_lsn, start.start_lsn) == (77, je_log.NULL_LSN)
    assert read_rollback(pack(77) + pack(88) + pack(1), EntryType.ROLLBACK_END).start_lsn == 88


def test_vlsn_range_is_read_in_its_order() -> None:
    found = read_vlsn_range(b"".join(pack(value) for value in (1, 8206, 23338, 23300, 23310)))
    assert (found.first, found.last, found.last_sync, found.last_txn_end) == (8206, 23338, 23300, 23310)


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (EntryType.CKPT_START, pack(1) + pack(2) + text("close")),
        (EntryType.TRACE, pack(1) + text("hello")),
        (EntryType.MATCHPOINT, pack(1) + pack(2)),
        (EntryType.IMMUTABLE_FILE, b"*"),
        (EntryType.RESTORE_REQUIRED, text("NETWORK_RESTORE") + pack(1) + text("")),
    ],
)
def test_plain_entries_are_used_up_exactly(kind: EntryType, item: bytes) -> None:
    check_plain(item, kind)
    with pytest.raises(ItemMalformed):
        check_plain(item + b"\x00", kind)
    with pytest.raises(ItemMalformed):
        check_plain(item[:-1], kind)
