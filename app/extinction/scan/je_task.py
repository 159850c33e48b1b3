"""The work of an extinction at a JE store: matching records and bytes are counted.

Erasing is the cycles' work; JE itself discards only what its own application has discarded.
"""

from collections.abc import Mapping
from typing import Any

from sqlmodel import Session

from app.extinction.counting import HandsTaker, count_in_environment
from app.extinction.queries import get_extinction
from app.extinction.records import extinction_of, note_progress
from app.extinction.rows import ExtinctionRow, ExtinctionState
from app.extinction.status import note_log_extinctions
from app.jobs.running.context import JobContext
from app.jobs.running.suspension import suspended_wait
from app.jobs.writing import EVENT_WARNING
from app.stores.rows import Store, is_suspended


def run_environment_extinction(
    context: JobContext, store: Store, *, take_hands: HandsTaker
) -> Mapping[str, Any]:
    """LOGGED, SCANNING, DONE.

    Raises: JobSignal.
    """
    now = context.clock.now()
    if is_suspended(store, now=now):
        raise suspended_wait(store.id, now=now, until=store.suspended_until)
    row = context.write(lambda db: _begin(db, context, store))
    if row.state != ExtinctionState.DONE:
        found = count_in_environment(context, store, extinction_of(row), take_hands=take_hands)
        for name in found.unknown:
            context.note(EVENT_WARNING, {"code": "UNKNOWN_DATABASE", "database": name})

        def end(db: Session) -> ExtinctionRow:
            note_log_extinctions(db, store.id, found.noted, now=context.clock.now())
            current = get_extinction(db, store.id, row.id)
            note_progress(
                db,
                current,
                job_id=context.job.id,
                records=found.records,
                byte_count=found.bytes,
                done_at=context.clock.now(),
            )
            return current

        row = context.write(end)
    return {"extinction_id": row.id, "records": row.records, "bytes": row.bytes, "hint": row.hint}


def _begin(db: Session, context: JobContext, store: Store) -> ExtinctionRow:
    context.change(db, {})
    row = get_extinction(db, store.id, context.job.params["extinction_id"])
    if row.state != ExtinctionState.DONE:
        note_progress(db, row, job_id=context.job.id, records=0, byte_count=0)
    return row
