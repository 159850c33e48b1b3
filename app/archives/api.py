"""`/v1/archives`: what purges kept."""

from pathlib import Path as FilePath
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.archives.models import ArchiveDetail, ArchiveRead, ArchiveVerifyRequest, RestoreRequest
from app.archives.rows import Archive
from app.archives.service import describe_archive, get_archive, list_archives
from app.archives.submitting import submit_archive_job
from app.auth.access import Condition, DatabaseDep, clock_of, requires, settings_of, tell_changed
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.rows import StoreName
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.jobs.api import accepted
from app.jobs.engines.choice import check_engine
from app.jobs.engines.spark_api import check_room
from app.jobs.models import JobRead
from app.jobs.rows import Job
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.stores.targets import check_root

router = new_router(tags=["archives"])
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
    responses=problems(404, 409),
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
    request: Request,
    caller: Caller,
    job_id: str,
    body: ArchiveVerifyRequest | RestoreRequest,
    *,
    sent: ArchiveVerifyRequest | RestoreRequest | None,
) -> Response:
    """Queue a job, once for an Idempotency-Key and what was sent with it."""
    settings = settings_of(request)

    def effect(db: Session) -> Answer:
        row = _visible(db, job_id, caller)
        now = clock_of(request).now()
        return accepted(submit_archive_job(db, row, body, caller=caller, settings=settings, now=now))

    verb = "restore" if isinstance(body, RestoreRequest) else "verify"
    response = mutate(
        request, caller, effect, action=Action(f"archive.{verb}"), subject=("archive", job_id), body=sent
    )
    tell_changed(request, job_id)
    return response


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
    body: ArchiveVerifyRequest | None = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """A job that reads every file and compares hash and row count, here or by workers of Spark."""
    asked = body or ArchiveVerifyRequest()
    check_engine(asked.engine, settings_of(request))
    check_room(request, asked.engine)
    # A body that names nothing is none, as it was where none was taken: a key holds over an upgrade.
    return _submit(request, caller, job_id, asked, sent=None if asked == ArchiveVerifyRequest() else asked)


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
    return _submit(request, caller, job_id, body, sent=body)
