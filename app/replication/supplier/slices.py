"""Large windows over Spark: workers read slices of them and leave their batches, encoded, in a spool.

Everything that counts stays here: order, numbers, answers. A slice that is read twice is sent once.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from app.jobs.engines.choice import Work
from app.jobs.engines.engine import Borrower, Engine
from app.jobs.engines.use_notes import name_on_spark
from app.jobs.running.context import JobContext
from app.replication.replica.replicas import replica_limits
from app.replication.supplier.batches import Outgoing
from app.replication.supplier.ground import Ground
from app.replication.supplier.record import Record
from app.settings import Settings
from app.stores.targets import place_of, target_of
from spark.replication.proofs.proved_batches import encode_with
from spark.replication.proofs.shown_proofs import proof_of
from spark.replication.run import SlicedBatch, SlicedReader, slice_work, spool_folder
from spark.replication.supplier.decide import Window
from spark.replication.supplier.slices import Bounds, ranges_of
from spark.targets.connection import Connection
from spark.targets.silence import application_name
from spark.targets.target import is_on_this_machine

UNIT_NAME: Final = "slice"
SPOOL: Final = "_spool"
"""No store has this name, whose archives may lie beside it."""


def choose_engine(ground: Ground, *, rows: int | None) -> Engine | None:
    """Spark, where a window is large enough for it, or where it was asked for; None: it is read here.

    Raises: JobWaiting: the pool cannot serve now.
    """
    context, engines = ground.context, ground.engines
    asked = ground.params.engine or context.settings.engine
    work = Work(
        asked,
        rows,
        has_ledger=True,
        archives=True,
        is_here=is_on_this_machine(place_of(ground.store)),
        kind="WINDOW",
    )
    engine = engines.choose(context, work)
    ground.record.row.engine = engine.name
    return engine if engine.name == "SPARK" else None


class SlicedSource:
    """A window's batches as workers have encoded them, in order.

    Args:
        stack: keeps the workers and the spool until the window's end.
        conn: plans the slices; the reader's thread alone.
    """

    def __init__(
        self,
        stack: ExitStack,
        conn: Connection,
        ground: Ground,
        engine: Engine,
        windows: Mapping[int, Window],
        *,
        rows_max: int,
        bytes_max: int,
    ) -> None:
        context = ground.context
        target = target_of(ground.store, context.settings, context.database)
        bounds = Bounds(rows_max=rows_max, bytes_max=bytes_max, part=ground.part)
        stack.callback(remove_spool, context)
        folder = stack.enter_context(spool_folder(_fresh_spool(context)))
        work = slice_work(
            target,
            limits=replica_limits(context.settings),
            application_name=application_name(context.job.id, UNIT_NAME, context.job.token),
            folder=folder,
            bounds=bounds,
        )
        borrower = Borrower(
            may_work=lambda: context.stop_cause is None,
            show_waiting=context.show_waiting,
            name=name_on_spark(context),
        )
        workers = context.settings.purge_workers
        lease = stack.enter_context(engine.lease(work, workers=workers, borrower=borrower))
        stack.callback(context.on_cancel(lease.cancel))
        self._conn = conn
        self._reader = SlicedReader(conn, windows, bounds=bounds, map_slices=lease.map)

    def batches(self, rows_max: int | None) -> Iterator[Outgoing]:
        """Read them, up to a number of changes."""
        left = rows_max
        for batch in self._reader:
            if left is not None and batch.rows >= left:
                yield _cut(self._conn, batch, left)
                return
            yield Outgoing(batch.rows, batch.ranges, partial(_body, batch), batch.records)
            if left is not None:
                left -= batch.rows

    def count_into(self, record: Record) -> None:
        """Rows that workers have read, of slices that were given."""
        for rid, rows in self._reader.read.items():
            record.count(rid).read += rows
        record.row.rows_read += self._reader.rows_read


def _body(batch: SlicedBatch) -> bytes:
    return batch.body


def _cut(conn: Connection, batch: SlicedBatch, rows: int) -> Outgoing:
    part = batch.records().slice(0, rows)
    proof = proof_of(conn, part)
    return Outgoing(rows, ranges_of(part), encode=lambda: encode_with(part, proof), records=lambda: part)


def spool_of(settings: Settings, job_id: str) -> Path:
    """Where slices of a job lie: with workers elsewhere, in the place that an admin has named for files."""
    root = settings.data_dir.absolute() if settings.executors_are_here else settings.effective_archive_root
    return root / SPOOL / job_id


def remove_spool(context: JobContext) -> None:
    """Remove what an attempt that died has left."""
    shutil.rmtree(spool_of(context.settings, context.job.id), ignore_errors=True)


def _fresh_spool(context: JobContext) -> Path:
    remove_spool(context)
    folder = spool_of(context.settings, context.job.id)
    folder.mkdir(mode=0o700, parents=True)
    return folder
