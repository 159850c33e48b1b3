"""What the messages of an Arrow IPC stream claim to decode to, found out before anything is decoded.

A compressed buffer begins with its decoded length, and Arrow allocates that much before it decompresses: a
body of a hundred bytes could claim gigabytes. Arrow frames and verifies the messages; the few numbers that it
does not hand out are read here from their flatbuffers.

Rules:
- no number that a body claims makes anything be allocated or skipped before it was compared with a bound;
- messages of the version before 5 are refused: there the codec stood elsewhere, unseen from here;
- the stream ends with its end mark and nothing follows, so that a cut between two messages shows too.
Source: the Arrow columnar format, Message.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from spark.formats.arrow import pa
from spark.formats.changes.errors import BatchTooLarge, BatchUnreadable

MESSAGES_MAX: Final = 10_000
_METADATA_V5: Final = 4
_END_MARK: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_LENGTH_BYTES: Final = 8
_NOT_COMPRESSED: Final = -1


@dataclass(frozen=True, slots=True)
class Claim:
    """What a whole stream would decode to: rows of its batches, bytes of all its buffers."""

    rows: int
    bytes: int


class _Table:
    """One table of a flatbuffer; a field that is absent has its default."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        self._fields = position - _number(data, "<i", position)
        self._fields_bytes = _number(data, "<H", self._fields)

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        return cls(data, _number(data, "<I", 0))

    def scalar(self, field: int, form: str, default: int = 0) -> int:
        place = self._place(field)
        return default if place is None else _number(self._data, form, place)

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        return None if place is None else _Table(self._data, place + _number(self._data, "<I", place))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two 64-bit numbers."""
        place = self._place(field)
        if place is None:
            return
        start = place + _number(self._data, "<I", place)
        count = _number(self._data, "<I", start)
        if start + 4 + 16 * count > len(self._data):
            raise BatchUnreadable("a vector of a message goes past its end")
        for index in range(count):
            at = start + 4 + 16 * index
            yield _number(self._data, "<q", at), _number(self._data, "<q", at + 8)

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._fields_bytes:
            return None
        offset = _number(self._data, "<H", self._fields + entry)
        return self._position + offset if offset else None


def measure_stream(body: pa.Buffer, *, rows_max: int, bytes_max: int) -> Claim:
    """Walk over the messages of a stream; nothing of their bodies is decoded.

    Raises: BatchUnreadable: no whole stream. BatchTooLarge: it claims more than the bounds, or has more than
        MESSAGES_MAX messages. What pyarrow raises of a broken message.
    """
    source = pa.BufferReader(body)
    rows = size = 0
    end = 0
    for number, message in enumerate(pa.ipc.MessageReader.open_stream(source)):
        if number >= MESSAGES_MAX:
            raise BatchTooLarge(f"more than {MESSAGES_MAX} messages")
        claim = _measure(message, is_first=number == 0)
        rows, size = rows + claim.rows, size + claim.bytes
        if rows > rows_max:
            raise BatchTooLarge(f"{rows} rows, {rows_max} at most")
        if size > bytes_max:
            raise BatchTooLarge(f"decodes to {size} bytes or more, {bytes_max} at most")
        end = source.tell()
    if end == 0:
        raise BatchUnreadable("there is no schema: the body is empty, or no Arrow stream")
    _check_end(body, end)
    return Claim(rows, size)


def _check_end(body: pa.Buffer, end: int) -> None:
    """After the last message comes the end mark, and nothing after it."""
    left = bytes(memoryview(body)[end:])
    if not left.startswith(_END_MARK):
        raise BatchUnreadable("the stream has no end mark: it is cut off")
    if len(left) > len(_END_MARK):
        raise BatchUnreadable(f"{len(left) - len(_END_MARK)} bytes follow the end of the stream")


def _measure(message: pa.ipc.Message, *, is_first: bool) -> Claim:
    root = _Table.root(memoryview(message.metadata))
    if root.scalar(0, "<h") != _METADATA_V5:
        raise BatchUnreadable("the messages are not of metadata version 5")
    kind = root.scalar(1, "<B")
    if is_first != (kind == _SCHEMA):
        raise BatchUnreadable("the stream does not begin with its one schema")
    if kind == _SCHEMA:
        return Claim(0, 0)
    header = root.table(2)
    if kind not in (_DICTIONARY, _BATCH) or header is None:
        raise BatchUnreadable(f"a message of kind {kind} is no record batch")
    if kind == _BATCH:
        return Claim(_length(header), _decoded_bytes(header, message.body))
    if header.scalar(2, "<B"):
        raise BatchUnreadable("dictionaries that are continued are not read")
    values = header.table(1)
    if values is None:
        raise BatchUnreadable("a dictionary has no values")
    _length(values)
    return Claim(0, _decoded_bytes(values, message.body))


def _length(batch: _Table) -> int:
    length = batch.scalar(0, "<q")
    if length < 0:
        raise BatchUnreadable(f"a batch of {length} rows")
    return length


def _decoded_bytes(batch: _Table, body: pa.Buffer | None) -> int:
    """Add up what the buffers of a batch decode to."""
    data = memoryview(b"" if body is None else body)
    is_compressed = batch.table(3) is not None
    total = 0
    for offset, length in batch.pairs(2):
        if offset < 0 or length < 0 or offset + length > len(data):
            raise BatchUnreadable("a buffer lies outside its message")
        total += _decoded_length(data, offset, length) if is_compressed and length else length
    return total


def _decoded_length(data: memoryview, offset: int, length: int) -> int:
    if length < _LENGTH_BYTES:
        raise BatchUnreadable("a compressed buffer is too short for its length")
    claimed = _number(data, "<q", offset)
    if claimed == _NOT_COMPRESSED:
        return length - _LENGTH_BYTES
    if claimed < 0:
        raise BatchUnreadable(f"a buffer claims {claimed} bytes")
    return claimed


def _number(data: memoryview, form: str, position: int) -> int:
    if not 0 <= position <= len(data) - struct.calcsize(form):
        raise BatchUnreadable("a message points outside itself")
    found: int = struct.unpack_from(form, data, position)[0]
    return found
