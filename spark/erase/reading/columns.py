"""A file's entries as Arrow tables: a row for each, and another for each LN, node and transaction's end."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from spark.erase.reading.directory import FileHeader, Identity
from spark.formats.je.items import CheckpointEnd, DbTree, RareLn, Rollback

ENTRIES: Final = pa.schema(
    [
        ("offset", pa.uint32()),
        ("type", pa.uint8()),
        ("flags", pa.uint8()),
        ("item_bytes", pa.int32()),
        ("previous", pa.uint32()),
        ("checksum", pa.uint32()),
        ("vlsn", pa.int64()),
        ("all_zero", pa.uint8()),
    ]
)
# `entry` is the row of the entry in ENTRIES; `hash_1`, `hash_2` are of database and key.
LNS: Final = pa.schema(
    [
        ("entry", pa.int32()),
        ("db", pa.int64()),
        ("txn", pa.int64()),
        ("txn_previous", pa.int64()),
        ("abort_lsn", pa.int64()),
        ("value_bytes", pa.int32()),
        ("expiration", pa.int32()),
        ("flags", pa.int32()),
        ("abort_data_bytes", pa.int32()),
        ("hash_1", pa.int64()),
        ("hash_2", pa.int64()),
        ("key", pa.large_binary()),
    ]
)
NODES: Final = pa.schema(
    [
        ("entry", pa.int32()),
        ("db", pa.int64()),
        ("node", pa.int64()),
        ("last_full", pa.int64()),
        ("level", pa.int32()),
        ("flags", pa.uint8()),
        ("slots", pa.int32()),
    ]
)
ENDS: Final = pa.schema([("entry", pa.int32()), ("txn", pa.int64())])

Rare = RareLn | CheckpointEnd | DbTree | Rollback | None


@dataclass(frozen=True, slots=True)
class FileColumns:
    """All entries of one file.

    Attributes:
        header: of the file; None where the last file ends within it.
        torn_at: the offset from which on the last file of the log holds no entry; None where it is whole.
        rare: (row of the entry, what it holds) of those that are read one by one; None for those that nothing
            asks for.
    """

    number: int
    identity: Identity
    header: FileHeader | None
    torn_at: int | None
    entries: pa.Table
    lns: pa.Table
    nodes: pa.Table
    ends: pa.Table
    rare: tuple[tuple[int, Rare], ...]
