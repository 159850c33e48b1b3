"""Planned entries as a table and as rows of numbers: names and places of what is known of each.

Nothing is compiled here, so that whoever only splits or packs entries does not wait for the compiler.
"""

from typing import Final

import pyarrow as pa

# The header of every entry is kept as it was: whoever writes compares it first.
PLANNED: Final = pa.schema(
    [
        ("offset", pa.uint32()),
        ("reason", pa.uint8()),
        ("type", pa.uint8()),
        ("flags", pa.uint8()),
        ("previous", pa.uint32()),
        ("item_bytes", pa.int32()),
        ("vlsn", pa.int64()),
        ("checksum", pa.uint32()),
    ]
)

# Columns of a row for a planned entry, and the names of those that a plan has.
OFFSET: Final = 0
TYPE: Final = 1
FLAGS: Final = 2
PREVIOUS: Final = 3
ITEM_BYTES: Final = 4
VLSN: Final = 5
CHECKSUM: Final = 6
HEADER_BYTES: Final = 7
COLUMNS: Final = 8
NAMES: Final = {
    OFFSET: "offset",
    TYPE: "type",
    FLAGS: "flags",
    PREVIOUS: "previous",
    ITEM_BYTES: "item_bytes",
    VLSN: "vlsn",
    CHECKSUM: "checksum",
}
