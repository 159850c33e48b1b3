"""Slices of a window, mapped over an engine's workers, and their batches in order.

The engine is the caller's (the exchange over Spark, or threads): it runs `slice_work` on the slices that are
drawn and gives outcomes as they end, in any order. The batches come out as a session sends them, encoded.

Invariants:
- at most `ahead` slices are read and not yet given, whichever of them is slow: their files bound the spool;
- a file goes when its last batch was given, the folder with everything in it at the end;
- a worker that does not see the folder writes nothing: the work is refused.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from spark.formats.changes.batch import decode_arrow
from spark.replication.proofs.proved_batches import encode_proved
from spark.replication.records import record_schema
from spark.replication.supplier.decide import Window
from spark.replication.supplier.slices import (
    Bounds,
    RidRows,
    Slice,
    SpooledSlice,
    plan_slices,
    ranges_of,
    spool_slice,
)
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.errors import TargetCancelled
from spark.targets.work import Outcome, UnitWork

AHEAD: Final = 8
MapSlices = Callable[[Iterator[Slice]], Iterator[Outcome[Slice, SpooledSlice]]]


@dataclass(frozen=True, slots=True)
class SlicedBatch:
    """A batch, encoded: what `encode_arrow` gives, and what is in it by replica."""

    rows: int
    ranges: Mapping[int, RidRows]
    body: bytes

    def records(self) -> pa.RecordBatch:
        """Read it back."""
        return decode_arrow(self.body, record_schema(), rows_max=self.rows, bytes_max=2**31 - 1)


@contextmanager
def spool_folder(root: str | Path) -> Iterator[str]:
    """A new folder for the files of one session, gone at the end with what is in it.

    Args:
        root: a directory that the workers see too.
    """
    folder = tempfile.mkdtemp(prefix="lethe-slices-", dir=root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def slice_work(
    target: Target, *, limits: SessionLimits, application_name: str, folder: str, bounds: Bounds
) -> UnitWork[Slice, SpooledSlice]:
    """What a worker does with slices; picklable."""
    return UnitWork(
        target=target,
        limits=limits,
        application_name=application_name,
        run=partial(spool_slice, folder=folder, bounds=bounds),
        folder=folder,
    )


class SlicedReader:
    """An iterator of SlicedBatch: the same records in the same order as WindowReader, cut at slices too.

    Args:
        conn: plans the slices, and reads what did not fit into a file; used by the iterating thread only.
        map_slices: an engine lease's `map` of `slice_work`.
        ahead: slices that may be read and not given yet.
    Raises: what a slice's reader raises; TargetError; TargetCancelled: the engine drops slices, because the
        job may not go on; what the engine raises.
    """

    def __init__(
        self,
        conn: Connection,
        windows: Mapping[int, Window],
        *,
        bounds: Bounds,
        map_slices: MapSlices,
        ahead: int = AHEAD,
    ) -> None:
        assert ahead >= 1, ahead
        self._conn = conn
        self._bounds = bounds
        self._map = map_slices
        self._ahead = ahead
        self._planned = plan_slices(conn, windows, bounds)
        self._is_planned = False
        self._drawn = 0
        self._given = 0
        self.read: Counter[int] = Counter()
        """Rows that came from the database, by replica."""

    @property
    def slices(self) -> int:
        """How many have been given whole."""
        return self._given

    @property
    def rows_read(self) -> int:
        """Rows that came from the database."""
        return self.read.total()

    def __iter__(self) -> Iterator[SlicedBatch]:
        ended: dict[int, tuple[Slice, SpooledSlice]] = {}
        while not self._is_planned or self._given < self._drawn:
            before = self._given
            # The engine draws until the spool is full, and again when some of it was given.
            for outcome in self._map(self._drawable()):
                if outcome.error is not None:
                    raise outcome.error
                assert outcome.result is not None, "a slice without an error has a file"
                ended[outcome.unit.number] = (outcome.unit, outcome.result)
                while self._given in ended:
                    yield from self._give(*ended.pop(self._given))
                    self._given += 1
            if self._given < self._drawn or (self._given == before and not self._is_planned):
                raise TargetCancelled("the engine takes no more slices: the job stops")

    def _drawable(self) -> Iterator[Slice]:
        while not self._is_planned and self._drawn < self._given + self._ahead:
            unit = next(self._planned, None)
            if unit is None:
                self._is_planned = True
                return
            self._drawn += 1
            yield unit

    def _give(self, unit: Slice, spooled: SpooledSlice) -> Iterator[SlicedBatch]:
        self.read.update(spooled.read)
        try:
            with open(spooled.path, "rb") as file:
                for batch in spooled.batches:
                    file.seek(batch.offset)
                    yield SlicedBatch(batch.rows, batch.ranges, file.read(batch.size))
        finally:
            with suppress(OSError):
                Path(spooled.path).unlink()
        if spooled.refusal is not None:
            raise spooled.refusal
        if spooled.left_after is None:
            return
        rest = unit.reader(self._conn, self._bounds, after=spooled.left_after)
        for found in rest:
            yield SlicedBatch(len(found), ranges_of(found), encode_proved(self._conn, found))
        self.read.update(rest.read)
