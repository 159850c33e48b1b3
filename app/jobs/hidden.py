"""What of a job's result only those see who may read the data of replicas."""

from typing import Final

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.jobs.models import JobRead
from app.kit.pagination import Page

JOB_WITH_KEYS: Final = "AUDIT"
"""Its result names keys between which entries differ."""


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
