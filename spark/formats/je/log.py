"""The log of Berkeley DB JE, version 26: file names, LSNs, the header of an entry, entry types.

Fixed integers are little-endian. A file is a gap-free chain of entries from offset 0 to its end; the version
is that of the file, written in its header entry. Items are in `je_log_items`, packed integers in
`je_log_packed`.
"""

import re
from enum import IntEnum
from typing import Final

FILE_NAME: Final = re.compile(r"[0-9a-f]{8}\.jdb")
# Left by a network restore that did not end: the environment beside it is no environment.
RESTORE_MARKER_NAME: Final = "7fffffff.jdb"
FILE_NUMBER_MAX: Final = 0x7FFFFFFF

VERSION: Final = 26
VERSION_OLDEST: Final = 2

# Header of an entry: checksum u32, type u8, flags u8, offset of the previous entry u32, item size i32, VLSN
# i64 at times.
HEADER_BYTES: Final = 14
HEADER_BYTES_WITH_VLSN: Final = 22
CHECKSUM_AT: Final = 0
TYPE_AT: Final = 4
FLAGS_AT: Final = 5
PREVIOUS_AT: Final = 6
ITEM_SIZE_AT: Final = 10
VLSN_AT: Final = 14

FLAG_VLSN_PRESENT: Final = 0x08
FLAG_INVISIBLE: Final = 0x10
FLAG_REPLICATED: Final = 0x20
FLAG_PROVISIONAL_BEFORE_CHECKPOINT_END: Final = 0x40
FLAG_PROVISIONAL: Final = 0x80
FLAGS_WITH_VLSN: Final = FLAG_VLSN_PRESENT | FLAG_REPLICATED
FLAGS_UNUSED: Final = 0x07

# The first entry of every file: created ms i64, file number u32, last offset of the previous file i64,
# version i32.
FILE_HEADER_ITEM_BYTES: Final = 24
FILE_HEADER_BYTES: Final = HEADER_BYTES + FILE_HEADER_ITEM_BYTES
CREATED_AT: Final = 14
FILE_NUMBER_AT: Final = 22
PREVIOUS_FILE_LAST_AT: Final = 26
VERSION_AT: Final = 34

NULL_LSN: Final = -1


class EntryType(IntEnum):
    """Types of entry that a log of this version may hold; the others are retired."""

    MAP_LN_TX = 3
    MAP_LN = 4
    NAME_LN_TX = 5
    NAME_LN = 6
    FILE_SUMMARY_LN = 11
    IN = 12
    BIN = 13
    DB_TREE = 16
    COMMIT = 17
    ABORT = 18
    CKPT_START = 19
    CKPT_END = 20
    TRACE = 24
    FILE_HEADER = 25
    ROLLBACK_START = 28
    ROLLBACK_END = 29
    MATCHPOINT = 30
    DEL_LN_TX = 31
    DEL_LN = 32
    INS_LN_TX = 33
    INS_LN = 34
    UPD_LN_TX = 35
    UPD_LN = 36
    BIN_DELTA = 37
    IMMUTABLE_FILE = 38
    RESTORE_REQUIRED = 39
    RESERVED_FILE_LN = 40
    EXTINCT_SCAN_LN = 41
    EXTINCT_SCAN_LN_TX = 42
    ERASED = 43
    UPD_LN_TX_WITH_BEFORE_IMAGE = 44
    DEL_LN_TX_WITH_BEFORE_IMAGE = 45


USER_LN_TYPES: Final = frozenset(
    {
        EntryType.DEL_LN_TX,
        EntryType.DEL_LN,
        EntryType.INS_LN_TX,
        EntryType.INS_LN,
        EntryType.UPD_LN_TX,
        EntryType.UPD_LN,
        EntryType.UPD_LN_TX_WITH_BEFORE_IMAGE,
        EntryType.DEL_LN_TX_WITH_BEFORE_IMAGE,
    }
)
NODE_TYPES: Final = frozenset({EntryType.IN, EntryType.BIN, EntryType.BIN_DELTA})
LN_TYPES: Final = USER_LN_TYPES | {
    EntryType.MAP_LN_TX,
    EntryType.MAP_LN,
    EntryType.NAME_LN_TX,
    EntryType.NAME_LN,
    EntryType.FILE_SUMMARY_LN,
    EntryType.RESERVED_FILE_LN,
    EntryType.EXTINCT_SCAN_LN,
    EntryType.EXTINCT_SCAN_LN_TX,
}
TRANSACTIONAL_TYPES: Final = frozenset(
    {
        EntryType.MAP_LN_TX,
        EntryType.NAME_LN_TX,
        EntryType.DEL_LN_TX,
        EntryType.INS_LN_TX,
        EntryType.UPD_LN_TX,
        EntryType.EXTINCT_SCAN_LN_TX,
        EntryType.UPD_LN_TX_WITH_BEFORE_IMAGE,
        EntryType.DEL_LN_TX_WITH_BEFORE_IMAGE,
    }
)
# LNs that always say when their record was created; an insertion says it only where its flags do.
HAS_CREATION_TIME_TYPES: Final = USER_LN_TYPES - {EntryType.INS_LN_TX, EntryType.INS_LN}


def file_name(number: int) -> str:
    """Name the file of a number."""
    assert 0 <= number <= FILE_NUMBER_MAX, number
    return f"{number:08x}.jdb"


def file_number(name: str) -> int:
    """Read the number out of a file's name."""
    assert FILE_NAME.fullmatch(name), name
    return int(name[:8], 16)


def lsn_of(number: int, offset: int) -> int:
    """Make an LSN: the file's number in the high 32 bits, the entry's offset in the low 32."""
    return (number << 32) | offset


def lsn_file(lsn: int) -> int:
    """Return the file's number of an LSN."""
    return lsn >> 32


def lsn_offset(lsn: int) -> int:
    """Return the offset of an LSN within its file."""
    return lsn & 0xFFFFFFFF


def show_lsn(lsn: int) -> str:
    """Write an LSN as JE does: `0x2/0xe678f`."""
    return "NULL" if lsn == NULL_LSN else f"{lsn_file(lsn):#x}/{lsn_offset(lsn):#x}"
