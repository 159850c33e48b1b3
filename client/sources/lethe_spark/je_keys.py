"""Every place of a log file where a key can be read: entries of records, and slots of tree nodes."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lethe_spark.je_columns import BATCH_ROWS, NAMES_OF_TYPES
from lethe_spark.je_schema import KEYS
from spark.erase.errors import TreeBroken
from spark.erase.native import types as t
from spark.erase.native.items import parse_node
from spark.erase.reading.columns import FileColumns
from spark.erase.reading.directory import LogFile
from spark.erase.reading.log import numbers
from spark.formats.je import log as je_log
from spark.formats.je.items import SLOT_KNOWN_DELETED, SLOT_PENDING_DELETED
from spark.formats.je.log import EntryType

_TYPES: Final = {"bigint": pa.int64(), "binary": pa.binary(), "int": pa.int32(), "string": pa.string()}
_SCHEMA: Final = pa.schema([(name, _TYPES[kind]) for name, kind in KEYS.items()])
_DELETIONS: Final = frozenset({EntryType.DEL_LN, EntryType.DEL_LN_TX, EntryType.DEL_LN_TX_WITH_BEFORE_IMAGE})
PRESENT, DELETED = "PRESENT", "DELETED"


def key_batches(file: LogFile, columns: FileColumns, directory: str) -> Iterator[Any]:
    """The keys of a file as record batches of `KEYS`.

    Args:
        file: still open, for the slots: nodes are read once more.
    Raises: LogFileChanged, TreeBroken: a node is not what it was.
    """
    yield from _of_records(columns, directory)
    rows: list[dict[str, Any]] = []
    for entry, node_rows in _of_nodes(file, columns):
        name = NAMES_OF_TYPES[entry["type"]]
        common = {"environment": directory, "file": file.name, "lsn": entry["lsn"], "type": name}
        rows += [common | row for row in node_rows]
        if len(rows) >= BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(rows, _SCHEMA)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, _SCHEMA)


def _of_records(columns: FileColumns, directory: str) -> Iterator[Any]:
    types, flags = numbers(columns.entries, "type"), numbers(columns.entries, "flags")
    offsets = numbers(columns.entries, "offset")
    for batch in columns.lns.to_batches(max_chunksize=BATCH_ROWS):
        entry = batch.column("entry").to_numpy()
        count, kinds = len(entry), types[entry]
        lsns = pa.array(offsets[entry].astype(np.int64) | np.int64(columns.number << 32))
        txn = batch.column("txn").to_numpy()
        deletes = np.isin(kinds, list(_DELETIONS))
        says = np.where(deletes, DELETED, PRESENT).astype(object)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(directory), count),
                pa.repeat(pa.scalar(je_log.file_name(columns.number)), count),
                lsns,
                pa.array([NAMES_OF_TYPES[kind] for kind in kinds.tolist()], pa.string()),
                pa.nulls(count, pa.int32()),
                batch.column("db"),
                batch.column("key").cast(pa.binary()),
                lsns,
                pa.array(txn, mask=txn == 0),
                pa.array(says, pa.string(), mask=flags[entry] & je_log.FLAG_INVISIBLE != 0),
            ],
            schema=_SCHEMA,
        )


def _of_nodes(file: LogFile, columns: FileColumns) -> Iterator[tuple[dict[str, int], list[dict[str, Any]]]]:
    """Each node's type and LSN, with its slots."""
    entries = {name: numbers(columns.entries, name) for name in ("type", "flags", "offset", "item_bytes")}
    counts = numbers(columns.nodes, "slots")
    for row, entry in enumerate(numbers(columns.nodes, "entry").tolist()):
        found = {name: int(values[entry]) for name, values in entries.items()}
        found["lsn"] = je_log.lsn_of(columns.number, found["offset"])
        yield found, _slots(file, found, int(counts[row]))


def _slots(file: LogFile, entry: dict[str, int], count: int) -> list[dict[str, Any]]:
    has_vlsn = entry["flags"] & je_log.FLAGS_WITH_VLSN
    header = je_log.HEADER_BYTES_WITH_VLSN if has_vlsn else je_log.HEADER_BYTES
    raw = file.read(entry["offset"] + header, entry["item_bytes"])
    buffer = np.frombuffer(bytearray(raw), dtype=np.uint8)
    slots = np.empty((count, t.SLOT_COLUMNS), dtype=np.int64)
    prefix, node = np.zeros(2, dtype=np.int64), np.empty((1, t.NODE_COLUMNS), dtype=np.int64)
    end = parse_node(buffer, 0, len(buffer), entry["type"], node, 0, slots, prefix)
    if end != len(buffer) or node[0, t.NODE_SLOTS] != count:
        raise TreeBroken("a node changed while it was read", file=file.name, offset=entry["offset"])
    front = raw[int(prefix[0]) : int(prefix[0]) + int(prefix[1])]
    is_leaf = entry["type"] != EntryType.IN
    return [
        {
            "slot": number,
            "db": int(node[0, t.NODE_DB]),
            "key": front + raw[at : at + length],
            "version": None if lsn == je_log.NULL_LSN else lsn,
            "says": _says(state) if is_leaf else None,
        }
        for number, (lsn, state, at, length) in enumerate(slots.tolist())
    ]


def _says(state: int) -> str | None:
    """What a slot of a leaf says of its record; a deletion of a transaction in work says nothing."""
    if state & SLOT_KNOWN_DELETED:
        return DELETED
    return None if state & SLOT_PENDING_DELETED else PRESENT
