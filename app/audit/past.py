"""Metadata that is an older copy of itself: what happened since is lost, and what it says may not be so now.

Rules:
- a store rests until it is recovered where its target has seen a greater epoch, or cannot be asked: tokens of
  jobs elsewhere would come to be above it, and nobody would hear what is lost;
- jobs that remove something wait for a word: they may have been paused or aborted since. One that ran and
  whose target has seen a greater epoch has failed by it, before any token is given that would hide that;
- whoever was given a lease may have renewed it since: each that held then holds once more, from now on;
- sessions of the console end: one that was signed out since would be good again;
- a version is given once: an ETag that was read since names nothing any more.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog
from sqlalchemy import ColumnElement, case, update
from sqlmodel import Session, SQLModel, col, select

from app.auth.console_sessions import end_all_sessions
from app.backups.rows import BackupSession
from app.backups.service import hold_sessions_again
from app.db import Database
from app.jobs.errors import IllegalTransition
from app.jobs.models import JobError
from app.jobs.queries import get_job
from app.jobs.rows import Job
from app.jobs.service import KEPT_BY_PAUSE, release_claims, request_pause, wake_parent
from app.jobs.states import TERMINAL, JobState
from app.jobs.writing import EPOCH_AHEAD, change_job, end_values, state_event
from app.kit.conditional import least_version
from app.outbox.rows import Webhook
from app.parameters.rows import GlobalParameter
from app.protection.rows import Protection
from app.protection.service import hold_again
from app.replication.rows import Agreement
from app.secrets.rows import Secret
from app.stores.resting import rest_until_recovered
from app.stores.rows import Store, is_of_known_kind
from app.verbs.table import removes

ACTOR: Final = "lethe"
REASON: Final = "METADATA_RESTORED"
CHANGED_BY_TAG: Final[Sequence[type[SQLModel]]] = (Store, Webhook, GlobalParameter, Secret, Agreement)
ASKED_AT_ONCE: Final = 16
logger = structlog.get_logger("lethe.audit")
IsAhead = Callable[[Store], bool | None]


@dataclass(frozen=True, slots=True)
class Unsure:
    """Jobs that remove something and had not ended, and stores that may have been worked on since.

    Attributes:
        paused: that may go on when somebody says so.
        overtaken: that ran, and whose target has seen a greater epoch.
        stores: whether the target of each is known to have seen a greater epoch; else it cannot be asked.
    """

    paused: Sequence[str]
    overtaken: Sequence[str]
    stores: Mapping[str, bool]


def find_unsure(database: Database, is_ahead: IsAhead) -> Unsure:
    """The jobs and stores that nobody may go on with unasked; targets are asked.

    Args:
        is_ahead: whether a store's target has seen a greater epoch than this metadata; None: nobody knows.
    """
    with database.reading() as db:
        rows = db.exec(select(Job).where(col(Job.state).not_in(sorted(KEPT_BY_PAUSE))).order_by(col(Job.id)))
        jobs = [job for job in rows if removes(job.kind, job.params)]
        stores = db.exec(select(Store).where(is_of_known_kind())).all()
    with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="lethe-ahead") as asking:
        answers = zip(stores, asking.map(is_ahead, stores), strict=True)
        found = {store.id: answer is True for store, answer in answers if answer is not False}
    overtaken = [job.id for job in jobs if found.get(job.store or "") and job.state == JobState.RUNNING]
    return Unsure([job.id for job in jobs if job.id not in overtaken], overtaken, found)


def go_on_from(db: Session, unsure: Unsure, *, now: datetime) -> dict[str, Any]:
    """Make what an older copy says safe to go by; returns what was done, for the audit."""
    for job_id in unsure.paused:
        with suppress(IllegalTransition):  # with its parent
            request_pause(db, job_id, now=now, actor=ACTOR, reason=REASON)
    for job_id in unsure.overtaken:
        _fail(db, job_id, now=now)
    for store, is_known in unsure.stores.items():
        rest_until_recovered(db, store, is_known=is_known, now=now)
    held = hold_sessions_again(db, now=now) + hold_again(db, now=now)
    for table in CHANGED_BY_TAG:
        _leap(db, table, now=now)
    _leap(db, Job, col(Job.state).not_in(sorted(TERMINAL)), now=now)
    _leap(db, BackupSession, col(BackupSession.ended_at).is_(None), now=now)
    _leap(db, Protection, col(Protection.ended_at).is_(None), now=now)
    jobs = {"paused_jobs": len(unsure.paused), "failed_jobs": len(unsure.overtaken)}
    done = {
        **jobs,
        "suspended_stores": len(unsure.stores),
        "leases": held,
        "console_sessions": end_all_sessions(db),
    }
    logger.warning("the metadata is an older copy of itself", **done)
    return done


def _fail(db: Session, job_id: str, *, now: datetime) -> None:
    """RUNNING to FAILED: the fence of its target has shut it out."""
    detail = "its target has seen a greater epoch than this older copy of the metadata; `lethe recover STORE`"
    error = JobError(code=EPOCH_AHEAD, title="Epoch ahead", detail=detail, retryable=False)
    values = end_values(JobState.FAILED, now) | {
        "error": error.model_dump(exclude={"help"}),
        "silence_proved": False,
    }
    wake_parent(db, get_job(db, job_id).parent_id, now=now)
    event = state_event(JobState.FAILED, reason=REASON, actor=ACTOR, silence_proved=False)
    if change_job(
        db, job_id, guards=[col(Job.state) == JobState.RUNNING], values=values, now=now, event=event
    ):
        release_claims(db, job_id, now=now)


def _leap(db: Session, table: type[SQLModel], *which: ColumnElement[bool], now: datetime) -> None:
    version: Any = table.__table__.c.version  # type: ignore[attr-defined]
    least = least_version(now)
    new = case((version < least, least), else_=version + 1)
    db.execute(update(table).where(*which).values(version=new).execution_options(synchronize_session=False))
    db.expire_all()
