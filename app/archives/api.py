"""`/v1/archives`: what purges kept."""

from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.archives.models import ArchiveDetail, ArchiveRead, RestoreRequest
from app.archives.rows import Archive
from app.archives.service import describe_archive, get_archive, list_archives
from app.auth.access import Condition, DatabaseDep, clock_of, requires, settings_of, tell_changed
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.rows import StoreName
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import Conflict
from app.jobs.api import accepted
from app.jobs.models import JobRead, Subject
from app.jobs.rows import Job
from app.jobs.service import JobRequest, refuse_conflict, submit
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.settings import Settings
from app.stores.rows import Store
from app.stores.targets import check_root

JOB_VERIFY = "ARCHIVE_VERIFY"
JOB_RESTORE = "ARCHIVE_RESTORE"

router = APIRouter(tags=["archives"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]
Verifier = Annotated[Caller, Depends(requires(Scope.EVIDENCE_VERIFY))]
LIVE = Condition(Scope.ADMIN, "`into.live` is true")
FILE = Condition(Scope.STORES_WRITE, "`into.file` is given")
Writer = Annotated[Caller, Depends(requires(Scope.PURGES_WRITE, LIVE, FILE))]
ArchiveId = Annotated[str, Path(pattern=r"^job_[0-9a-z]{26}$", description="Id of the job that archived.")]


def _visible(db: Session, job_id: str, caller: Caller) -> Archive:
    row = get_archive(db, job_id)
    caller.require_store(row.store)
    return row


@router.get(
    "/v1/archives",
    response_model=Page[ArchiveRead],
    summary="List archives",
    operation_id="list_archives",
    responses=problems(),
)
def get_archives(
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    store: Annotated[list[StoreName], Query(max_length=100)] = [],  # noqa: B006
) -> Page[ArchiveRead]:
    """Newest first."""
    with database.reading() as db:
        return list_archives(
            db, stores=store, visible=caller.visible_stores(), page_size=page_size, page_token=page_token
        )


@router.get(
    "/v1/archives/{job_id}",
    response_model=ArchiveDetail,
    summary="Get an archive with its files",
    operation_id="get_archive",
    responses=problems(404),
)
def get_one_archive(job_id: ArchiveId, caller: Reader, database: DatabaseDep) -> ArchiveDetail:
    """The files as this machine's disk shows them; ABANDONED ones belong to no committed transaction.

    While the job has not ended they are UNDECIDED.
    """
    with database.reading() as db:
        row = _visible(db, job_id, caller)
        job = db.get(Job, job_id)
    return describe_archive(row, is_decided=job is None or job.finished_at is not None)


def _submit(
    request: Request, caller: Caller, job_id: str, *, kind: str, body: RestoreRequest | None
) -> Response:
    settings = settings_of(request)

    def effect(db: Session) -> Answer:
        row = _visible(db, job_id, caller)
        job = _queue(request, db, row, caller, kind=kind, body=body, settings=settings)
        return accepted(job)

    verb = "verify" if kind == JOB_VERIFY else "restore"
    response = mutate(
        request, caller, effect, action=Action(f"archive.{verb}"), subject=("archive", job_id), body=body
    )
    tell_changed(request, job_id)
    return response


def _queue(
    request: Request,
    db: Session,
    row: Archive,
    caller: Caller,
    *,
    kind: str,
    body: RestoreRequest | None,
    settings: Settings,
) -> Job:
    store = db.get(Store, row.store)
    if store is None and body is not None and body.into.file is None:
        raise Conflict("the archive's store is no longer registered", code="STORE_REMOVED")
    resource = row.resource if body is not None and body.into.live else None
    if resource is not None and store is not None:
        refuse_conflict(db, store=store.id, identity=store.target_identity, resource=resource)
    runs_on = list(store.runs_on) if store else []
    if settings.archive_root is None:  # the files lie on that instance's disk
        runs_on.append(f"instance/{row.instance}")
    params: dict[str, Any] = {"archive": row.job_id}
    if body is not None:
        params |= {"into": body.into.model_dump(mode="json", by_alias=True)}
    job_request = JobRequest(
        kind=kind,
        store=row.store,
        params=params,
        requested_by=caller.name,
        token_id=caller.token_id,
        runs_on=runs_on,
        reason=body.reason if body else None,
        claim_identity=store.target_identity if store and resource else None,
        claim_resource=resource,
        subject=Subject(type="archive", id=row.job_id, href=f"/v1/archives/{row.job_id}"),
    )
    clock = clock_of(request)
    return submit(db, job_request, now=clock.now(), queued_max=settings.jobs_queued_max)


@router.post(
    "/v1/archives/{job_id}:verify",
    status_code=202,
    response_model=JobRead,
    summary="Verify an archive",
    operation_id="verify_archive",
    responses=problems(404, 409, 429),
)
def post_verify(
    job_id: ArchiveId,
    request: Request,
    caller: Verifier,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """A job that reads every file and compares hash and row count."""
    return _submit(request, caller, job_id, kind=JOB_VERIFY, body=None)


@router.post(
    "/v1/archives/{job_id}:restore",
    status_code=202,
    response_model=JobRead,
    summary="Restore an archive",
    operation_id="restore_archive",
    responses=problems(404, 409, 429),
)
def post_restore(
    job_id: ArchiveId,
    body: RestoreRequest,
    request: Request,
    caller: Writer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Into a new SQLite file (`stores:write`), a schema of the target, or the live tables (`admin`)."""
    if body.into.live:
        caller.require(LIVE.scope)
    if body.into.file is not None:
        caller.require(FILE.scope)
        check_root(FilePath(body.into.file), settings_of(request))
    return _submit(request, caller, job_id, kind=JOB_RESTORE, body=body)
