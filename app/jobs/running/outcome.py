"""How an attempt ends: the guarded transition for each way, in one transaction."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session

from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import JobError, WaitingOn
from app.jobs.queries import get_job
from app.jobs.running.context import JobContext
from app.jobs.running.deadlines import A_DAY, Deadline, cause_of, deadline_of, note_late
from app.jobs.service import release_claims, wake_parent
from app.jobs.states import HELD, JobState, sources_of
from app.jobs.writing import end_values, state_event
from app.kit.texts.secrets_out import without_secrets

RETRY_BACKOFF_FIRST_S = 1.0
SILENCE_RETRY_S = 2.0
CAUSE_MAX_CHARS = 300


def _released(**values: Any) -> dict[str, Any]:
    return {"lease_instance": None, "lease_expires_at": None} | values


def _end(context: JobContext, state: JobState, values: Mapping[str, Any], **facts: Any) -> None:
    def effect(db: Session) -> None:
        now = context.database.now(db)
        wake_parent(db, _parent_of(db, context.job.id), now=now)  # first: parents are locked before children
        change = end_values(state, now) | dict(values)
        if context.job.is_quiet and state in (JobState.SUCCEEDED, JobState.FAILED):
            context.change(db, {}, _at_work(context), states=[JobState.RUNNING])
        context.change(db, change, state_event(state, **facts), states=_sources(state))
        release_claims(db, context.job.id, now=now)

    context.write(effect)


def _at_work(context: JobContext) -> tuple[str, dict[str, Any]]:
    """The event that a quiet claim left out: what ends has been seen at work."""
    return state_event(JobState.RUNNING, instance=context.instance_id, attempt=context.job.attempt)


def _parent_of(db: Session, job_id: str) -> str | None:
    return get_job(db, job_id).parent_id


def _sources(state: JobState) -> list[JobState]:
    """The states that a runner may bring to `state`."""
    return [source for source in sources_of(state) if source in HELD]


def succeed(context: JobContext, result: Mapping[str, Any]) -> None:
    """RUNNING to SUCCEEDED."""
    _end(context, JobState.SUCCEEDED, {"result": dict(result)})


def fail(context: JobContext, error: JobFailed, *, proven: bool = False) -> None:
    """RUNNING to FAILED, with the problem that clients see.

    Args:
        proven: silence has been proved; it is told where it has not.
    """
    shown = JobError(
        code=error.code,
        title=error.code.replace("_", " ").capitalize(),
        detail=error.detail,
        retryable=error.retryable,
    )
    values: dict[str, Any] = {"error": shown.model_dump(exclude={"help"}), "silence_proved": proven}
    if error.result is not None:
        values["result"] = error.result
    _end(context, JobState.FAILED, values, code=error.code, detail=error.detail)


def aborted(context: JobContext) -> None:
    """ABORTING to ABORTED; silence has been proved."""
    _end(context, JobState.ABORTED, {})


def paused(context: JobContext) -> None:
    """PAUSING to PAUSED; silence has been proved, the claim at the target stays."""

    def effect(db: Session) -> None:
        wake_parent(db, _parent_of(db, context.job.id), now=context.database.now(db))
        values = _released(state=JobState.PAUSED, unproven=False, waiting_on=[], not_before=None)
        context.change(db, values, state_event(JobState.PAUSED), states=_sources(JobState.PAUSED))

    context.write(effect)


def hand_back(context: JobContext) -> None:
    """RUNNING to QUEUED at a graceful stop: no crash is counted."""
    values = _released(state=JobState.QUEUED, not_before=None, waiting_on=[])
    event = state_event(JobState.QUEUED, reason="HANDED_BACK")

    def effect(db: Session) -> None:
        if context.job.is_quiet:
            context.change(db, {}, _at_work(context), states=[JobState.RUNNING])
        context.change(db, values, event, states=[JobState.RUNNING])

    context.write(effect)


def go_on(context: JobContext) -> None:
    """RUNNING to QUEUED: the pause was taken back after the attempt had stopped; silence has been proved.

    A task that stopped though nobody had asked it to would do so for ever: it FAILS.
    """
    if context.job.state is JobState.RUNNING and context.stop_cause is None:
        fail(context, JobFailed("INTERNAL", "the task stopped, and no stop was ordered"), proven=True)
        return
    values = _released(state=JobState.QUEUED, not_before=None, waiting_on=[], unproven=False)
    event = state_event(JobState.QUEUED, reason="RESUMED")
    context.write(lambda db: context.change(db, values, event, states=[JobState.RUNNING]))


def too_long(context: JobContext, waiting: JobWaiting, *, most: timedelta | None) -> JobFailed | None:
    """How a job fails that would wait on, though its deadline has passed; None: it may.

    Args:
        most: how long its kind may wait where no parameter says so.
    """
    shown = [shown_wait(item, waiting.detail) for item in waiting.waiting_on]

    def judge(db: Session) -> JobFailed | None:
        now = context.database.now(db)
        deadline = _deadline(db, context, shown, most=most, now=now)
        is_late = deadline is not None and deadline.fails and now >= deadline.at
        if deadline is None or not is_late or waiting.overtaken(db):
            return None
        return deadline.failure(shown, without_secrets(waiting.detail)[:CAUSE_MAX_CHARS], now=now)

    return context.write(judge)


def _deadline(
    db: Session,
    context: JobContext,
    shown: Sequence[dict[str, Any]],
    *,
    most: timedelta | None,
    now: datetime,
) -> Deadline | None:
    return deadline_of(db, get_job(db, context.job.id), cause_of(shown), most=most, now=now)


def wait(context: JobContext, waiting: JobWaiting, *, proven: bool, most: timedelta | None = A_DAY) -> None:
    """RUNNING to WAITING, or to FAILED when the retries are used up; it looks again at its deadline.

    Args:
        most: how long its kind may wait where no parameter says so; who fails by it was asked before.
    """
    # of the row, not of the claim: what this attempt gained counts from zero
    retries = context.write(lambda db: get_job(db, context.job.id).retries)
    if waiting.transient and retries >= context.settings.job_retries_max:
        fail(context, JobFailed(waiting.code, waiting.detail, retryable=True), proven=proven)
        return

    def effect(db: Session) -> None:
        now = context.database.now(db)
        not_before = now if waiting.overtaken(db) else _not_before(context, waiting, now, retries)
        shown = [shown_wait(item, waiting.detail) for item in waiting.waiting_on]
        deadline = _deadline(db, context, shown, most=most, now=now)
        if deadline is not None and now < deadline.at:
            not_before = deadline.at if not_before is None else min(not_before, deadline.at)
        values = _released(
            state=JobState.WAITING,
            not_before=not_before,
            wake_key=waiting.wake_key,
            waiting_on=shown,
            unproven=not proven,
            retries=retries + (1 if waiting.transient else 0),
        )
        event = state_event(JobState.WAITING, waiting_on=shown, detail=waiting.detail or None)
        if waiting.gives_back:
            values["gave_back"] = True
        is_news = not context.job.is_quiet or get_job(db, context.job.id).waiting_on != shown
        context.change(db, values, event if is_news else None, states=_sources(JobState.WAITING))
        if waiting.gives_back:
            release_claims(db, context.job.id, now=now)
        if deadline is not None and now >= deadline.at:
            note_late(db, context.job.id, deadline, now=now)

    context.write(effect)


def shown_wait(item: WaitingOn, detail: str) -> dict[str, Any]:
    """What is kept of a wait: with the last error, without what nobody may read."""
    cause = without_secrets(detail)[:CAUSE_MAX_CHARS]
    return item.model_dump(mode="json") | ({"cause": cause} if cause else {})


def _not_before(context: JobContext, waiting: JobWaiting, now: datetime, retries: int) -> datetime | None:
    if not waiting.transient:
        return waiting.not_before
    backoff = min(RETRY_BACKOFF_FIRST_S * 2**retries, context.settings.job_retry_backoff_max_s)
    return now + timedelta(seconds=backoff)


def silence_unproven(context: JobContext, detail: str, *, most: timedelta | None = A_DAY) -> None:
    """Stay PAUSING or ABORTING, give the lease back, and try the proof again soon; it never fails by that."""

    def effect(db: Session) -> None:
        now = context.database.now(db)
        until = now + timedelta(seconds=SILENCE_RETRY_S)
        shown = shown_wait(WaitingOn(kind="TARGET_SILENCE", ref=detail[:200], until=until), detail)
        values = _released(not_before=until, waiting_on=[shown])
        if get_job(db, context.job.id).state == JobState.RUNNING:  # resumed since
            event = state_event(JobState.QUEUED, reason="RESUMED")
            values |= {"state": JobState.QUEUED, "unproven": True, "waiting_on": []}
            context.change(db, values, event, states=[JobState.RUNNING])
            return
        deadline = _deadline(db, context, [shown], most=most, now=now)
        context.change(db, values, states=[JobState.PAUSING, JobState.ABORTING])
        if deadline is not None and now >= deadline.at:
            note_late(db, context.job.id, deadline, now=now)

    context.write(effect)
