"""Jobs that read an archive again, or bring back what it holds."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlmodel import Session, col, select

from app.archives.models import ArchiveVerifyRequest, RestoreRequest
from app.archives.rows import Archive
from app.archives.service import ArchiveNotFound
from app.auth.service import Caller
from app.errors import Conflict
from app.jobs.batches.bodies import read_body
from app.jobs.engines.choice import check_engine
from app.jobs.models import Subject
from app.jobs.rows import Job
from app.jobs.service import JobRequest, refuse_conflict, submit, whole_of
from app.settings import Settings
from app.stores.rows import Store

JOB_VERIFY: Final = "ARCHIVE_VERIFY"
JOB_RESTORE: Final = "ARCHIVE_RESTORE"


def _is_on_one_disk(row: Archive, settings: Settings) -> bool:
    """Whether only the instance of an archive sees it: no root is shared, or none was when it was made."""
    return settings.archive_root is None or settings.own_archives in Path(row.directory).parents


def submit_archive_job(
    db: Session,
    row: Archive,
    body: ArchiveVerifyRequest | RestoreRequest,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue a verification or a restore.

    Raises: Conflict, ConflictingJob, QueueFull.
    """
    store = db.get(Store, row.store)
    into = body.into if isinstance(body, RestoreRequest) else None
    if store is None and into is not None and into.file is None:
        raise Conflict("the archive's store is no longer registered", code="STORE_REMOVED")
    resource = whole_of(row.resource) if into is not None and into.live else None
    if resource is not None and store is not None:
        identity = store.target_identity
        refuse_conflict(db, store=store.id, identity=identity, resource=resource, but_resting=True)
    runs_on = list(store.runs_on) if store else []
    if _is_on_one_disk(row, settings):
        runs_on.append(f"instance/{row.instance}")
    wanted = JobRequest(
        kind=JOB_VERIFY if into is None else JOB_RESTORE,
        store=row.store,
        params={"archive": row.job_id} | _chosen(body),
        requested_by=caller.name,
        token_id=caller.token_id,
        runs_on=runs_on,
        reason=body.reason,
        claim_identity=store.target_identity if store and resource else None,
        claim_resource=resource,
        subject=Subject(type="archive", id=row.job_id, href=f"/v1/archives/{row.job_id}"),
    )
    return submit(db, wanted, now=now, queued_max=settings.jobs_queued_max)


def _chosen(body: ArchiveVerifyRequest | RestoreRequest) -> dict[str, Any]:
    """What the request names besides the archive."""
    if isinstance(body, RestoreRequest):
        return {"into": body.into.model_dump(mode="json", by_alias=True)}
    return {} if body.engine is None else {"engine": body.engine}


def submit_newest_verify(
    db: Session,
    store: Store,
    params: Mapping[str, Any],
    caller: Caller,
    _parent_id: str | None,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue the verification of the archive that a store has had last: a schedule names none.

    Raises: InvalidRequest, SparkDisabled, QueueFull; ArchiveNotFound: it has none.
    """
    body = read_body(ArchiveVerifyRequest, params)
    check_engine(body.engine, settings)
    newest = select(Archive).where(Archive.store == store.id).order_by(col(Archive.job_id).desc()).limit(1)
    row = db.exec(newest).first()
    if row is None:
        raise ArchiveNotFound(f"the store {store.id} has no archive that could be verified")
    return submit_archive_job(db, row, body, caller=caller, settings=settings, now=now)
