"""One batch of a scan, as an engine's workers and a job do it; whoever hands it out waits between two."""

from functools import partial

from spark.extinction.slices import ScanSlice, read_slice
from spark.extinction.unit import SliceMoved, run_batch
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.work import UnitWork


def scan_work(
    target: Target, *, limits: SessionLimits, application_name: str, rows_max: int
) -> UnitWork[ScanSlice, ScanSlice | None]:
    """What a worker does with a slice; picklable.

    Args:
        rows_max: entries of one transaction.
    """
    return UnitWork(
        target=target,
        limits=limits,
        application_name=application_name,
        run=partial(scan_batch, rows_max=rows_max),
    )


def scan_batch(conn: Connection, part: ScanSlice, *, rows_max: int) -> ScanSlice | None:
    """Scan the next rows of a slice, in one transaction; nothing where another worker has moved it since.

    Returns: the slice as it stands then; None: it is gone.
    Raises: TargetError: nothing has changed.
    """
    try:
        return run_batch(conn, part, rows_max=rows_max)
    except SliceMoved:
        return read_slice(conn, part)
