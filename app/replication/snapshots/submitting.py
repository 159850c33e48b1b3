"""The jobs of an export and of an import."""

from datetime import datetime
from pathlib import Path

from sqlmodel import Session

from app.auth.service import Caller
from app.db import Database
from app.jobs.rows import Job
from app.jobs.service import JobRequest, refuse_conflict, submit
from app.replication.agreements.sessions.service import target_of_store
from app.replication.snapshots.models import (
    JOB_EXPORT,
    JOB_IMPORT,
    ReplicaExportParams,
    ReplicaExportRequest,
    ReplicaImportParams,
    ReplicaImportRequest,
)
from app.settings import Settings
from app.stores.errors import StoreUrlRefused
from app.stores.rows import Store
from app.stores.targets import check_root, is_own_file


def check_place(path: str, settings: Settings, database: Database) -> Path:
    """Where a snapshot may lie.

    Raises: StoreUrlRefused.
    """
    found = Path(path)
    check_root(found, settings)
    if is_own_file(found, database):
        raise StoreUrlRefused("this is Lethe's own metadata database", code="OWN_METADATA")
    return found


def import_resource(store: Store) -> str:
    """What an import writes, as its claim and its fence name it."""
    return f"{store.schema_name or 'public'}.{store.table_prefix.lower()}replica"


def submit_export(
    db: Session,
    store: Store,
    body: ReplicaExportRequest,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue an export: it reads only, so it takes no claim.

    Raises: QueueFull.
    """
    params = ReplicaExportParams(path=body.path, target=target_of_store(store))
    wanted = JobRequest(
        kind=JOB_EXPORT,
        store=store.id,
        params=params.model_dump(mode="json"),
        requested_by=caller.name,
        token_id=caller.token_id,
        runs_on=store.runs_on,
        reason=body.reason,
    )
    return submit(db, wanted, now=now, queued_max=settings.jobs_queued_max)


def submit_import(
    db: Session,
    store: Store,
    body: ReplicaImportRequest,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
) -> Job:
    """Queue an import. The store's row is locked by the caller.

    Raises: ConflictingJob, QueueFull.
    """
    resource = import_resource(store)
    refuse_conflict(db, store=store.id, identity=store.target_identity, resource=resource)
    params = ReplicaImportParams(path=body.path, signed_by=body.signed_by, target=target_of_store(store))
    wanted = JobRequest(
        kind=JOB_IMPORT,
        store=store.id,
        params=params.model_dump(mode="json"),
        requested_by=caller.name,
        token_id=caller.token_id,
        runs_on=store.runs_on,
        reason=body.reason,
        claim_identity=store.target_identity,
        claim_resource=resource,
    )
    return submit(db, wanted, now=now, queued_max=settings.jobs_queued_max)
