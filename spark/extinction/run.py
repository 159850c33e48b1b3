"""One batch of a scan, as an engine's workers and a job do it; whoever hands it out waits between two."""

from dataclasses import dataclass

from spark.extinction.slices import ScanSlice, read_slice
from spark.extinction.unit import SliceMoved, run_batch
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.work import UnitWork


@dataclass(frozen=True, slots=True)
class ScanUnit:
    """The next entries of a slice, at most `rows_max` of them, in one transaction; picklable."""

    part: ScanSlice
    rows_max: int

    @property
    def unit_id(self) -> str:
        """One unit of a slice at a time is under way."""
        return f"slice-{self.part.number}"


@dataclass(frozen=True, slots=True)
class Scanned:
    """The slice as it stands then; None: it is gone."""

    part: ScanSlice | None


def scan_work(target: Target, *, limits: SessionLimits, application_name: str) -> UnitWork[ScanUnit, Scanned]:
    """What a worker does with a unit; picklable."""
    return UnitWork(target=target, limits=limits, application_name=application_name, run=run_scan)


def run_scan(conn: Connection, unit: ScanUnit) -> Scanned:
    """Do one unit.

    Raises: TargetError: nothing has changed.
    """
    return Scanned(scan_batch(conn, unit.part, rows_max=unit.rows_max))


def scan_batch(conn: Connection, part: ScanSlice, *, rows_max: int) -> ScanSlice | None:
    """Scan the next rows of a slice, in one transaction; nothing where another worker has moved it since.

    Returns: the slice as it stands then; None: it is gone.
    Raises: TargetError: nothing has changed.
    """
    try:
        return run_batch(conn, part, rows_max=rows_max)
    except SliceMoved:
        return read_slice(conn, part)
