"""The changes of a session's windows, in the order of all their CSNs, each read once: rule C, step 5.

A window is one replica's range of CSNs; its changes are read in pages by their key and merged with those of
the others. Nothing of a window changes after its snapshot (preconditions P1 and P2 of `decide`), so the pages
need no common snapshot, and a reader can be put down and begun again behind what was sent.

Invariants:
- a row comes from the database once; what cannot be given yet waits in memory;
- what waits is bounded: the pages of all replicas together by `bytes_max` and PAGE_ROWS, plus one row each;
- a batch keeps both bounds; only a row that is larger than `bytes_max` by itself is given alone;
- each window ends with the change that its RUV names: another end is a hole, never silence.
Source: facts/replication-decision-table, section 6.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from spark.formats.changes.batch import BATCH_BYTES, row_bytes
from spark.formats.changes.checks import csn_column
from spark.formats.part import Part
from spark.replication.proofs.withholding import withhold
from spark.replication.supplier.changelog_pages import (
    BEFORE_ALL,
    ChangelogIncomplete,
    Page,
    range_source,
    read_page,
)
from spark.replication.supplier.decide import Window
from spark.targets.connection import Connection

PAGE_ROWS: Final = 20_000
"""Rows of a page of a replica that is alone; several share them."""
PAGE_ROWS_LEAST: Final = 16


@dataclass(slots=True)
class _Stream:
    """One replica's changes: where its next page begins, and what of the last one waits.

    Attributes:
        named: the change that must be the last one of the window; None: it is not in what is read.
    """

    rid: int
    after: str
    upto: str
    named: str | None
    page_rows: int = PAGE_ROWS_LEAST
    waiting: pa.RecordBatch | None = None

    @property
    def is_read(self) -> bool:
        return self.after >= self.upto

    @property
    def last(self) -> str:
        assert self.waiting is not None
        return str(self.waiting.column("csn")[-1])

    def take(self, upto: str) -> pa.RecordBatch:
        """Give what waits up to a CSN."""
        assert self.waiting is not None
        if self.last <= upto:
            given, self.waiting = self.waiting, None
            return given
        count = int(np.searchsorted(csn_column(self.waiting.column("csn")), upto.encode(), side="right"))
        given, self.waiting = self.waiting[:count], self.waiting[count:]
        return given


class WindowReader:
    """An iterator of batches (`record_schema`) in the order of all CSNs; ends when all windows were given.

    Args:
        conn: used for each page, free between two batches.
        bytes_max: what a batch may take once it is decoded (`decode_arrow`).
        start_after: by replica, what was sent already of its window.
        stop_at: the greatest CSN that is read, of whatever replica; None: all.
        part: which keys the consumer holds; None: all.
    Raises: ChangelogIncomplete: when a window's last change is not there. ChangelogDamaged. TargetError.
    """

    def __init__(
        self,
        conn: Connection,
        windows: Mapping[int, Window],
        *,
        rows_max: int,
        bytes_max: int,
        start_after: Mapping[int, str] | None = None,
        stop_at: str | None = None,
        part: Part | None = None,
    ) -> None:
        assert rows_max >= 1, rows_max
        assert bytes_max >= 1, bytes_max
        self._conn = conn
        self._part = part
        self._bytes_max = bytes_max
        done = start_after or {}
        streams = (
            _stream(rid, window, done.get(rid), stop_at=stop_at) for rid, window in sorted(windows.items())
        )
        self._open = [stream for stream in streams if not stream.is_read]
        self._outbox = Outbox(rows_max=rows_max, bytes_max=bytes_max)
        self.read: Counter[int] = Counter()
        """Rows that came from the database, by replica."""

    @property
    def rows_read(self) -> int:
        """Rows that came from the database."""
        return self.read.total()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        while self._open and not self._outbox.is_full:
            self._merge_next()
        batch = self._outbox.take()
        if batch is None:
            raise StopIteration
        return batch

    def _merge_next(self) -> None:
        """Fill what is empty, then move on what no later page can come before."""
        for stream in self._open:
            if stream.waiting is None:
                self._fill(stream)
        self._open = [stream for stream in self._open if stream.waiting is not None]
        if not self._open:
            return
        unread = [stream.last for stream in self._open if not stream.is_read]
        safe = min(unread) if unread else max(stream.last for stream in self._open)
        parts = [stream.take(safe) for stream in self._open]
        self._open = [stream for stream in self._open if stream.waiting is not None or not stream.is_read]
        self._outbox.put(_merged([part for part in parts if len(part)]))

    def _fill(self, stream: _Stream) -> None:
        """Read the next page; how large it may be follows from how many share the memory, and how it went."""
        sharing = len(self._open)
        most = max(PAGE_ROWS_LEAST, PAGE_ROWS // sharing)
        page = Page(
            range_source(self._conn, rid=stream.rid),
            {"after": stream.after, "upto": stream.upto},
            rows_max=min(stream.page_rows, most),
            bytes_max=max(1, self._bytes_max // sharing),
        )
        found = read_page(self._conn, page)
        if not len(found):
            if stream.named is not None:
                last = None if stream.after == BEFORE_ALL else stream.after
                raise ChangelogIncomplete(rid=stream.rid, upto=stream.named, last=last)
            stream.after = stream.upto
            return
        self.read[stream.rid] += len(found)
        is_cut = len(found) < page.rows_max
        stream.page_rows = max(PAGE_ROWS_LEAST, 2 * len(found)) if is_cut else min(most, 16 * page.rows_max)
        stream.waiting = withhold(found, self._part)
        stream.after = stream.last


class Outbox:
    """Rows in their final order, cut into batches of bounded rows and bytes."""

    def __init__(self, *, rows_max: int, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = max(1, bytes_max - BATCH_BYTES)
        self._parts: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether a batch is complete, whatever comes after it."""
        return self._rows >= self._rows_max or self._bytes >= self._bytes_max

    def put(self, part: pa.RecordBatch) -> None:
        """Add rows behind the others."""
        self._parts.append(part)
        self._rows += len(part)
        self._bytes += int(row_bytes(part).sum())

    def take(self) -> pa.RecordBatch | None:
        """Give the next batch, the last one may be small; None: there is nothing."""
        if not self._rows:
            return None
        whole = self._parts[0] if len(self._parts) == 1 else pa.concat_batches(self._parts)
        sizes = np.cumsum(row_bytes(whole[: self._rows_max]))
        count = max(1, int(np.searchsorted(sizes, self._bytes_max, side="right")))
        self._parts = [whole[count:]] if count < len(whole) else []
        self._rows -= count
        self._bytes -= int(sizes[count - 1])
        return whole[:count]


def _stream(rid: int, window: Window, done: str | None, *, stop_at: str | None) -> _Stream:
    after = max(str(window.after or BEFORE_ALL), str(done or BEFORE_ALL))
    upto = str(window.upto)
    if stop_at is not None and stop_at < upto:
        return _Stream(rid, after, stop_at, named=None)
    return _Stream(rid, after, upto, named=upto)


def _merged(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    whole = pa.concat_batches(parts)
    return whole.take(pa.array(np.argsort(csn_column(whole.column("csn")), kind="stable")))
