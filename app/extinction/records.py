"""Rows of extinctions: made, found committed, dropped, ended.

Invariants:
- a row is never deleted while its store is registered;
- a row leaves HOLDING states never: what was discarded once stays so. A DROPPED one whose commit is found
  after all is LOGGED again.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session, col, select

from app.extinction.rows import ENDED, HOLDING, ExtinctionOrigin, ExtinctionRow, ExtinctionState
from app.extinction.sizing import hint_of
from app.jobs.models import Subject
from app.jobs.rows import Job
from app.jobs.service import JobRequest, submit
from app.replication.replica.replicas import note_own_max
from app.settings import Settings
from app.stores.rows import Store
from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import Filter, decode_base64
from spark.replication.consumer.extinctions import KnownExtinction

JOB_EXTINCTION = "EXTINCTION"


def extinction_of(row: ExtinctionRow) -> Extinction:
    """What a row says."""
    return Extinction(
        row.id,
        frozenset(decode_base64(name, "") for name in row.databases),
        None if row.start_key is None else decode_base64(row.start_key, ""),
        None if row.end_key is None else decode_base64(row.end_key, ""),
        None if row.filter is None else Filter.parse(row.filter),
        row.label,
    )


def insert_row(
    db: Session,
    store_id: str,
    extinction: Extinction,
    *,
    state: ExtinctionState,
    now: datetime,
    origin: ExtinctionOrigin = ExtinctionOrigin.LOCAL,
    **values: Any,
) -> ExtinctionRow:
    """Make the row of an extinction."""
    row = ExtinctionRow(
        store=store_id, state=state, origin=origin, created_at=now, **extinction.fields(), **values
    )
    db.add(row)
    db.flush()
    return row


def rows_of(db: Session, store_id: str) -> list[ExtinctionRow]:
    """All rows of a store, oldest first."""
    query = select(ExtinctionRow).where(ExtinctionRow.store == store_id).order_by(col(ExtinctionRow.id))
    return list(db.exec(query).all())


def note_known(
    db: Session, store: Store, known: Sequence[KnownExtinction], *, now: datetime
) -> list[ExtinctionRow]:
    """Note what the target of a REPLICA knows; returns the rows that changed.

    One that came from another replica gets a row; one that was reserved, or dropped too early, is LOGGED; one
    that was committed again has the new CSN. The own ones are noted as others may hear of them: a target that
    is put back to before is known by that.
    """
    own = max((str(found.csn) for found in known if found.rid == store.rid), default=None)
    note_own_max(db, store.id, own, now=now)
    changed = []
    for found in known:
        row = db.get(ExtinctionRow, (store.id, found.extinction.id))
        if row is None:
            origin = ExtinctionOrigin.LOCAL if found.rid == store.rid else ExtinctionOrigin.REPLICATED
            row = insert_row(
                db, store.id, found.extinction, state=ExtinctionState.RESERVED, now=now, origin=origin
            )
        if row.state in HOLDING:
            if row.csn != str(found.csn):
                row.csn = str(found.csn)
                _save(db, row)
                changed.append(row)
            continue
        note_logged(db, row, now=datetime.fromtimestamp(found.logged_at_s, tz=UTC), csn=str(found.csn))
        changed.append(row)
    return changed


def note_logged(db: Session, row: ExtinctionRow, *, now: datetime, csn: str | None = None) -> None:
    """An extinction is committed."""
    if row.state in HOLDING:
        return
    row.state, row.logged_at, row.csn = ExtinctionState.LOGGED, now, csn
    _save(db, row)


def note_attested(db: Session, row: ExtinctionRow, *, now: datetime, caller: str, reason: str) -> None:
    """An admin has said that the application's filter is installed; the first word counts."""
    if row.attested_at is None:
        row.attested_at, row.attested_by, row.attest_reason = now, caller, reason
        _save(db, row)


def note_dropped(db: Session, row: ExtinctionRow) -> None:
    """An extinction was never committed, as far as can be seen."""
    assert row.state == ExtinctionState.RESERVED, "only what nobody has committed is dropped"
    row.state = ExtinctionState.DROPPED
    _save(db, row)


def note_progress(
    db: Session,
    row: ExtinctionRow,
    *,
    job_id: str,
    records: int,
    byte_count: int,
    done_at: datetime | None = None,
) -> None:
    """How far a job is with it; `done_at`: it has come to its end."""
    assert row.state in HOLDING, "a job works only for what is committed"
    row.job_id, row.records, row.bytes = job_id, records, byte_count
    row.state = ExtinctionState.SCANNING
    if done_at is not None:
        row.state, row.done_at, row.hint = ExtinctionState.DONE, done_at, hint_of(records)
    _save(db, row)


def _save(db: Session, row: ExtinctionRow) -> None:
    row.version += 1
    db.add(row)
    db.flush()


def subject_of(row: ExtinctionRow) -> Subject:
    """The extinction as its job names it."""
    return Subject(type="extinction", id=row.id, href=f"/v1/stores/{row.store}/extinctions/{row.id}")


def submit_job(
    db: Session,
    store: Store,
    row: ExtinctionRow,
    *,
    settings: Settings,
    now: datetime,
    requested_by: str,
    token_id: str | None,
) -> Job:
    """Queue the work of an extinction that is committed; its row names the job.

    Raises: QueueFull.
    """
    assert row.state in HOLDING - ENDED, "there is work for it"
    request = JobRequest(
        kind=JOB_EXTINCTION,
        store=store.id,
        params={"extinction_id": row.id},
        requested_by=requested_by,
        token_id=token_id,
        runs_on=store.runs_on,
        reason=row.reason,
        subject=subject_of(row),
    )
    job = submit(db, request, now=now, queued_max=settings.jobs_queued_max)
    row.job_id = job.id
    _save(db, row)
    return job
