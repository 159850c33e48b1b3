"""One look for all waits of a store: what one sees is told for the others, which rest meanwhile.

Rules:
- one wait looks as often as the youngest needs it; the others of its store and node rest a little longer than
  until they are to be told again, and look for themselves if nobody has told for them until then;
- a wait ends by its own look alone: one that is fulfilled, or in vain, is woken; a deadline is never moved;
- only waits that rest for confirmations are told for: a store that is away or suspended, a window, a pause,
  an abort are each wait's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import func
from sqlmodel import Session, col, select

from app.events.waits.models import EVENT_OUTSTANDING, JOB_WAIT, Noted, WaitParams
from app.events.waits.service import awaited_of, deadline_of
from app.events.waits.telling import CHECKPOINT, CONFIRMATION, told_of, waiting_on_of
from app.jobs.rows import Job, JobCheckpoint
from app.jobs.running.context import JobContext
from app.jobs.running.outcome import shown_wait
from app.jobs.states import ACTIVE, JobState
from app.jobs.writing import change_job
from spark.events.records import Node
from spark.events.waiting import TELL_EVERY_S, Look, look, pause_s

TOLD_MAX: Final = 500
"""So many others are told at a look; those that are due first."""
GRACE: Final = timedelta(seconds=2)
TELL_EVERY: Final = timedelta(seconds=TELL_EVERY_S)
REST: Final = TELL_EVERY + GRACE
"""From one telling to a look of its own, of a wait that another one looks for."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at a node saw, and when, by the metadata database's clock."""

    nodes: Sequence[Node]
    confirmed: Mapping[tuple[int, int], int]
    at: datetime


@dataclass(frozen=True, slots=True)
class _Other:
    id: str
    state: JobState
    version: int
    not_before: datetime | None
    params: WaitParams
    created_at: datetime
    waiting_on: list[dict[str, Any]]

    @property
    def deadline(self) -> datetime | None:
        return deadline_of(self.created_at, self.params)

    def pace_s(self, now: datetime) -> float:
        return pause_s((now - self.created_at).total_seconds())


def count_places(db: Session) -> int:
    """How many stores and nodes are looked at by the waits that have not ended."""
    place = select(Job.store, col(Job.params)["wait_on_store"].as_string().label("place"))
    waits = place.where(col(Job.state).in_(sorted(ACTIVE)), Job.kind == JOB_WAIT).distinct().subquery()
    return db.exec(select(func.count()).select_from(waits)).one()


def tell_others(context: JobContext, params: WaitParams, seen: Seen, *, pace_s: float, ends: bool) -> bool:
    """Tell for the other waits what one of them saw; returns whether another one looks for this one now.

    Args:
        pace_s: how often this one looks.
        ends: this one will not look again.
    Raises: LeaseLost.
    """

    def effect(db: Session) -> bool:
        others = _others(db, context.job.id, context.job.store, params)
        resting = [each for each in others if each.state == JobState.WAITING]
        changes = [change for each in resting if (change := _change(each, seen, pace_s=pace_s, ends=ends))]
        if ends and not changes:
            changes = [(each, {"not_before": seen.at}, None) for each in _next(resting, seen.at)]
        if changes:
            context.change(db, {})
        for other, values, told in changes:
            _write(db, other, values, told, now=seen.at)
        return any(
            each.state == JobState.RUNNING and each.id < context.job.id and each.pace_s(seen.at) <= pace_s
            for each in others
        )

    return context.write(effect)


_Change = tuple[_Other, dict[str, Any], Look | None]


def _others(db: Session, own: str, store: str | None, params: WaitParams) -> list[_Other]:
    looking = col(Job.state).in_([JobState.WAITING, JobState.RUNNING])
    query = select(Job).where(Job.store == store, Job.kind == JOB_WAIT, looking, Job.id != own)
    rows = db.exec(query.order_by(col(Job.not_before), col(Job.id)).limit(TOLD_MAX)).all()
    found = []
    for row in sorted(rows, key=lambda each: each.id):  # one order for all who lock many jobs: no deadlock
        rests = all(each["kind"] == CONFIRMATION for each in row.waiting_on) and row.wake_key is None
        if not (row.waiting_on and rests):
            continue
        read = WaitParams.model_validate(row.params)
        if (read.wait_on_store, read.wait_on) == (params.wait_on_store, params.wait_on):
            state = JobState(row.state)
            found.append(
                _Other(row.id, state, row.version, row.not_before, read, row.created_at, row.waiting_on)
            )
    return found


def _change(other: _Other, seen: Seen, *, pace_s: float, ends: bool) -> _Change | None:
    """What becomes of another wait: woken, told, or left alone."""
    now, deadline = seen.at, other.deadline
    if other.not_before is None or other.not_before <= now:  # paused, or it looks for itself already
        return None
    found = look(awaited_of(other.params), seen.nodes, seen.confirmed)
    if found.is_satisfied or found.impossible is not None:
        return other, {"not_before": now}, None
    is_last_look = deadline is not None and other.not_before >= deadline
    if ends or is_last_look or other.not_before > now + GRACE or other.pace_s(now) < pace_s:
        return None
    return other, {}, found


def _next(resting: Sequence[_Other], now: datetime) -> list[_Other]:
    """Who looks from now on; nobody, where one does so already."""
    due = [each for each in resting if each.not_before is not None]
    if not due or any(each.not_before <= now + GRACE for each in due if each.not_before is not None):
        return []
    return [min(due, key=lambda each: (each.pace_s(now), each.id))]


def _write(db: Session, other: _Other, values: dict[str, Any], found: Look | None, *, now: datetime) -> None:
    """Change another wait, if it rests as it did."""
    event, noted = None, None
    if found is not None:
        row = db.get(JobCheckpoint, (other.id, CHECKPOINT))
        noted = Noted() if row is None else Noted.model_validate(row.value)
        told_at, told = noted.told_at, told_of(found, looked_at=now)
        if told_at is None or now >= told_at + TELL_EVERY:
            event, told_at = (EVENT_OUTSTANDING, told.model_dump(mode="json")), now
            noted = Noted(told=told, told_at=told_at)
        again = told_at + REST
        values = {"not_before": again if other.deadline is None else min(again, other.deadline)}
        shown = [shown_wait(item, "") for item in waiting_on_of(told, deadline=other.deadline)]
        if shown != other.waiting_on:
            values["waiting_on"] = shown
    guards = [col(Job.state) == JobState.WAITING, col(Job.version) == other.version]
    won = change_job(db, other.id, guards=guards, values=values, now=now, event=event)
    if won and event is not None and noted is not None:
        value = noted.model_dump(mode="json")
        db.merge(JobCheckpoint(job_id=other.id, name=CHECKPOINT, value=value, at=now))
