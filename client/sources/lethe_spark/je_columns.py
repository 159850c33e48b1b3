"""The entries of one log file as Arrow batches of `lethe_je`: a row for each entry, in their order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark.erase.reading.columns import FileColumns, Rare
from spark.erase.reading.log import numbers
from spark.formats.je import log as je_log
from spark.formats.je.items import LN_EMBEDDED, NODE_LEVEL_MASK, CheckpointEnd, RareLn
from spark.formats.je.log import NULL_LSN, EntryType

BATCH_ROWS: Final = 65_536
NAMES_OF_TYPES: Final = {int(each): each.name for each in EntryType}
_TYPE_TEXTS: Final = pa.array([NAMES_OF_TYPES.get(number) for number in range(256)], pa.string())
_RARE_TYPES: Final[dict[str, Any]] = {
    "first_active": pa.int64(),
    "start": pa.int64(),
    "name": pa.string(),
    "root": pa.int64(),
    "id": pa.int64(),
    "deleted": pa.bool_(),
}

Ints = NDArray[np.int64]
Numbers = NDArray[Any]


@dataclass(slots=True)
class Rows:
    """Some entries of a file, and where in its other tables their rows are; -1: they have none there."""

    file: FileColumns
    directory: str
    chosen: Ints
    ln: Ints
    node: Ints
    end: Ints
    rare: dict[int, Rare]

    def entry(self, name: str) -> Numbers:
        """A column of the table ENTRIES."""
        found: Numbers = numbers(self.file.entries, name)[self.chosen]
        return found


Build = Callable[[Rows], Any]


def _same(text: Callable[[Rows], str]) -> Build:
    return lambda rows: pa.repeat(pa.scalar(text(rows), pa.string()), len(rows.chosen))


def _offset(rows: Rows) -> Any:
    return pa.array(rows.entry("offset").astype(np.int64))


def _lsn(rows: Rows) -> Any:
    return pa.array(rows.entry("offset").astype(np.int64) | np.int64(rows.file.number << 32))


def _type(rows: Rows) -> Any:
    return _TYPE_TEXTS.take(pa.array(rows.entry("type")))


def _flags(rows: Rows) -> Any:
    return pa.array(rows.entry("flags").astype(np.int16))


def _invisible(rows: Rows) -> Any:
    return pa.array(rows.entry("flags") & je_log.FLAG_INVISIBLE != 0)


def _vlsn(rows: Rows) -> Any:
    return pa.array(rows.entry("vlsn"), mask=rows.entry("flags") & je_log.FLAGS_WITH_VLSN == 0)


def _all_zero(rows: Rows) -> Any:
    return pa.array(rows.entry("all_zero") != 0, mask=rows.entry("type") != EntryType.ERASED)


def _of(table: Any, name: str, at: Ints) -> Numbers:
    """Values of a column at places of its table; anything where the place is -1."""
    column: Numbers = numbers(table, name)
    return column[at] if len(column) else np.zeros(len(at), dtype=column.dtype)


def _of_ln(name: str, nothing: int | None = None) -> Build:
    def build(rows: Rows) -> Any:
        values = _of(rows.file.lns, name, rows.ln)
        mask = rows.ln < 0
        return pa.array(values, mask=mask if nothing is None else mask | (values == nothing))

    return build


def _of_node(name: str) -> Build:
    def build(rows: Rows) -> Any:
        return pa.array(_of(rows.file.nodes, name, rows.node), mask=rows.node < 0)

    return build


def _db(rows: Rows) -> Any:
    lns, nodes = _of(rows.file.lns, "db", rows.ln), _of(rows.file.nodes, "db", rows.node)
    return pa.array(np.where(rows.ln >= 0, lns, nodes), mask=(rows.ln < 0) & (rows.node < 0))


def _txn(rows: Rows) -> Any:
    lns, ends = _of(rows.file.lns, "txn", rows.ln), _of(rows.file.ends, "txn", rows.end)
    values = np.where(rows.ln >= 0, lns, ends)
    return pa.array(values, mask=((rows.ln < 0) & (rows.end < 0)) | ((rows.ln >= 0) & (values == 0)))


def _level(rows: Rows) -> Any:
    return pa.array(_of(rows.file.nodes, "level", rows.node) & NODE_LEVEL_MASK, mask=rows.node < 0)


def _embedded(rows: Rows) -> Any:
    return pa.array(_of(rows.file.lns, "flags", rows.ln) & LN_EMBEDDED != 0, mask=rows.ln < 0)


def _key(rows: Rows) -> Any:
    keys = rows.file.lns["key"].combine_chunks()
    if not len(keys):
        return pa.nulls(len(rows.chosen), pa.binary())
    return pc.cast(keys.take(pa.array(rows.ln, mask=rows.ln < 0)), pa.binary())


def _of_rare(name: str) -> Build:
    def build(rows: Rows) -> Any:
        values: list[Any] = [None] * len(rows.chosen)
        if rows.rare:
            places, chosen = np.fromiter(rows.rare, np.int64), rows.chosen
            at = np.searchsorted(chosen, places)
            for row, place in zip(at.tolist(), places.tolist(), strict=True):
                if row < len(chosen) and chosen[row] == place:
                    values[row] = _rare(rows.rare[place]).get(name)
        return pa.array(values, _RARE_TYPES[name])

    return build


def _rare(rare: Rare) -> dict[str, Any]:
    if isinstance(rare, CheckpointEnd):
        return {"first_active": _lsn_or_none(rare.first_active_lsn), "start": _lsn_or_none(rare.start_lsn)}
    if isinstance(rare, RareLn) and rare.database is not None:
        root = _lsn_or_none(rare.database.root_lsn)
        return {"name": rare.database.name, "root": root, "deleted": rare.deleted}
    if isinstance(rare, RareLn) and rare.named_id is not None:
        name = rare.key.decode(errors="replace")
        return {"name": name, "id": rare.named_id, "deleted": rare.deleted}
    return {}


def _lsn_or_none(lsn: int) -> int | None:
    return None if lsn == NULL_LSN else lsn


def _last_full(rows: Rows) -> Any:
    values = _of(rows.file.nodes, "last_full", rows.node)
    return pa.array(values, mask=(rows.node < 0) | (values == NULL_LSN))


COLUMNS: Final[dict[str, tuple[Any, Build]]] = {
    "environment": (pa.string(), _same(lambda rows: rows.directory)),
    "file": (pa.string(), _same(lambda rows: je_log.file_name(rows.file.number))),
    "offset": (pa.int64(), _offset),
    "lsn": (pa.int64(), _lsn),
    "type": (pa.string(), _type),
    "item_bytes": (pa.int32(), lambda rows: pa.array(rows.entry("item_bytes"))),
    "flags": (pa.int16(), _flags),
    "invisible": (pa.bool_(), _invisible),
    "vlsn": (pa.int64(), _vlsn),
    "all_zero": (pa.bool_(), _all_zero),
    "db": (pa.int64(), _db),
    "key": (pa.binary(), _key),
    "value_bytes": (pa.int32(), _of_ln("value_bytes")),
    "txn": (pa.int64(), _txn),
    "abort_lsn": (pa.int64(), _of_ln("abort_lsn", NULL_LSN)),
    "embedded": (pa.bool_(), _embedded),
    "expiration": (pa.int32(), _of_ln("expiration", 0)),
    "node": (pa.int64(), _of_node("node")),
    "level": (pa.int32(), _level),
    "slots": (pa.int32(), _of_node("slots")),
    "last_full": (pa.int64(), _last_full),
    "first_active": (pa.int64(), _of_rare("first_active")),
    "start": (pa.int64(), _of_rare("start")),
    "name": (pa.string(), _of_rare("name")),
    "root": (pa.int64(), _of_rare("root")),
    "id": (pa.int64(), _of_rare("id")),
    "deleted": (pa.bool_(), _of_rare("deleted")),
}
"""Name: type in Arrow, how it is made; the names are those of `je_schema`."""


def batches(
    file: FileColumns, directory: str, names: Sequence[str], *, types: frozenset[int] | None
) -> Iterator[Any]:
    """The entries of a file as record batches of some columns.

    Args:
        types: only entries of these types; None: all.
    """
    schema = pa.schema([(name, COLUMNS[name][0]) for name in names])
    count = file.entries.num_rows
    chosen = np.arange(count, dtype=np.int64)
    if types is not None:
        chosen = chosen[np.isin(numbers(file.entries, "type"), list(types))]
    ln, node, end = (_places(table, count) for table in (file.lns, file.nodes, file.ends))
    rare: dict[int, Rare] = {entry: each for entry, each in file.rare if each is not None}
    for at in range(0, len(chosen), BATCH_ROWS):
        some = chosen[at : at + BATCH_ROWS]
        rows = Rows(file, directory, some, ln[some], node[some], end[some], rare)
        arrays = [COLUMNS[name][1](rows) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _places(table: Any, count: int) -> Ints:
    found = np.full(count, -1, dtype=np.int64)
    found[numbers(table, "entry")] = np.arange(table.num_rows, dtype=np.int64)
    return found
