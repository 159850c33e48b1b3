"""The task of a verification: the environment is read again, and compared with what a cycle has proved.

Nothing is written and nothing is claimed. What differs has an explanation that the rows give (Lethe has
erased in the file again, JE has deleted it), or it is a fault.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from sqlmodel import Session

from app.erase.certificates.verify_claims import Claims, claims_of, later_passes
from app.erase.certificates.verify_findings import (
    Findings,
    compare,
    differing,
    refused,
    result_of_verification,
)
from app.erase.cycle.attempt import Workshop
from app.erase.place import store_of
from app.erase.queries import newest_cycle
from app.erase.refusals import LOG_FILE_CHANGED, failure, where
from app.erase.rows import ACTIVE
from app.errors import ServiceError
from app.jobs.engines.hands_call import ask_hands
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.jobs.running.suspension import require_awake
from app.jobs.states import JobState
from app.stores.errors import StoreUrlRefused
from app.stores.rows import Store
from app.stores.targets import environment_directory
from spark.erase.calls.calls import (
    Refusal,
    RefusalCode,
    VerifyAnswer,
    VerifyCall,
)
from spark.erase.verified import FileToVerify

VERIFICATION_FAILED: Final = "VERIFICATION_FAILED"
MOVED_PAUSE_S: Final = 5.0
NO_ENVIRONMENT: Final = frozenset({"NOT_AN_ENVIRONMENT", "ENVIRONMENT_UNREADABLE"})
"""Of these nothing was read, so nothing is found to be wrong."""


def run_erasure_verify(context: JobContext, *, workshop: Workshop) -> Mapping[str, Any]:
    """Read the environment again, and return what was compared.

    Raises: JobSignal: JobFailed VERIFICATION_FAILED with all that is wrong.
    """
    store = store_of(context)
    require_awake(context, store)
    try:
        directory = environment_directory(store, context.settings)
        claims = context.read(lambda db: claims_of(db, store.id, context.job.params["cycle"]))
    except StoreUrlRefused as error:
        raise JobFailed(error.code, error.detail) from error
    except ServiceError as error:
        if error.retryable:
            raise
        raise JobFailed(error.code, error.detail) from error
    answer = _ask(context, _call(directory, claims), workshop=workshop, directory=directory)
    if answer.refusal is not None:
        found = _refused(context, store, answer.refusal)
    else:
        numbers = differing(answer, claims)
        later = context.read(lambda db: later_passes(db, store.id, claims.cycle_id, numbers))
        found = compare(answer, claims, later)
    return _result(answer, claims, found)


def _call(directory: Path, claims: Claims) -> VerifyCall:
    files = tuple(
        FileToVerify(claim.number, claim.size, claim.sha256 is not None, claim.entries, claim.in_use)
        for claim in claims.files.values()
    )
    return VerifyCall(str(directory), files)


def _ask(context: JobContext, call: VerifyCall, *, workshop: Workshop, directory: Path) -> VerifyAnswer:
    hands, _engine = workshop.take_hands(context, context.job.params.get("engine"), directory=directory)
    return ask_hands(context, hands, lambda taken: taken.verify(call))


def _refused(context: JobContext, store: Store, refusal: Refusal) -> Findings:
    """A log that moved is read anew, and so is one that a cycle of ours is writing to just now.

    Raises: JobWaiting, JobFailed.
    """
    if refusal.code is RefusalCode.LOG_REFUSED and refusal.ref in NO_ENVIRONMENT:
        raise failure(refusal)
    moved = refusal.code is RefusalCode.LOG_MOVED or refusal.ref == LOG_FILE_CHANGED
    if not moved and not context.read(lambda db: _is_written(db, store.id)):
        return refused(refusal)
    raise JobWaiting(
        [WaitingOn(kind="LOG_MOVED", ref=store.id)],
        not_before=context.clock.now() + timedelta(seconds=MOVED_PAUSE_S),
        transient=True,
        code="LOG_MOVED",
        detail=where(refusal),
    )


def _is_written(db: Session, store_id: str) -> bool:
    """Whether a cycle is at work in the environment."""
    newest = newest_cycle(db, store_id)
    if newest is None or newest.state not in ACTIVE:
        return False
    return db.get_one(Job, newest.job_id).state == JobState.RUNNING


def _result(answer: VerifyAnswer, claims: Claims, found: Findings) -> Mapping[str, Any]:
    result = result_of_verification(answer, claims, found)
    if not found.fault_count:
        return result
    first = found.faults[0]
    place = first["file"] if first["offset"] is None else f"{first['file']}, offset {first['offset']}"
    detail = f"{found.fault_count} fault(s); the first one: {first['code']} at {place}: {first['detail']}"
    raise JobFailed(VERIFICATION_FAILED, detail, result=result)
