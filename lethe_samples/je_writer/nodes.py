"""Tree nodes of log version 26, written: IN, BIN, BIN-delta, and the Bloom filter of a delta."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lethe_samples.je_writer.items import NO_EXPIRATION_BASE, NODE_CAPACITY
from lethe_samples.je_writer.packed import byte_array, pack
from spark.formats.je import items
from spark.formats.je.log import NULL_LSN, EntryType

LEVEL_MAIN: Final = 0x10000
LEVEL_MAPPING: Final = 0x20000
LEVEL_BIN: Final = 1

COMPACT_KEY_BYTES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class SlotItem:
    """One slot. The key is the suffix as it is logged: of an embedded slot with the value in it.

    The offsets of times count from the node's bases, by one up: 0 says that there is none.
    """

    key: bytes
    lsn: int
    state: int
    logged_size: int = 0
    vlsn: int = 0
    expiration_offset: int = 0
    created_offset: int = 0
    modified_offset: int = 0


@dataclass(frozen=True, slots=True)
class NodeItem:
    """One node.

    Attributes:
        full_slots, full_capacity: of a delta, the full node that it completes.
        bloom_filter: of a delta, the keys of its full node that it has not.
    """

    db_id: int
    node_id: int
    level: int
    identifier_key: bytes | None
    flags: int
    slots: tuple[SlotItem, ...]
    prefix: bytes | None = None
    compact_key_bytes: int = -1
    capacity: int = NODE_CAPACITY
    last_full_lsn: int = NULL_LSN
    last_full_size: int = 0
    last_delta_lsn: int = NULL_LSN
    last_delta_size: int = 0
    expiration_base: int = NO_EXPIRATION_BASE
    created_base: int = -1
    modified_base: int = -1
    full_slots: int = 0
    full_capacity: int = 0
    bloom_filter: bytes | None = None


def write_node(node: NodeItem, entry_type: int) -> bytes:
    """Write the item of an IN, a BIN or a BIN-delta."""
    has_expiration = entry_type != EntryType.IN and node.expiration_base != NO_EXPIRATION_BASE
    slots = [_write_slot(slot, node.flags, has_expiration=has_expiration) for slot in node.slots]
    parts = [write_node_head(node, entry_type, len(slots)), *slots]
    if entry_type == EntryType.BIN_DELTA:
        parts += (pack(node.full_slots), pack(node.full_capacity))
        if node.flags & items.NODE_BLOOM_FILTER:
            parts.append(byte_array(node.bloom_filter))
    return b"".join(parts)


def write_node_head(node: NodeItem, entry_type: int, slot_count: int) -> bytes:
    """Write what stands before a node's slots."""
    parts = [pack(node.db_id), pack(node.last_full_lsn), pack(node.last_full_size)]
    parts += (pack(node.last_delta_lsn), pack(node.last_delta_size))
    if entry_type != EntryType.IN:
        parts += (pack(node.expiration_base), pack(node.created_base), pack(node.modified_base))
    parts += (pack(node.node_id), byte_array(node.identifier_key), bytes((node.flags,)))
    if node.flags & items.NODE_KEY_PREFIX:
        parts.append(byte_array(node.prefix))
    parts += (pack(node.compact_key_bytes), pack(slot_count), pack(node.level), pack(node.capacity))
    return b"".join(parts)


def _write_slot(slot: SlotItem, flags: int, *, has_expiration: bool) -> bytes:
    embedded = slot.state & items.SLOT_EMBEDDED
    raw = byte_array(slot.key) + struct.pack("<qB", slot.lsn, slot.state)
    if flags & items.NODE_LOGGED_SIZES and not embedded:
        raw += pack(slot.logged_size)
    if flags & items.NODE_VLSN_CACHE and embedded:
        raw += pack(slot.vlsn)
    if has_expiration:
        raw += pack(slot.expiration_offset)
    if embedded:
        raw += pack(slot.created_offset) + pack(slot.modified_offset)
    return raw


FNV_BASIS: Final = 2166136261
FNV_PRIME: Final = 16777619
BLOOM_BITS_PER_KEY: Final = 8
# Up to so many bits one random number gives all three positions.
BLOOM_BITS_SMALL_MAX: Final = 1024
JAVA_MULTIPLIER: Final = 0x5DEECE66D


def bloom_filter(keys: Iterable[bytes], key_count: int) -> bytes:
    """Make the filter that says which keys a full BIN may have beside those of its delta."""
    bits = bytearray((key_count * BLOOM_BITS_PER_KEY + 7) // 8)
    for key in keys:
        for place in _bloom_places(key, len(bits) * 8):
            bits[place // 8] |= 1 << place % 8
    return bytes(bits)


def _bloom_places(key: bytes, bit_count: int) -> tuple[int, int, int]:
    """Choose three bits for a key, by Java's random numbers with the key's FNV hash as their seed."""
    value = FNV_BASIS
    for byte in key:
        value = value * FNV_PRIME & 0xFFFFFFFFFFFFFFFF
        value ^= byte if byte < 128 else byte | 0xFFFFFFFFFFFFFF00
    state = (value ^ JAVA_MULTIPLIER) & 0xFFFFFFFFFFFF
    numbers = []
    for _ in range(3):
        state = (state * JAVA_MULTIPLIER + 0xB) & 0xFFFFFFFFFFFF
        numbers.append(state >> 16)
    if bit_count > BLOOM_BITS_SMALL_MAX:
        return numbers[0] % bit_count, numbers[1] % bit_count, numbers[2] % bit_count
    one = numbers[0]
    return (one & 0x3FF) % bit_count, (one >> 10 & 0x3FF) % bit_count, (one >> 20 & 0x3FF) % bit_count
