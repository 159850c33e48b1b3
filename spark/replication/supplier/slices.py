"""A large window in slices: cut by CSN into parts of about equal size, each read and encoded by itself.

A slice is a range of CSNs over all replicas of the windows. Where the cuts lie is found by stepping over the
key, without fetching rows; whoever reads a slice writes its batches, as they will travel, to one file.

Rules:
- the slices lie side by side: every change of the windows is in one of them, in their order;
- a file is complete when it is told of; one of another attempt has another name, and nobody reads it;
- a file has an end: what does not fit any more is left to whoever asked for the slice;
- what the changelog refuses is told with the batches before it, as one reader alone would have met it.
"""

import heapq
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from spark.formats.changes.checks import rids_of
from spark.formats.part import Part
from spark.formats.replica import tables_of
from spark.replication.errors import ReplicationRefused
from spark.replication.proofs.proved_batches import encode_proved
from spark.replication.supplier.changelog_pages import AFTER_ALL, BEFORE_ALL, ONLY_BY_KEY
from spark.replication.supplier.decide import Window
from spark.replication.supplier.window import WindowReader
from spark.targets.connection import Connection
from spark.targets.errors import TargetError

SLICE_ROWS: Final = 50_000
SLICE_BYTES: Final = 64 * 1_048_576
"""Of keys and values; an estimate by one row of each step."""
FILE_MAX_BYTES: Final = 256 * 1_048_576
STEPS_PER_SLICE: Final = 4
STEP_FIRST: Final = 64
_ROW_BYTES: Final = 100


class SpoolFailed(TargetError):
    """The file of a slice could not be written."""

    code = "SPOOL_FAILED"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a batch may be, and a slice.

    Attributes:
        part: which keys the consumer holds; None: all.
    """

    rows_max: int
    bytes_max: int
    slice_rows: int = SLICE_ROWS
    slice_bytes: int = SLICE_BYTES
    file_max_bytes: int = FILE_MAX_BYTES
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """The changes of the windows above a CSN, up to and with another; picklable."""

    number: int
    windows: Mapping[int, Window]
    above: str
    upto: str

    def reader(self, conn: Connection, bounds: Bounds, *, after: str | None = None) -> WindowReader:
        """Read it, or what of it lies behind a CSN."""
        start = self.above if after is None else after
        return WindowReader(
            conn,
            self.windows,
            rows_max=bounds.rows_max,
            bytes_max=bounds.bytes_max,
            start_after=dict.fromkeys(self.windows, start),
            stop_at=self.upto,
            part=bounds.part,
        )


@dataclass(frozen=True, slots=True)
class RidRows:
    """The changes of one replica in a batch: how many, the first and the last."""

    rows: int
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """Where in its file a batch lies, and what it holds."""

    offset: int
    size: int
    rows: int
    ranges: Mapping[int, RidRows]


@dataclass(frozen=True, slots=True)
class SpooledSlice:
    """The file of a slice.

    Attributes:
        left_after: the file has reached its end here, and the slice has not; None: it is whole.
        read: rows that came from the database, by replica.
        refusal: why the reader has ended behind the last batch; it is a value, for a worker's error would be
            taken for a mistake in a program.
    """

    path: str
    batches: tuple[SpooledBatch, ...]
    left_after: str | None
    read: Mapping[int, int]
    refusal: ReplicationRefused | None = None


@dataclass(frozen=True, slots=True, order=True)
class _Step:
    """One replica's changes up to a CSN since the step before it: how many, and about how large together."""

    csn: str
    rows: int
    size: int


def plan_slices(conn: Connection, windows: Mapping[int, Window], bounds: Bounds) -> Iterator[Slice]:
    """Cut windows into slices, each when it is asked for; there is always one."""
    most = max(1, bounds.slice_rows // (STEPS_PER_SLICE * max(1, len(windows))))
    size_max = max(1, bounds.slice_bytes // (STEPS_PER_SLICE * max(1, len(windows))))
    steps = [_steps(conn, rid, window, most, size_max) for rid, window in windows.items()]
    number = rows = size = 0
    above = BEFORE_ALL
    for step in heapq.merge(*steps):
        rows, size = rows + step.rows, size + step.size
        if rows >= bounds.slice_rows or size >= bounds.slice_bytes:
            yield Slice(number, windows, above, step.csn)
            number, rows, size, above = number + 1, 0, 0, step.csn
    yield Slice(number, windows, above, AFTER_ALL)


def _steps(conn: Connection, rid: int, window: Window, most: int, size_max: int) -> Iterator[_Step]:
    """Walk over one replica's changes, in longer steps the smaller they are."""
    changelog = tables_of(conn).changelog
    length = "octet_length" if conn.dialect.name == "postgresql" else "length"
    sql = (
        f"select csn, coalesce({length}(payload), 0) + {length}(key) from {changelog}"
        f" where rid = {rid} and csn > :after and csn <= :upto order by csn limit 1 offset :passed"
    )
    after, rows = str(window.after or BEFORE_ALL), min(most, STEP_FIRST)
    while True:
        params = {"after": after, "upto": str(window.upto), "passed": rows - 1}
        with conn.transaction(read_only=True):
            if conn.dialect.name == "postgresql":
                conn.execute(ONLY_BY_KEY)
            found = conn.execute(sql, params)
        if not found:
            return
        [(after, length_found)] = found
        row_size = length_found + _ROW_BYTES
        yield _Step(after, rows, rows * row_size)
        rows = max(1, min(most, STEPS_PER_SLICE * rows, size_max // row_size))


def spool_slice(conn: Connection, unit: Slice, *, folder: str, bounds: Bounds) -> SpooledSlice:
    """Read a slice and write its batches, encoded, to a new file of the folder.

    Raises: SpoolFailed. TargetError.
    """
    path = Path(folder) / f"slice-{unit.number:06d}-{secrets.token_hex(8)}.batches"
    is_complete = False
    try:
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            spooled = _spool(conn, file, unit.reader(conn, bounds), path, bounds)
        is_complete = True
    except OSError as error:
        raise SpoolFailed(f"{path}: {error.strerror}") from error
    finally:
        if not is_complete:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return spooled


def _spool(
    conn: Connection, file: BinaryIO, reader: WindowReader, path: Path, bounds: Bounds
) -> SpooledSlice:
    batches: list[SpooledBatch] = []
    offset = 0
    left_after = refusal = None
    found = iter(reader)
    while True:
        try:
            batch = next(found, None)
        except ReplicationRefused as refused:
            refusal = refused
            break
        if batch is None:
            break
        body = encode_proved(conn, batch)
        if batches and offset + len(body) > bounds.file_max_bytes:
            # What the reader has beyond this is read again by whoever reads on.
            left_after = max(each.last for each in batches[-1].ranges.values())
            break
        file.write(body)
        batches.append(SpooledBatch(offset, len(body), len(batch), ranges_of(batch)))
        offset += len(body)
    return SpooledSlice(str(path), tuple(batches), left_after, dict(reader.read), refusal)


def ranges_of(batch: pa.RecordBatch) -> dict[int, RidRows]:
    """What a batch of records holds, by replica; within one they stand in the order of their CSNs."""
    csns = batch.column("csn")
    rids = pa.array(rids_of(csns)).dictionary_encode()
    found = {}
    for index, rid in enumerate(rids.dictionary.to_pylist()):
        own = csns.filter(pa.compute.equal(rids.indices, index)) if len(rids.dictionary) > 1 else csns
        found[rid] = RidRows(len(own), own[0].as_py(), own[-1].as_py())
    return found
