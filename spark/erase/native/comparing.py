"""Comparing keys byte by byte."""

import numpy as np

from spark.erase.native import types as t
from spark.erase.native.compiling import compiled
from spark.erase.native.reading import same_bytes
from spark.erase.native.types import Buffer, Int, Table


@compiled
def same_keys(keys: Buffer, bounds: Table, ones: Table, others: Table, same: Buffer) -> None:
    """Compare the keys of pairs of rows; `same` receives 1 where they are equal."""
    for index in range(ones.shape[0]):
        one, other = ones[index], others[index]
        length = bounds[one + 1] - bounds[one]
        equal = length == bounds[other + 1] - bounds[other] and same_bytes(
            keys, bounds[one], keys, bounds[other], length
        )
        same[index] = 1 if equal else 0


@compiled
def slot_key_byte(buffer: Buffer, slots: Table, prefix: Table, row: Int, index: Int) -> Int:
    """Return one byte of a slot's whole key: the node's prefix stands before it."""
    if index < prefix[1]:
        return np.int64(buffer[prefix[0] + index])
    return np.int64(buffer[slots[row, t.SLOT_KEY_AT] + index - prefix[1]])


@compiled
def mark_overridden(
    full: Buffer,
    full_slots: Table,
    full_prefix: Table,
    delta: Buffer,
    delta_slots: Table,
    delta_prefix: Table,
    overridden: Buffer,
) -> None:
    """Mark the slots of a full BIN whose key the delta has too."""
    for row in range(full_slots.shape[0]):
        length = full_prefix[1] + full_slots[row, t.SLOT_KEY_BYTES]
        overridden[row] = 0
        for other in range(delta_slots.shape[0]):
            if length != delta_prefix[1] + delta_slots[other, t.SLOT_KEY_BYTES]:
                continue
            equal = True
            # From the end: keys of one node differ there first.
            for index in range(length - 1, -1, -1):
                if slot_key_byte(full, full_slots, full_prefix, row, index) != slot_key_byte(
                    delta, delta_slots, delta_prefix, other, index
                ):
                    equal = False
                    break
            if equal:
                overridden[row] = 1
                break
