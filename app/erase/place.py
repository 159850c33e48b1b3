"""Where a cycle works: the directory, the claim of it in the metadata, and the store that names it."""

from pathlib import Path

from sqlmodel import Session

from app.erase.rules import RESOURCE
from app.errors import ServiceError
from app.jobs.errors import JobFailed
from app.jobs.running.claims import claim_target
from app.jobs.running.context import JobContext
from app.stores.borders import judge_environment
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import get_store
from app.stores.targets import file_identity


def place_of(directory: Path) -> str | None:
    """What identifies an environment, by whatever path it was reached; None where it is not to be seen."""
    return file_identity("je", directory)


def claim_place(context: JobContext, directory: Path) -> None:
    """Take the right to erase in an environment until the job ends.

    Raises: JobFailed: another job has it, or the directory is not there.
    """
    identity = place_of(directory)
    if identity is None:
        raise JobFailed("NOT_AN_ENVIRONMENT", f"{directory} cannot be looked at from here")

    def take(db: Session) -> str | None:
        context.change(db, {"claim_identity": identity, "claim_resource": RESOURCE})
        now = context.database.now(db)
        return claim_target(db, job_id=context.job.id, target_identity=identity, resource=RESOURCE, now=now)

    other = context.write(take)
    if other is not None:
        raise JobFailed("CONFLICTING_JOB", f"{other} erases in the same environment", retryable=True)


def store_of(context: JobContext) -> Store:
    """The store of a job as it is now.

    Raises: JobFailed: it is gone, or others are on its environment.
    """

    name = context.job.store or ""
    try:
        store = context.read(lambda db: get_store(db, name))
        if store.kind == StoreKind.JE:
            judge_environment(context.database, store)
    except ServiceError as error:
        if error.retryable:
            raise
        raise JobFailed(error.code, error.detail) from error
    return store
