"""What JE notes of a call of discardExtinctRecords: the value of an ExtinctScanLN (types 41 and 42).

    kind (packed; 0: records, 1: a database in removal) | version (packed) | count complete (1 byte)
    | databases: count, then each id less the one before (packed) | begin key, end key, serialized filter
    (length packed, 0: none; bytes) | label (text that a zero byte ends) | database and key of the last flush

The filter is a Java object: what it lets pass cannot be told here.
"""

from dataclasses import dataclass
from typing import Final

from spark.formats.je.packed import ItemMalformed, ItemReader

OF_RECORDS: Final = 0
RECORD_VERSION: Final = 0
_ABSENT_TEXT: Final = b"\xff"


@dataclass(frozen=True, slots=True)
class ExtinctScan:
    """A range of keys in databases; begin inclusive, end exclusive, None: open."""

    databases: tuple[int, ...]
    begin_key: bytes | None
    end_key: bytes | None
    filter: bytes | None
    label: str


def read_extinct_scan(value: bytes) -> ExtinctScan | None:
    """Read the value; None where it is of another kind, or not to be understood: then it covers nothing."""
    try:
        reader = ItemReader(value)
        if reader.packed_int() != OF_RECORDS or reader.packed_int() != RECORD_VERSION:
            return None
        reader.byte()
        databases, number = [], 0
        for _ in range(reader.packed_int()):
            number += reader.packed_long()
            databases.append(number)
        begin, end, found = _bytes(reader), _bytes(reader), _bytes(reader)
        label = _text(reader)
        reader.packed_long()
        _bytes(reader)
        reader.finish()
    except ItemMalformed:
        return None
    return ExtinctScan(tuple(databases), begin, end, found, label)


def _bytes(reader: ItemReader) -> bytes | None:
    length = reader.packed_int()
    return reader.take(length) if length else None


def _text(reader: ItemReader) -> str:
    end = reader.data.find(b"\0", reader.position)
    if end < 0:
        raise ItemMalformed(f"a text without an end from byte {reader.position} on")
    raw = reader.take(end - reader.position)
    reader.take(1)
    return "" if raw == _ABSENT_TEXT else raw.decode(errors="replace")
