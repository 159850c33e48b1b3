"""Retention of Lethe's own rows and archives: it cleans up after itself, a bounded piece at a time."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import delete
from sqlmodel import Session, col, select

from app.archives.rows import Archive
from app.auth.chain import forget
from app.auth.rows import IdempotencyKey
from app.backups.rows import BackupFile, BackupSession
from app.db import Database
from app.erase.certificates.rows import ErasureCertificate
from app.erase.rows import ErasureCycle
from app.feed.numbering import forget as forget_events
from app.figures.series import forget_points
from app.hooks.ending import forget_deliveries, give_up
from app.hooks.looks import say_queued
from app.jobs.rows import Job, JobCheckpoint, JobEvent
from app.jobs.states import TERMINAL
from app.jobs.writing import EVENT_PROGRESS
from app.kinds.parameter import as_timedelta
from app.parameters.service import effective_by_name
from app.protection.rows import Protection
from app.purge.backlog.samples import forget_samples
from app.schedules.rows import ScheduleFiring
from app.settings import Settings

ROWS_PER_PASS = 1_000
PIECES_PER_PASS: Final = 10
PIECES_MAX: Final = 1_000
logger = structlog.get_logger("lethe.retention")


def _kept(db: Session, what: str) -> timedelta:
    return as_timedelta(effective_by_name(db, f"lethe.retention.{what}", {}).value)


def _forget_jobs(db: Session, now: datetime) -> int:
    """Ended jobs with their events and checkpoints; never a parent before its children, nor an erasure
    before its certificate.
    """
    certified = select(ErasureCertificate.cycle_id)
    uncertified = select(ErasureCycle.job_id).where(col(ErasureCycle.id).not_in(certified))
    with_children = select(Job.parent_id).where(col(Job.parent_id).is_not(None))
    ids = db.exec(
        select(Job.id)
        .where(
            col(Job.state).in_(sorted(TERMINAL)),
            col(Job.finished_at) < now - _kept(db, "jobs"),
            col(Job.id).not_in(with_children),
            col(Job.id).not_in(select(Archive.job_id)),
            col(Job.id).not_in(_plans_in_use(db)),
            col(Job.id).not_in(uncertified),
        )
        .limit(ROWS_PER_PASS)
    ).all()
    if not ids:
        return 0
    for table in (JobEvent, JobCheckpoint):
        db.execute(delete(table).where(col(table.job_id).in_(ids)))
    db.execute(delete(Job).where(col(Job.id).in_(ids)))
    return len(ids)


def _plans_in_use(db: Session) -> list[str]:
    """Plans that a job has not ended to execute: what it may remove is kept with them."""
    running = db.exec(select(Job.params).where(col(Job.state).not_in(sorted(TERMINAL)))).all()
    return [str(params["plan_id"]) for params in running if params.get("plan_id")]


def _forget_progress(db: Session, now: datetime) -> int:
    """Progress events of ended jobs; transitions stay as long as the job."""
    ended = select(Job.id).where(col(Job.state).in_(sorted(TERMINAL)))
    rows = db.exec(
        select(JobEvent.job_id, JobEvent.seq)
        .where(
            JobEvent.type == EVENT_PROGRESS,
            col(JobEvent.at) < now - _kept(db, "events"),
            col(JobEvent.job_id).in_(ended),
        )
        .limit(ROWS_PER_PASS)
    ).all()
    for job_id, seq in rows:
        db.execute(delete(JobEvent).where(col(JobEvent.job_id) == job_id, col(JobEvent.seq) == seq))
    return len(rows)


def _forget_audit(db: Session, now: datetime) -> int:
    return forget(db, before=now - _kept(db, "audit"), now=now, rows_max=ROWS_PER_PASS)


def _forget_certificates(db: Session, now: datetime) -> int:
    before = now - _kept(db, "certificates")
    ids = db.exec(
        select(ErasureCertificate.cycle_id)
        .where(col(ErasureCertificate.issued_at) < before)
        .where(col(ErasureCertificate.cycle_id).not_in(select(ErasureCycle.id)))
        .limit(ROWS_PER_PASS)
    ).all()
    if ids:
        db.execute(delete(ErasureCertificate).where(col(ErasureCertificate.cycle_id).in_(ids)))
    return len(ids)


def _forget_keys(db: Session, now: datetime) -> int:
    deleted = db.execute(
        delete(IdempotencyKey)
        .where(col(IdempotencyKey.created_at) < now - _kept(db, "idempotency"))
        .returning(col(IdempotencyKey.key))
    ).all()
    return len(deleted)


def _forget_backups(db: Session, now: datetime) -> int:
    """Ended backups with their files, and ended protections: as long as jobs. A row goes after its range."""
    before = now - _kept(db, "jobs")
    sessions = db.exec(
        select(BackupSession.id).where(col(BackupSession.ended_at) < before).limit(ROWS_PER_PASS)
    ).all()
    if sessions:
        db.execute(delete(BackupFile).where(col(BackupFile.session_id).in_(sessions)))
        db.execute(delete(BackupSession).where(col(BackupSession.id).in_(sessions)))
    protections = db.exec(
        select(Protection.id)
        .where(
            col(Protection.ended_at) < before,
            col(Protection.control_due).is_(False),
            col(Protection.id).not_in(select(BackupSession.protection_id)),
        )
        .limit(ROWS_PER_PASS)
    ).all()
    if protections:
        db.execute(delete(Protection).where(col(Protection.id).in_(protections)))
    return len(sessions) + len(protections)


def _forget_deliveries(db: Session, now: datetime) -> int:
    """What has left, and what is given up; before that, what is past its time is given up.

    What an older version has left in the queue is put in order, that its wait is told.
    """
    say_queued(db)
    give_up(db, now=now)
    return forget_deliveries(db, before=now - _kept(db, "webhooks"))


def _forget_firings(db: Session, now: datetime) -> int:
    """Due times that were fired, as long as jobs; what a clock that is put back might meet again stays."""
    rows = db.exec(
        select(ScheduleFiring.schedule_id, ScheduleFiring.due_at)
        .where(
            col(ScheduleFiring.fired_at) < now - _kept(db, "jobs"),
            col(ScheduleFiring.due_at) < now - _kept(db, "jobs"),
        )
        .limit(ROWS_PER_PASS)
    ).all()
    for schedule_id, due_at in rows:
        row = (col(ScheduleFiring.schedule_id) == schedule_id, col(ScheduleFiring.due_at) == due_at)
        db.execute(delete(ScheduleFiring).where(*row))
    return len(rows)


def _forget_feed(db: Session, now: datetime) -> int:
    return forget_events(db, before=now - _kept(db, "feed"))


def _forget_points(db: Session, now: datetime) -> int:
    return forget_points(db, now=now)


def _forget_samples(db: Session, now: datetime) -> int:
    return forget_samples(db, now=now)


PASSES: Final[Mapping[str, Callable[[Session, datetime], int]]] = {
    "jobs": _forget_jobs,
    "events": _forget_progress,
    "audit": _forget_audit,
    "idempotency": _forget_keys,
    "certificates": _forget_certificates,
    "backups": _forget_backups,
    "webhooks": _forget_deliveries,
    "schedule_firings": _forget_firings,
    "feed": _forget_feed,
    "series": _forget_points,
    "backlogs": _forget_samples,
}


def forget_rows(database: Database, passes: Iterable[str] = PASSES) -> dict[str, int]:
    """One pass over all tables, or some, a few pieces of each at most; returns how many rows went of each."""
    return {name: _forget_pieces(database, PASSES[name]) for name in passes}


def _forget_pieces(database: Database, forget_piece: Callable[[Session, datetime], int]) -> int:
    """Forget a piece, and the next ones while they are full: what grows faster is caught up with."""
    gone = 0
    for _ in range(PIECES_PER_PASS):
        with database.transaction(is_news=False) as db:
            piece = forget_piece(db, database.now(db))
        gone += piece
        if piece < ROWS_PER_PASS:
            break
    return gone


def _archives_in_use(db: Session) -> set[str]:
    """Archives that a job has not ended to write, or is reading."""
    jobs = db.exec(select(Job.id, col(Job.subject)).where(col(Job.state).not_in(sorted(TERMINAL)))).all()
    return {job_id for job_id, _ in jobs} | {str(subject["id"]) for _, subject in jobs if subject}


def remove_expired_archives(database: Database, settings: Settings, *, instance_id: str) -> list[str]:
    """Remove archives past their retention which lie on this instance's disk; the files first, then the row.

    Only folders below the archive root, or where archives of this instance lay before one was named, are ever
    removed, and none that a job has not ended to use.
    """
    removed: list[str] = []
    after = ""
    for _ in range(PIECES_MAX):  # what stays is passed over, however much it is
        expired, in_use = _expired(database, settings, instance_id, after=after)
        removed += [
            archive.job_id
            for archive in expired
            if archive.job_id not in in_use
            and _remove_archive(database, _roots(settings, archive, instance_id), archive)
        ]
        if len(expired) < ROWS_PER_PASS or len(removed) >= ROWS_PER_PASS:
            break
        after = expired[-1].job_id
    return removed


def _expired(
    database: Database, settings: Settings, instance_id: str, *, after: str
) -> tuple[Sequence[Archive], set[str]]:
    """A piece of the archives past their retention that lie where we see them, and what jobs use."""
    with database.reading() as db:
        query = select(Archive).where(
            col(Archive.expires_at) <= database.now(db), col(Archive.job_id) > after
        )
        if settings.archive_root is None:  # else all share it
            query = query.where(Archive.instance == instance_id)
        expired = db.exec(query.order_by(col(Archive.job_id)).limit(ROWS_PER_PASS)).all()
        return expired, _archives_in_use(db) if expired else set()


def _roots(settings: Settings, archive: Archive, instance_id: str) -> list[Path]:
    """Below which an archive is removed. The data directory of another instance may have the path of ours."""
    own = [settings.own_archives] if archive.instance == instance_id else []
    return [settings.effective_archive_root, *own]


def _remove_archive(database: Database, roots: Iterable[Path], archive: Archive) -> bool:
    """Remove the files of an archive, then its row; False: it is not ours to remove, or cannot be."""
    directory = Path(archive.directory).resolve()
    if not any(root.resolve() in directory.parents for root in roots):
        return False
    try:
        if directory.exists():
            shutil.rmtree(directory)
    except OSError as error:  # the others go all the same
        logger.warning("archive cannot be removed", job_id=archive.job_id, error=str(error))
        return False
    with database.transaction() as db:
        db.execute(delete(Archive).where(col(Archive.job_id) == archive.job_id))
    logger.info("archive removed after its retention", job_id=archive.job_id, directory=str(directory))
    return True
