"""The jobs of schedules: who asks for them, with which rights, and what is made.

Rules:
- a schedule acts with the rights that the token of its writer has at that moment, never with more;
- its body is looked at as the POST of its verb would, when it is written and each time that it comes; its
  target is looked at by the job.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError
from sqlmodel import Session

from app.auth.rows import Token
from app.auth.scopes import Scope
from app.auth.service import Caller, caller_of
from app.erase.errors import CycleRunning
from app.errors import InvalidRequest, ScopeMissing, ServiceError, TokenExpired, Unauthenticated, faults_of
from app.jobs.batches.making import select_stores, submit_batch
from app.jobs.batches.service import ChildSubmitter
from app.jobs.errors import ConflictingJob, QueueFull
from app.jobs.rows import Job
from app.kit.instants import instant_text
from app.schedules.errors import VerbNotScheduled
from app.schedules.rows import Schedule
from app.settings import Settings
from app.stores.service import get_store
from app.verbs.table import SCHEDULED, SUBMITTERS, VERBS, scopes_of

BUSY: Final = (ConflictingJob, CycleRunning)
"""Another job stands in the way: it ends."""
PASSING: Final = (*BUSY, QueueFull)
"""What says nothing of the schedule itself."""


def submitter_of(verb: str) -> tuple[Scope, ChildSubmitter]:
    """What a verb needs, and what makes its jobs.

    Raises: VerbNotScheduled.
    """
    if verb not in SCHEDULED:
        kinds = ", ".join(sorted(SCHEDULED))
        errors = [{"pointer": "/verb", "detail": f"one of {kinds}"}]
        raise VerbNotScheduled(f"verb is one of {kinds}", errors=errors)
    return SCHEDULED[verb]


def require_batch(verb: str) -> None:
    """Return when a verb may come for many stores at once.

    Raises: VerbNotScheduled.
    """
    if verb not in SUBMITTERS:
        kinds = ", ".join(sorted(SUBMITTERS))
        errors = [{"pointer": "/labels", "detail": f"of {kinds} only: name a store"}]
        raise VerbNotScheduled(f"{verb} comes for one store: name it in `store`", errors=errors)


def writer_of(db: Session, schedule: Schedule, *, now: datetime) -> Caller:
    """Who wrote a schedule, with the rights that this token has now.

    Raises: Unauthenticated, TokenExpired.
    """
    token = db.get(Token, schedule.token_id)
    if token is None or token.revoked_at is not None:
        raise Unauthenticated("the token that wrote this schedule was revoked", code="TOKEN_REVOKED")
    if token.expires_at is not None and token.expires_at <= now:
        at = instant_text(token.expires_at)
        raise TokenExpired(f"the token that wrote this schedule expired at {at}")
    return caller_of(token)


def fire_job(db: Session, schedule: Schedule, *, caller: Caller, settings: Settings, now: datetime) -> Job:
    """Make the job, or the batch, of a schedule that is due; which engine is there is the job's to find.

    Raises: ServiceError: as the POST of the verb would, at `/body` where the body is at fault.
    """
    if schedule.store is None:
        _check_form(schedule)
    spark = settings.spark.model_copy(update={"enabled": True})  # another instance may run it
    anywhere = settings.model_copy(update={"spark": spark})
    return submit_job(db, schedule, caller=caller, settings=anywhere, now=now, is_asked=False)


def submit_job(
    db: Session,
    schedule: Schedule,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
    is_asked: bool = True,
) -> Job:
    """Make the job, or the batch, of a schedule; nothing where it raises.

    Args:
        is_asked: whether one store of many refuses the whole.
    Raises: ServiceError: as the POST of the verb would, at `/body` where the body is at fault.
    """
    _, make = submitter_of(schedule.verb)
    require(caller, Scope.SCHEDULES_WRITE)
    body = {"reason": f"schedule {schedule.id}", **schedule.body}
    # Before the job is made: one that is under way would refuse it first, and the schedule would be written.
    require_rights(schedule, caller)
    with db.begin_nested():
        try:
            job = _made(
                db, schedule, body, make, caller=caller, settings=settings, now=now, is_asked=is_asked
            )
        except ServiceError as error:
            error.errors = [
                {**fault, "pointer": fault["pointer"].replace("/params", "/body", 1)}
                for fault in error.errors
            ]
            raise
        for needed in sorted(scopes_of(job.kind, job.params)):
            require(caller, needed)
    return job


def _made(
    db: Session,
    schedule: Schedule,
    body: Mapping[str, Any],
    make: ChildSubmitter,
    *,
    caller: Caller,
    settings: Settings,
    now: datetime,
    is_asked: bool,
) -> Job:
    if schedule.store is not None:
        caller.require_store(schedule.store)
        return make(db, get_store(db, schedule.store, lock=True), body, caller, None, settings, now)
    stores = select_stores(db, caller, names=None, labels=schedule.labels)
    reason = str(body["reason"])
    return submit_batch(
        db,
        schedule.verb,
        body,
        stores,
        caller=caller,
        reason=reason,
        make_child=make,
        settings=settings,
        now=now,
        is_asked=is_asked,
    )


def check_body(db: Session, schedule: Schedule, *, caller: Caller, settings: Settings, now: datetime) -> None:
    """Return when the schedule could make its job now, or something in the way will pass; nothing is made.

    Raises: ServiceError: as the POST of the verb would.
    """
    _check_form(schedule)
    trial = db.begin_nested()
    try:
        submit_job(db, schedule, caller=caller, settings=settings, now=now)
    except PASSING:
        return
    except ServiceError as error:
        if error.code != "NO_STORES_SELECTED":  # some may have the labels when it comes
            raise
    finally:
        trial.rollback()


def _check_form(schedule: Schedule) -> None:
    """See that a body fits its verb, whatever stores there are.

    Raises: InvalidRequest.
    """
    forms = {verb.request for verb in VERBS if verb.kind == schedule.verb}
    if schedule.store is None:
        require_batch(schedule.verb)
    for form in forms:
        try:
            form.model_validate(schedule.body)
        except ValidationError as error:
            errors = faults_of({**item, "loc": ("body", "body", *item["loc"])} for item in error.errors())
            raise InvalidRequest(f"{len(errors)} field(s) are not valid", errors=errors) from error


def require_rights(schedule: Schedule, caller: Caller) -> None:
    """Raise ScopeMissing unless a token may have a schedule's verb done with its body."""
    more = (verb.more_scopes(schedule.body) for verb in VERBS if verb.kind == schedule.verb)
    for scope in sorted({submitter_of(schedule.verb)[0]}.union(*more)):
        require(caller, scope)


def require(caller: Caller, scope: Scope) -> None:
    """Raise ScopeMissing unless a token holds a scope, whatever the operation has declared."""
    if scope not in caller.scopes:
        raise ScopeMissing(f"this needs the scope {scope}", extra={"scope": str(scope)})
