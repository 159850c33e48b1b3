"""Looking for an entry where no chain leads to it."""

from typing import Final

import numpy as np

from spark.erase.native.compiling import compiled
from spark.erase.native.reading import entry_checksum, fixed
from spark.erase.native.types import Buffer, Int
from spark.erase.native.walking import ERASED, FILE_HEADER, HEADER_BYTES, KIND, UNKNOWN, entry_bytes
from spark.formats.je import log as je_log

NOTHING: Final = -1


@compiled
def find_entry(buffer: Buffer, start: Int, base: Int) -> Int:
    """Return the position of the first whole entry from `start` on, or -1.

    The first byte of the buffer stands at `base` of the file, and is where the chain broke. A whole entry is
    one whose checksum is right and which names a previous entry at or behind that place.
    """
    size = buffer.shape[0]
    for at in range(start, size - HEADER_BYTES + 1):
        entry_type = np.int64(buffer[at + je_log.TYPE_AT])
        if KIND[entry_type] == UNKNOWN or entry_type in (FILE_HEADER, ERASED):
            continue
        flags = np.int64(buffer[at + je_log.FLAGS_AT])
        previous = fixed(buffer, at + je_log.PREVIOUS_AT, 4)
        if flags & je_log.FLAGS_UNUSED or previous < base or previous >= base + at:
            continue
        if buffer[at + je_log.ITEM_SIZE_AT + 3] & 0x80:
            continue
        end = at + entry_bytes(buffer, at)
        if end > size:
            continue
        if entry_checksum(buffer, at, end, flags) == fixed(buffer, at + je_log.CHECKSUM_AT, 4):
            return at
    return NOTHING
