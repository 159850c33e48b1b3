"""`/v1/stores/{s}/replica-exports` and `/replica-imports`: a replica as a file, and back."""

from typing import Annotated

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import clock_of, database_of, requires, requires_unlimited, settings_of
from app.auth.actions import Action
from app.auth.mutation import IdempotencyKeyHeader
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.jobs.job_answer import job_answer
from app.jobs.models import JobRead
from app.jobs.rows import Job
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.replication.agreements.sessions.api import replica_store
from app.replication.snapshots.models import ReplicaExportRequest, ReplicaImportRequest
from app.replication.snapshots.submitting import check_place, submit_export, submit_import
from app.stores.api import StoreId
from app.stores.service import get_store

router = new_router(tags=["replication"])
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]
Importer = Annotated[Caller, Depends(requires_unlimited(Scope.ADMIN))]
"""The file may be of any store's replica."""


@router.post(
    "/v1/stores/{store_id}/replica-exports",
    status_code=202,
    response_model=JobRead,
    summary="Export a replica into a file",
    operation_id="export_replica",
    responses=problems(404, 409, 429),
)
def post_export(
    store_id: StoreId,
    body: ReplicaExportRequest,
    request: Request,
    caller: Admin,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job. The file is of one moment: RUV, history and every entry; it is signed.

    Writers go on meanwhile. The file appears under its name when it is whole.
    """
    settings, now = settings_of(request), clock_of(request).now()
    replica_store(database_of(request), store_id, caller)
    check_place(body.path, settings, database_of(request))

    def queue(db: Session) -> Job:
        return submit_export(db, get_store(db, store_id), body, caller=caller, settings=settings, now=now)

    return job_answer(
        request,
        caller,
        queue,
        action=Action.REPLICA_EXPORT,
        store_id=store_id,
        body=body,
        audit=body.model_dump(mode="json"),
    )


@router.post(
    "/v1/stores/{store_id}/replica-imports",
    status_code=202,
    response_model=JobRead,
    summary="Import a file into a blank replica",
    operation_id="import_replica",
    responses=problems(404, 409, 429),
)
def post_import(
    store_id: StoreId,
    body: ReplicaImportRequest,
    request: Request,
    caller: Importer,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """202 with the job. All of the file is in place, or nothing; sessions go on from its RUV.

    The job fails where the replica holds anything (REPLICA_NOT_BLANK), where the file is not what its replica
    has signed (SNAPSHOT_DAMAGED), or where it is of another generation.
    """
    settings, now = settings_of(request), clock_of(request).now()
    replica_store(database_of(request), store_id, caller)
    check_place(body.path, settings, database_of(request))

    def queue(db: Session) -> Job:
        store = get_store(db, store_id, lock=True)
        return submit_import(db, store, body, caller=caller, settings=settings, now=now)

    return job_answer(
        request,
        caller,
        queue,
        action=Action.REPLICA_IMPORT,
        store_id=store_id,
        body=body,
        audit=body.model_dump(mode="json"),
    )
