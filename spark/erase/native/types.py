"""The arrays that compiled loops read and fill, and the numbers of their columns."""

from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = NDArray[np.uint8]
Table: TypeAlias = NDArray[np.int64]
# What compiled code calls an integer.
Int: TypeAlias = int | np.int64


class Outcome(IntEnum):
    """How a walk or a parse ended; from TYPE_UNKNOWN on it is a fault of the entry at the position."""

    DONE = 0
    MORE = 1
    FULL = 2
    TYPE_UNKNOWN = 10
    FLAGS_UNKNOWN = 11
    PREVIOUS_WRONG = 12
    SIZE_NEGATIVE = 13
    HEADER_MISPLACED = 14
    CHECKSUM_WRONG = 15
    ITEM_MALFORMED = 16


# Columns of a row for every entry.
OFFSET: Final = 0
TYPE: Final = 1
FLAGS: Final = 2
ITEM_BYTES: Final = 3
PREVIOUS: Final = 4
CHECKSUM: Final = 5
VLSN: Final = 6
ALL_ZERO: Final = 7
HEADER_COLUMNS: Final = 8

# Columns of a row for an LN. ENTRY is the number of the entry's row.
LN_ENTRY: Final = 0
LN_DB: Final = 1
LN_TXN: Final = 2
LN_TXN_PREVIOUS: Final = 3
LN_ABORT_LSN: Final = 4
LN_VALUE_BYTES: Final = 5
LN_EXPIRATION: Final = 6
LN_FLAGS: Final = 7
LN_ABORT_DATA_BYTES: Final = 8
LN_KEY_BYTES: Final = 9
LN_HASH_1: Final = 10
LN_HASH_2: Final = 11
LN_COLUMNS: Final = 12

# Columns of a row for an IN, BIN or BIN-delta.
NODE_ENTRY: Final = 0
NODE_DB: Final = 1
NODE_ID: Final = 2
NODE_LAST_FULL: Final = 3
NODE_LEVEL: Final = 4
NODE_FLAGS: Final = 5
NODE_SLOTS: Final = 6
NODE_COLUMNS: Final = 7

# Columns of a row for a slot of a node; the key is counted without the node's prefix, and without an embedded
# value.
SLOT_LSN: Final = 0
SLOT_STATE: Final = 1
SLOT_KEY_AT: Final = 2
SLOT_KEY_BYTES: Final = 3
SLOT_COLUMNS: Final = 4

# Columns of a row for a commit or an abort.
END_ENTRY: Final = 0
END_TXN: Final = 1
END_COLUMNS: Final = 2

# What the walk hands from one call to the next.
STATE_PREVIOUS: Final = 0
STATE_HEADERS: Final = 1
STATE_LNS: Final = 2
STATE_NODES: Final = 3
STATE_ENDS: Final = 4
STATE_RARE: Final = 5
STATE_KEY_BYTES: Final = 6
STATE_COLUMNS: Final = 7

# Flags of an LN as LN_FLAGS holds them: the first byte, the second shifted by 8, the third by 16.
LN_EMBEDDED: Final = 0x02
LN_TOMBSTONE: Final = 0x0400
