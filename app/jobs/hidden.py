"""Who sees a job, and what of its result only those see who may read the data of replicas."""

from collections.abc import Mapping
from typing import Any, Final

from sqlmodel import Session

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.jobs.models import JobRead
from app.jobs.queries import get_job
from app.jobs.rows import Job
from app.kit.pagination import Page

JOB_WITH_KEYS: Final = "AUDIT"
"""Its result names keys between which entries differ."""
JOB_WITH_SOURCE: Final = "SLONY_FEED"
"""It reads a store beside its own, which its parameters name."""
REPLICAS: Final = "replicas"
"""The parameter of a purge ROWS that names stores whose lag it asks for."""


def visible_job(db: Session, job_id: str, caller: Caller) -> Job:
    """A job that the caller may see.

    Raises: JobNotFound, StoreForbidden.
    """
    job = get_job(db, job_id)
    require_sight(job, caller)
    return job


def require_sight(job: Job, caller: Caller) -> None:
    """Refuse a job that the caller may not see. Raises: StoreForbidden."""
    if job.store is not None or job.token_id != caller.token_id:
        caller.require_store(job.store)
    elif caller.is_of_provider:  # the stores of its tokens change
        for name in job.params.get("stores", ()):
            caller.require_store(name)
    # A batch has no store: who made it may see it.


def require_source(kind: str, params: Mapping[str, Any], caller: Caller) -> None:
    """Refuse to start what reads a store that the caller may not see, alone or as one of many.

    Raises: StoreForbidden.
    """
    carried: Mapping[str, Any] = params.get("params") or {}
    for name in (*params.get(REPLICAS, ()), *carried.get(REPLICAS, ())):
        caller.require_store(name)
    if kind != JOB_WITH_SOURCE:
        kind, params = str(params.get("kind")), carried
    if kind == JOB_WITH_SOURCE:
        caller.require_store(str(params.get("source")))


def seen_by(caller: Caller, job: JobRead) -> JobRead:
    """A job; without `data:read` no keys of entries, and `truncated` says that some are left out."""
    entries = (job.result or {}).get("entries") if job.kind == JOB_WITH_KEYS else None
    if Scope.DATA_READ in caller.scopes or not entries or not entries.get("differing"):
        return job
    result = (job.result or {}) | {"entries": entries | {"differing": []}, "truncated": True}
    return job.model_copy(update={"result": result})


def page_seen_by(caller: Caller, page: Page[JobRead]) -> Page[JobRead]:
    """The same for a list."""
    return page.model_copy(update={"items": [seen_by(caller, job) for job in page.items]})
