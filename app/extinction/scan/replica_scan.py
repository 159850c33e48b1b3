"""The work of an extinction at a REPLICA: its entries go, in batches with a pause; resumable at every one.

Rules:
- what was removed is counted at the target, in the transaction that removed it; the row here mirrors it;
- DONE is said here only after the target said it, durably;
- a scan takes its turn behind other writers of a SQLite file, and lets them pass after each batch.
Source: je-extinction-filter ("JE will asynchronously remove the specified records from the Btree");
eraser-behaviour, section 11.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Literal

from sqlmodel import Session

from app.extinction.queries import get_extinction
from app.extinction.records import note_progress
from app.extinction.results import ExtinctionParams
from app.extinction.reviewed import beside
from app.extinction.rows import ExtinctionRow
from app.jobs.engines.choice import Engines, Work
from app.jobs.engines.engine import Engine
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import controlled
from app.jobs.running.suspension import require_awake
from app.kinds.parameter import as_timedelta
from app.parameters.service import effective_by_name
from app.replication.replica.replicas import replica_limits, writer_turn
from app.replication.supplier.signals import supplying_replica
from app.stores.rows import Store
from app.stores.targets import place_of, target_of
from app.sweeps.counts import Counts
from app.sweeps.frame import Attempt, Sweeping, claim_unfenced, nothing, nothing_kept, run_sweep
from app.sweeps.loop import PARTS, Charge, Course, sweep_here, sweep_on
from spark.extinction.run import Scanned, ScanUnit, run_scan, scan_work
from spark.extinction.slices import (
    Removed,
    ScanSlice,
    begin_scan,
    count_upto,
    cut_slices,
    finish_scan,
    read_slices,
)
from spark.extinction.unit import relax_durability, rows_of
from spark.formats.extinction import Extinction
from spark.replication.consumer.extinctions import KnownExtinction, ScanState, find_extinction
from spark.replication.errors import ReplicationRefused
from spark.targets.connection import Connection, target_now
from spark.targets.silence import application_name
from spark.targets.target import is_on_this_machine

BATCH_SIZE: Final = "je.cleaner.extinctScanBatchSize"
BATCH_DELAY: Final = "je.cleaner.extinctScanBatchDelay"
SLICE_ROWS: Final = 200_000
"""Entries of a part that one worker of the pool scans."""
UNIT: Final = "rows"
UNIT_NAME: Final = "scan"
NOTE_EVERY_S: Final = 1.0
GROWS_BELOW: Final = 4
"""Units that take less than this part of a statement's timeout may be larger again."""
MISSING_LOOK: Final = timedelta(seconds=10)


class ScanParams(ExtinctionParams):
    """As the frame of a sweep reads them: it waits behind no other scan, and keeps nothing."""

    overlap: Literal["REFUSE"] = "REFUSE"
    archive: None = None

    @property
    def target(self) -> dict[str, Any]:
        """Where the extinction is found, there its entries go."""
        return {}


@dataclass(slots=True)
class Scan(Attempt[ScanParams]):
    """What one attempt carries from step to step.

    Attributes:
        known: the extinction as the target has it.
        gone: what the target has added up in the end.
    """

    engines: Engines
    known: KnownExtinction
    batch_rows: int
    pause_s: float
    slices: dict[int, ScanSlice] = field(default_factory=dict)
    gone: Removed = field(default_factory=lambda: Removed(0, 0, 0))

    @property
    def extinction(self) -> Extinction:
        """What goes."""
        return self.known.extinction

    @property
    def removed(self) -> Removed:
        """So far, by all attempts."""
        found = self.slices.values()
        return Removed(
            sum(each.records for each in found),
            sum(each.bytes for each in found),
            sum(each.tombstones for each in found),
        )

    def open_slices(self) -> list[ScanSlice]:
        """Those that are not done, in their order."""
        return [each for each in self.slices.values() if not each.is_done]

    def note(self) -> None:
        """Show how far it is, in the row of the extinction and in the job."""
        removed = self.removed
        self.context.write(lambda db: _note(db, self, removed))
        self.context.progress(unit=UNIT, done=removed.records + removed.tombstones, total=None)


class ScanCourse(Course[ScanUnit, Scanned]):
    """A unit of each open slice at a time, with a pause after so many entries as a batch has.

    Invariants:
    - a slice has one unit under way; the next one begins where that has moved it.
    """

    def __init__(self, scan: Scan, *, rows_max: int) -> None:
        """Make one.

        Args:
            rows_max: entries of one transaction; of a unit that was too long, fewer for a while.
        """
        self._scan = scan
        self._rows_max = rows_max
        self._rows = rows_max
        self._left: deque[ScanSlice] = deque()
        self._looked = 0
        self._rests_until_s = 0.0
        self._noted_at_s = 0.0

    def next_units(self) -> Iterator[ScanUnit] | None:
        """Slices that nobody works on."""
        self._left = deque(self._scan.open_slices())
        return self._draw() if self._left else None

    def _draw(self) -> Iterator[ScanUnit]:
        while self._left:
            yield ScanUnit(self._left.popleft(), self._rows)
            self._looked += self._rows
            if self._looked >= self._scan.batch_rows:
                self._looked = 0
                self._rests_until_s = self._now_s() + self._scan.pause_s

    def _now_s(self) -> float:
        return self._scan.context.clock.boottime_s()

    def rest_s(self) -> float:
        """Of the pause after a batch."""
        return self._rests_until_s - self._now_s()

    def done(self, unit: ScanUnit, result: Scanned, *, elapsed_s: float) -> Charge:
        """The slice stands elsewhere now.

        Raises: JobWaiting: it is gone.
        """
        scan, part = self._scan, result.part
        if part is None:
            raise _missing(scan.context, scan.extinction.id)
        before = scan.slices[part.number]
        assert part.records >= before.records, "what a slice has removed only grows"
        scan.slices[part.number] = part
        if not part.is_done:
            self._left.appendleft(part)
        if elapsed_s * GROWS_BELOW < scan.context.settings.target_statement_timeout_ms / 1000:
            self._rows = min(self._rows_max, 2 * self._rows)
        gone = part.records + part.tombstones - before.records - before.tombstones
        return gone, part.bytes - before.bytes

    def parts(self, unit: ScanUnit, *, elapsed_s: float) -> Sequence[ScanUnit]:
        """Fewer entries; the rest of them comes next."""
        self._rows = max(1, unit.rows_max // PARTS)
        return [replace(unit, rows_max=self._rows)]

    def show(self, *, is_done: bool, force: bool) -> None:
        """Once in a while: the row of the extinction is written too."""
        if force or self._now_s() - self._noted_at_s >= NOTE_EVERY_S:
            self._noted_at_s = self._now_s()
            self._scan.note()


def run_replica_scan(context: JobContext, store: Store, *, engines: Engines) -> Mapping[str, Any]:
    """LOGGED, SCANNING, DONE; the result that clients see.

    Raises: JobSignal.
    """
    require_awake(context, store)
    with supplying_replica(context, store):
        pass  # its layout is there, and was compared with the metadata
    try:
        with controlled(context, store) as conn:
            return run_sweep(SCAN, _prepared(context, conn, store, engines))
    except ReplicationRefused as error:
        raise JobFailed(error.code, error.detail) from error


def _prepared(context: JobContext, conn: Connection, store: Store, engines: Engines) -> Scan:
    params = ScanParams.model_validate(context.job.params)
    batch_rows, pause_s = context.read(lambda db: _parameters(db, store))
    known = find_extinction(conn, params.extinction_id)
    if known is None:
        raise _missing(context, params.extinction_id)
    return Scan(context, conn, store, params, engines, known, batch_rows, pause_s)


def _parameters(db: Session, store: Store) -> tuple[int, float]:
    rows = int(effective_by_name(db, BATCH_SIZE, store.parameters).value)
    pause = as_timedelta(effective_by_name(db, BATCH_DELAY, store.parameters).value)
    return rows, pause.total_seconds()


def _resource(scan: Scan) -> str:
    return f"extinction:{scan.extinction.id}"


def _missing(context: JobContext, extinction_id: str) -> JobWaiting:
    """The target was put back to a time before it: a session brings it again."""
    until = context.clock.now() + MISSING_LOOK
    waiting_on = [WaitingOn(kind="EXTINCTION_METADATA", ref=extinction_id, until=until)]
    return JobWaiting(waiting_on, not_before=until)


def _sweep(scan: Scan) -> None:
    """Scan every slice to its end, and say so.

    Raises: JobSignal; TargetError.
    """
    if scan.known.state is not ScanState.DONE:
        _scan(scan)
    _finish(scan)


def _scan(scan: Scan) -> None:
    conn, extinction = scan.conn, scan.extinction
    engine = _engine(scan, scan.engines)
    if not read_slices(conn, extinction):
        rows = SLICE_ROWS if engine is not None else None
        bounds = list(cut_slices(conn, extinction, rows=rows))
        with writer_turn(conn):
            begin_scan(conn, extinction.id, bounds)
    scan.slices = {each.number: each for each in read_slices(conn, extinction)}
    if engine is None:
        _scan_here(scan)
    else:
        _scan_on(scan, engine)


def _engine(scan: Scan, engines: Engines) -> Engine | None:
    """Workers of the pool for a large range; None: it is scanned here, and SQLite always."""
    context, conn = scan.context, scan.conn
    if conn.dialect.name == "sqlite":
        context.write(lambda db: context.change(db, {"engine": "INLINE"}))
        return None
    # Where Spark is never taken by itself nothing has to be counted.
    rows_max = engines.enough("EXTINCTION")
    rows = None if rows_max is None else count_upto(conn, scan.extinction, rows_max=rows_max)
    work = Work(
        context.settings.engine,
        rows,
        has_ledger=True,
        is_here=is_on_this_machine(place_of(scan.store)),
        kind="EXTINCTION",
    )
    engine = engines.choose(context, work)
    return engine if engine.name == "SPARK" else None


def _scan_here(scan: Scan) -> None:
    """Over the job's own connection."""
    conn = scan.conn
    relax_durability(conn)
    course = ScanCourse(scan, rows_max=rows_of(conn, scan.batch_rows))
    sweep_here(conn, _scan_in_turn, course, scan.context)
    relax_durability(conn, relaxed=False)


def _scan_in_turn(conn: Connection, unit: ScanUnit) -> Scanned:
    with writer_turn(conn):
        return run_scan(conn, unit)


def _scan_on(scan: Scan, engine: Engine) -> None:
    """Slices on the workers of an engine."""
    context = scan.context
    work = scan_work(
        target_of(scan.store, context.settings, context.database),
        limits=replica_limits(context.settings),
        application_name=application_name(context.job.id, UNIT_NAME, context.job.token),
    )
    course = ScanCourse(scan, rows_max=scan.batch_rows)
    sweep_on(engine, work, course, context, workers=context.settings.purge_workers)


def _finish(scan: Scan) -> None:
    """DONE at the target, then here."""
    context, conn = scan.context, scan.conn
    with writer_turn(conn):
        now_s = int(target_now(conn).timestamp())
        removed = finish_scan(conn, scan.extinction.id, now_s=now_s)
    if removed is None:
        raise _missing(context, scan.extinction.id)
    scan.gone = removed
    context.write(lambda db: _note(db, scan, removed, is_done=True))
    done = removed.records + removed.tombstones
    context.progress(unit=UNIT, done=done, total=done, force=True)


def _counts(scan: Scan) -> Counts:
    """As the target has added them up when it said DONE."""
    gone = scan.gone
    rows = {"records": gone.records, "tombstones": gone.tombstones}
    return Counts(rows, scan.tally.units, is_exact=True)


def _tell(scan: Scan, done: Counts) -> dict[str, Any]:
    records = done.rows["records"]
    return {
        "extinction_id": scan.extinction.id,
        "records": records,
        "bytes": scan.gone.bytes,
        "tombstones": done.rows["tombstones"],
        **beside(scan.context, records),
    }


def _note(db: Session, scan: Scan, removed: Removed, *, is_done: bool = False) -> None:
    context = scan.context
    context.change(db, {})
    row: ExtinctionRow = get_extinction(db, scan.store.id, scan.extinction.id)
    note_progress(
        db,
        row,
        job_id=context.job.id,
        records=removed.records,
        byte_count=removed.bytes,
        done_at=context.clock.now() if is_done else None,
    )


SCAN: Final[Sweeping[Scan]] = Sweeping(
    resource=_resource,
    claim=claim_unfenced,
    check=nothing,  # limits and plan were held when it was committed: its keys are extinct since
    sweep=_sweep,
    counts=_counts,
    ends=nothing_kept,
    tell=_tell,
)
