"""A slice scanned to its end, without whoever would hand out its batches."""

from __future__ import annotations

from spark.extinction.run import scan_batch
from spark.extinction.slices import ScanSlice
from spark.targets.connection import Connection


def scan_slice(conn: Connection, part: ScanSlice, *, rows_max: int) -> None:
    """Batch after batch, to its end."""
    left: ScanSlice | None = part
    while left is not None and not left.is_done:
        left = scan_batch(conn, left, rows_max=rows_max)
    assert left is not None, "nobody takes it away here"
