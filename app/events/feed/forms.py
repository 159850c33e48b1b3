"""The two forms that a feed is sent in: a JSON object on each line, or an Arrow IPC stream."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, Protocol

from spark.events.feed.records import Change, Position
from spark.events.feed.snapshot import TxidSnapshot
from spark.formats.arrow import pa
from spark.formats.changes.batch import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE

_COLUMNS: Final = {
    "seqno": "int64",
    "kind": "string",
    "actionseq": "int64",
    "txid": "int64",
    "set": "int32",
    "table_id": "int32",
    "schema": "string",
    "table": "string",
    "key": "string",
    "values": "string",
    "detail": "string",
}
_ALWAYS: Final = frozenset({"seqno", "kind"})
_JSON_FROM: Final = list(_COLUMNS).index("key")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
"""What json.dumps would make anew for each record."""


@cache
def arrow_schema() -> pa.Schema:
    """`key`, `values` and `detail` are JSON."""
    return pa.schema(
        [
            pa.field(name, pa.type_for_alias(alias), nullable=name not in _ALWAYS)
            for name, alias in _COLUMNS.items()
        ]
    )


class Form(Protocol):
    """Turns blocks of records into bytes; one for each answer."""

    media_type: str

    def begin(self, start: Position, copied: TxidSnapshot | None = None) -> bytes: ...

    def block(self, changes: Sequence[Change]) -> bytes: ...

    def end(self) -> bytes: ...

    def failed(self, code: str, detail: str) -> bytes | None:
        """What says that the stream ends here; None: it can only be cut off."""


def form_of(accept: str) -> Form:
    """The form that a client accepts; a line for each record where it does not ask for Arrow."""
    return ArrowForm() if ARROW_MEDIA_TYPE in accept else LinesForm()


class LinesForm:
    """NDJSON: fields that have no value are left out."""

    media_type = NDJSON_MEDIA_TYPE

    def begin(self, start: Position, copied: TxidSnapshot | None = None) -> bytes:
        """The line that tells where the units begin; of a copy also which snapshot it sees."""
        told: dict[str, Any] = {"kind": "START", "origin": start.origin, "seqno": start.seqno}
        told["snapshot"] = str(start.snapshot)
        return _line(told if copied is None else told | {"detail": {"copied": str(copied)}})

    def block(self, changes: Sequence[Change]) -> bytes:
        """A line for each record."""
        return b"".join(_line(shown(change)) for change in changes)

    def end(self) -> bytes:
        """Nothing: the last SYNC is the end."""
        return b""

    def failed(self, code: str, detail: str) -> bytes | None:
        """A line of kind ERROR: what follows the last SYNC is not whole."""
        return _line({"kind": "ERROR", "code": code, "detail": detail})


class ArrowForm:
    """Arrow IPC; a stream without its end mark was cut off."""

    media_type = ARROW_MEDIA_TYPE

    def __init__(self) -> None:
        self._sink = io.BytesIO()
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def begin(self, start: Position, copied: TxidSnapshot | None = None) -> bytes:
        """The schema; its metadata tells where the units begin."""
        metadata = {"origin": str(start.origin), "seqno": str(start.seqno), "snapshot": str(start.snapshot)}
        if copied is not None:
            metadata["copied"] = str(copied)
        self._writer = pa.ipc.new_stream(self._sink, arrow_schema().with_metadata(metadata))
        return self._taken()

    def block(self, changes: Sequence[Change]) -> bytes:
        """A record batch."""
        assert self._writer is not None, "it begins with the schema"
        columns = list(zip(*changes, strict=True))
        arrays = [
            pa.array(map(_json, column) if at >= _JSON_FROM else column, field.type)
            for at, (field, column) in enumerate(zip(arrow_schema(), columns, strict=True))
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=arrow_schema()))
        return self._taken()

    def end(self) -> bytes:
        """The end mark."""
        assert self._writer is not None, "it begins with the schema"
        self._writer.close()
        return self._taken()

    def failed(self, code: str, detail: str) -> bytes | None:
        """No end mark: the reader finds the stream cut off."""
        return None

    def _taken(self) -> bytes:
        """What was written since the last call."""
        found = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return found


def shown(change: Change) -> dict[str, Any]:
    """A record as a line has it."""
    return {name: value for name, value in zip(_COLUMNS, change, strict=True) if value is not None}


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else _ENCODER.encode(value)


def _line(record: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(record).encode() + b"\n"
