"""Who reads the supplier's side of an audit: its own connection, or workers of the engine.

Rules:
- what has not a whole piece for each of two workers stays with the job's own connection, and SQLite does
  where threads would read it: they wait for Python's lock, and take longer together;
- pieces are cut alike whoever reads them: what an audit shows does not depend on it;
- workers have a connection each, `purge_workers` at most, beside the job's own one;
- however the reading ends, nothing of it runs on: what is under way is cancelled first.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from app.jobs.engines.choice import Engines, Work
from app.jobs.engines.engine import Engine, borrower_of
from app.jobs.running.context import JobContext
from app.replication.audits.models import CsnRange
from app.replication.audits.service import PIECE_ROWS
from app.replication.audits.sides import MapUnits, Sides
from app.replication.replica.replicas import replica_limits
from app.settings import EngineChoice
from app.stores.rows import Store
from app.stores.targets import place_of, target_of
from spark.replication.replica.digest import count_upto
from spark.replication.replica.digest_piece import Answered, DigestUnit, digest_work
from spark.targets.silence import application_name
from spark.targets.target import is_on_this_machine
from spark.targets.work import UnitWork

UNIT_NAME: Final = "digest"
SHARED_ROWS: Final = 2 * PIECE_ROWS
"""From so many changes and entries on threads read side by side, where they are faster."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Whom an audit may ask for workers.

    Attributes:
        engine: as the job was asked; None: the service's default.
    """

    context: JobContext
    store: Store
    engines: Engines
    engine: EngineChoice | None

    @contextmanager
    def lent(self, sides: Sides, ranges: Mapping[int, CsnRange], *, entries: bool) -> Iterator[None]:
        """Let workers read for this side in a block, where that pays or was asked for.

        Raises: JobWaiting: the pool cannot serve now; TargetError.
        """
        least = max(SHARED_ROWS, self.engines.enough("AUDIT") or 0)
        rows = count_upto(sides.conn, ranges, entries=entries, rows_max=least)
        engine = self._chosen(rows)
        if engine.name == "INLINE" and (sides.conn.dialect.name == "sqlite" or rows < SHARED_ROWS):
            yield
            return
        workers = self.context.settings.purge_workers
        with working(engine, self._work(sides), self.context, workers=workers) as map_units:
            sides.read_by(map_units, workers=workers)
            yield

    def _chosen(self, rows: int) -> Engine:
        wanted = Work(
            self.engine or self.context.settings.engine,
            rows,
            has_ledger=True,  # nothing is written: a piece that is read twice counts once
            is_here=is_on_this_machine(place_of(self.store)),
            kind="AUDIT",
        )
        return self.engines.choose(self.context, wanted)

    def _work(self, sides: Sides) -> UnitWork[DigestUnit, Answered]:
        context = self.context
        return digest_work(
            target_of(self.store, context.settings, context.database),
            limits=replica_limits(context.settings),
            application_name=application_name(context.job.id, UNIT_NAME, context.job.token),
            part=sides.part,
        )


@contextmanager
def working(
    engine: Engine, work: UnitWork[DigestUnit, Answered], context: JobContext, *, workers: int
) -> Iterator[MapUnits]:
    """Workers for the time of a block; whatever ends it ends what they do.

    Raises: JobWaiting: the pool cannot serve now.
    """
    with engine.lease(work, workers=workers, borrower=borrower_of(context)) as lease:
        forget = context.on_cancel(lease.cancel)
        try:
            yield lease.map
        finally:
            forget()
            lease.cancel()
