"""The document's eleven statistics, of a cycle and of a store."""

from datetime import datetime

from sqlmodel import Session

from app.erase.models import EraserStats, StatsRead
from app.erase.rows import COUNTS, EraserCounts, ErasureCycle, ErasureStore
from app.kit.instants import instant_text


def _text(value: datetime | None) -> str:
    return "" if value is None else instant_text(value)


def _stats(counts: EraserCounts, cycle: ErasureCycle | None) -> EraserStats:
    return EraserStats(
        eraserCycleStart=_text(cycle.started_at if cycle else None),
        eraserCycleEnd=_text((cycle.ends_at or cycle.ended_at) if cycle else None),
        eraserFilesRemaining=cycle.files_remaining if cycle else 0,
        eraserFilesErased=counts.files_erased,
        eraserFilesDeleted=counts.files_deleted,
        eraserFilesAlreadyDeleted=counts.files_already_deleted,
        eraserFSyncs=counts.fsyncs,
        eraserReads=counts.reads,
        eraserReadBytes=counts.read_bytes,
        eraserWrites=counts.writes,
        eraserWriteBytes=counts.write_bytes,
    )


def stats_of_cycle(cycle: ErasureCycle) -> EraserStats:
    """The statistics of one cycle."""
    return _stats(cycle, cycle)


def stats_of_store(db: Session, store_id: str, newest: ErasureCycle | None) -> StatsRead:
    """The statistics of a store: of its newest cycle, and of all."""
    nothing = EraserCounts(**dict.fromkeys(COUNTS, 0))
    known = db.get(ErasureStore, store_id)
    row: EraserCounts = known or nothing
    return StatsRead(
        store=store_id,
        erasure_cycle_id=None if newest is None else newest.id,
        cycle=_stats(newest or nothing, newest),
        cumulative=_stats(row, newest),
        not_begun=None if known is None else known.trouble,
    )
