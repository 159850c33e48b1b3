"""Batches of each schema, the forms in which they may come, and what damages them."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from spark.replication.records import entry_schema, local_schema, record_schema

SCHEMAS = {"record": record_schema(), "entry": entry_schema(), "local": local_schema()}
FORMS = ("plain", "large", "view", "dictionary")
COMPRESSIONS = (None, "zstd", "lz4")
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_VIEW = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}


def csn_of(number: int, rid: int) -> str:
    """A CSN that ascends with the number."""
    return f"{0x6553F100 + number // 3:08x}{number % 3:04x}{rid:04x}0000"


def batch_of(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    """A batch of rows."""
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def sample(name: str, rows: int = 12) -> pa.RecordBatch:
    """Some rows with nulls, empty values and several replicas."""
    values = [None if number % 3 == 1 else b"v" * (number * 9) for number in range(rows)]
    if name == "local":
        return batch_of(local_schema(), [(b"db", b"k%d" % number, values[number]) for number in range(rows)])
    csns = [csn_of(number, number % 3 + 1) for number in range(rows)]
    if name == "entry":
        return batch_of(
            entry_schema(),
            [
                (b"db", b"k%03d" % number, values[number], csns[number], values[number] is None)
                for number in range(rows)
            ],
        )
    return batch_of(
        record_schema(),
        [
            (csns[number], csns[number - 3] if number >= 3 else None, "CHANGE", b"db", b"k", values[number])
            for number in range(rows)
        ],
    )


def in_form(batch: pa.RecordBatch, form: str) -> pa.RecordBatch:
    """The same values in another form of their types."""
    columns = []
    for column in batch.columns:
        if form == "dictionary" and column.type != pa.bool_():
            columns.append(column.dictionary_encode())
        else:
            other = {"large": _LARGE, "view": _VIEW}.get(form, {})
            columns.append(column.cast(other.get(column.type, column.type)))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def stream_of(*batches: pa.RecordBatch, compression: str | None = "zstd", **options: Any) -> bytes:
    """An Arrow stream of batches as they are."""
    sink = pa.BufferOutputStream()
    chosen = pa.ipc.IpcWriteOptions(compression=compression, **options)
    with pa.ipc.new_stream(sink, batches[0].schema, options=chosen) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def damaged(body: bytes, rng: random.Random) -> bytes:
    """A body with some of its bytes changed, copied, or cut off."""
    found = bytearray(body)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        place = rng.randrange(len(found))
        kind = rng.randrange(10)
        if kind < 4:
            found[place] ^= 1 << rng.randrange(8)
        elif kind < 6:
            found[place] = rng.choice((0, 255, 127, 128, rng.randrange(256)))
        elif kind == 6:
            found[place : place + 8] = rng.choice(
                (b"\xff" * 8, bytes(8), bytes(5) + b"\1\0\0", rng.randbytes(8))
            )
        elif kind == 7:
            del found[place:]
        elif kind == 8:
            other = rng.randrange(len(found))
            found[place : place + 16] = found[other : other + 16]
        else:
            place &= ~3
            found[place : place + 4] = rng.choice((b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\1\0\0\0"))
        if not found:
            return b""
    return bytes(found)


def fault_of(batch: pa.RecordBatch) -> str | None:
    """What is wrong with a batch by the rules of its columns, row by row: the reference."""
    before: dict[str, dict[str, Any]] = {}
    for row in batch.to_pylist():
        if any(row[field.name] is None for field in batch.schema if not field.nullable):
            return "null"
        if "csn" in row and not is_csn(row["csn"]):
            return "csn"
        group = row["csn"][12:16] if "prev" in row else ""
        check = _record_fault if "prev" in row else _entry_fault if "is_tombstone" in row else _local_fault
        fault = check(row, before.get(group))
        if fault is not None:
            return fault
        before[group] = row
    return None


def _record_fault(row: dict[str, Any], before: dict[str, Any] | None) -> str | None:
    csn, prev = row["csn"], row["prev"]
    if before is not None and csn <= before["csn"]:
        return "order"
    if prev is not None and not (is_csn(prev) and prev < csn and prev[12:16] == csn[12:16]):
        return "prev"
    return None if 1 <= len(row["kind"]) <= 40 and "\0" not in row["kind"] else "kind"


def _entry_fault(row: dict[str, Any], before: dict[str, Any] | None) -> str | None:
    if row["is_tombstone"] != (row["value"] is None):
        return "tombstone"
    if before is not None and (before["database"], before["key"]) >= (row["database"], row["key"]):
        return "order"
    return _local_fault(row, before)


def _local_fault(row: dict[str, Any], _before: dict[str, Any] | None) -> str | None:
    is_kept = (
        1 <= len(row["database"]) <= 255
        and 1 <= len(row["key"]) <= 2_000
        and len(row["value"] or b"") <= 1_048_576
    )
    return None if is_kept else "length"


def is_csn(text: str) -> bool:
    """Whether a text is the CSN of a replica that may write."""
    return (
        len(text) == 20
        and all(char in string.digits + "abcdef" for char in text)
        and 1 <= int(text[12:16], 16) <= 65_534
    )


# -- generated batches

_BYTES = st.binary(max_size=30)
_NAMES = st.binary(min_size=1, max_size=12)


@st.composite
def batches(draw: st.DrawFn, name: str) -> pa.RecordBatch:
    """Right batches of a schema, of 0 to 12 rows."""
    count = draw(st.integers(0, 12))
    if name == "local":
        rows = st.tuples(_NAMES, _NAMES, st.none() | _BYTES)
        return batch_of(local_schema(), draw(st.lists(rows, min_size=count, max_size=count)))
    numbers = st.lists(st.integers(0, 10**9), min_size=count, max_size=count, unique=True)
    csns = [csn_of(number, draw(st.sampled_from((1, 0x00FF, 65_534)))) for number in sorted(draw(numbers))]
    if name == "entry":
        keys = st.lists(st.tuples(_NAMES, _NAMES), min_size=count, max_size=count, unique=True)
        values = [draw(st.none() | _BYTES) for _ in range(count)]
        found = zip(sorted(draw(keys)), values, draw(st.permutations(csns)), strict=True)
        return batch_of(entry_schema(), [(*key, value, csn, value is None) for key, value, csn in found])
    records = []
    newest: dict[str, str] = {}
    kinds = st.text(
        st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=40
    )
    for csn in csns:
        prev = newest.get(csn[12:16])
        newest[csn[12:16]] = csn
        records.append((csn, prev, draw(kinds), draw(_BYTES), draw(_BYTES), draw(st.none() | _BYTES)))
    return batch_of(record_schema(), records)
