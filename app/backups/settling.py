"""Sessions that nobody ends: leases that run out, and preparations that a crash has left."""

import structlog
from sqlmodel import and_, col, or_, select

from app.backups.rows import BackupSession, BackupState
from app.backups.service import PREPARE_GRACE, expire_sessions, fail_session, overdue_sessions
from app.clock import Clock
from app.db import Database
from app.protection.errors import EraseAbortTimeout
from app.protection.reconciliation import keep_protections
from app.settings import Settings

OUTLIVED = "the request that prepared it has died, and its timeout has passed"
logger = structlog.get_logger("lethe.backups")


def keep_backups(database: Database, settings: Settings, *, clock: Clock) -> None:
    """Settle sessions, then protections and control files: at the start and at each beat."""
    settle_sessions(database)
    keep_protections(database, settings, clock=clock)


def settle_sessions(database: Database) -> None:
    """Write what the clock has decided; nothing is written where there is nothing."""
    with database.reading() as db:
        now = database.now(db)
        due = select(BackupSession.id).where(
            or_(
                and_(BackupSession.state == BackupState.ACTIVE, col(BackupSession.lease_expires_at) <= now),
                and_(
                    BackupSession.state == BackupState.PREPARING,
                    col(BackupSession.prepare_until) <= now - PREPARE_GRACE,
                ),
            )
        )
        if db.exec(due.limit(1)).first() is None:
            return
    with database.transaction() as db:
        now = database.now(db)
        for row in expire_sessions(db, now=now):
            logger.warning("backup session expired", store=row.store, session=row.id, tool=row.tool)
        for row in overdue_sessions(db, now=now):
            fail_session(db, row, EraseAbortTimeout(OUTLIVED), now=now)
            logger.warning("backup session failed", store=row.store, session=row.id, detail=OUTLIVED)
