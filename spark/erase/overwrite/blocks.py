"""Which blocks of a file hold bytes that change, and in which pieces they are written."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from spark.erase.entry_tables import EntryRows
from spark.erase.native.planned import ITEM_BYTES
from spark.erase.native.types import Table
from spark.formats.je import log as je_log

BLOCK_BYTES: Final = 4096
# A writer looks at the stop counter before each piece, so this bounds how long it takes to stop.
PIECE_BYTES_MAX: Final = 1024 * 1024
PIECE_BLOCKS_MAX: Final = PIECE_BYTES_MAX // BLOCK_BYTES


def blocks_around(begin: int, end: int, *, file_size: int) -> tuple[int, int]:
    """Widen a range of bytes to whole blocks; the last block of a file ends with it."""
    return begin // BLOCK_BYTES * BLOCK_BYTES, min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, file_size)


def pieces_with_types(planned: EntryRows, *, file_size: int) -> Iterator[tuple[int, int]]:
    """Return the pieces (begin, end), ascending, that hold the type byte of an entry."""
    at = planned.offsets + je_log.TYPE_AT
    return _pieces(at, at, file_size)


def pieces_with_items(planned: EntryRows, *, file_size: int) -> Iterator[tuple[int, int]]:
    """Return the pieces (begin, end), ascending, that hold a byte of an item."""
    filled = planned.rows[:, ITEM_BYTES] > 0
    return _pieces(planned.items_at[filled], planned.ends[filled] - 1, file_size)


def _pieces(firsts: Table, lasts: Table, file_size: int) -> Iterator[tuple[int, int]]:
    """Join the blocks from the first bytes to the last bytes of ascending ranges into pieces."""
    if not len(firsts):
        return
    low = int(firsts[0]) // BLOCK_BYTES
    begun = np.zeros(int(lasts[-1]) // BLOCK_BYTES - low + 2, dtype=np.int64)
    np.add.at(begun, firsts // BLOCK_BYTES - low, 1)
    np.add.at(begun, lasts // BLOCK_BYTES - low + 1, -1)
    edges = np.flatnonzero(np.diff(np.cumsum(begun) > 0, prepend=False)).tolist()
    for first, behind in zip(edges[::2], edges[1::2], strict=True):
        for block in range(first, behind, PIECE_BLOCKS_MAX):
            end = min(block + PIECE_BLOCKS_MAX, behind)
            yield (low + block) * BLOCK_BYTES, min((low + end) * BLOCK_BYTES, file_size)
