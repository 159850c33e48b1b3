"""A file's entries in rounds: the unit of overwriting, after which everybody who waits gets a turn."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from spark.erase.entry_tables import BATCH_ROWS, Coming, slice_entries
from spark.erase.native import planned

__all__ = ["ROUND_BYTES_MAX", "ROUND_ENTRIES_MAX", "RoundSlice", "slice_entries", "split_rounds"]

ROUND_ENTRIES_MAX: Final = BATCH_ROWS
ROUND_BYTES_MAX: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RoundSlice:
    """The rows of one round, from `first` up to but without `last`, and the part of the file they lie in."""

    first: int
    last: int
    first_offset: int
    end_offset: int
    entry_count: int


def split_rounds(entries: bytes, *, file_size: int) -> list[RoundSlice]:
    """Split the entries of a file into rounds.

    A round has at most 5,120 entries, and at most 8 MiB of the file lie between its first byte and its last;
    an entry that is larger is a round of its own.
    """
    coming, rounds = Coming(entries, file_size=file_size), []
    while len(rows := coming.before(0)):
        begin = int(rows[0, planned.OFFSET])
        rows = coming.before(begin + ROUND_BYTES_MAX)[:ROUND_ENTRIES_MAX]
        ends = rows[:, planned.OFFSET] + rows[:, planned.HEADER_BYTES] + rows[:, planned.ITEM_BYTES]
        count = max(int(np.searchsorted(ends, begin + ROUND_BYTES_MAX, side="right")), 1)
        first = coming.done
        rounds.append(RoundSlice(first, first + count, begin, int(ends[count - 1]), count))
        coming.drop(count)
    return rounds
