"""Leases that run out, and control files that are brought in step: at start, at each beat, after an end."""

from collections.abc import Sequence

import structlog
from sqlmodel import col, or_, select

from app.clock import Clock
from app.db import Database
from app.errors import ServiceError
from app.protection.control import Environment, environment_of, is_in_step, sync
from app.protection.rows import Protection, ProtectionState
from app.protection.service import control_is_in_step, expire_protections
from app.settings import Settings
from app.stores.rows import Store, StoreKind

STORES_PER_PASS = 500
logger = structlog.get_logger("lethe.protection")


def bring_in_step(database: Database, environment: Environment, ids: Sequence[str], *, clock: Clock) -> bool:
    """Let the control file know that rows have shrunk or are over; where it cannot, a later beat does.

    Nothing is lost by a delay: more stays protected than must.
    """
    try:
        sync(database, environment, clock=clock)
    except ServiceError as error:
        logger.warning("control file not in step", store=environment.store_id, error=error.detail)
        return False
    with database.transaction() as db:
        control_is_in_step(db, environment.store_id, ids, now=database.now(db))
    return True


def keep_protections(database: Database, settings: Settings, *, clock: Clock) -> None:
    """End those past their lease, and bring each control file that this process sees in step."""
    expire_due(database)
    for environment, ids in _environments(database, settings):
        if ids or not is_in_step(database, environment):
            bring_in_step(database, environment, ids, clock=clock)


def expire_due(database: Database) -> None:
    """Say of the protections past their lease that they are over; nothing is written where there are none."""
    with database.reading() as db:
        due = select(Protection.id).where(
            Protection.state == ProtectionState.ACTIVE,
            col(Protection.lease_expires_at) <= database.now(db),
        )
        is_due = db.exec(due.limit(1)).first() is not None
    if is_due:
        with database.transaction() as db:
            for row in expire_protections(db, now=database.now(db)):
                logger.warning("protection expired", store=row.store, protection=row.id, name=row.name)


def _environments(database: Database, settings: Settings) -> list[tuple[Environment, list[str]]]:
    """The environments with something to keep or to give back, each with the rows that are over."""
    with database.reading() as db:
        rows = db.exec(
            select(Protection.store, Protection.id, Protection.control_due).where(
                or_(Protection.state == ProtectionState.ACTIVE, col(Protection.control_due).is_(True))
            )
        ).all()
        wanted = sorted({store for store, _, _ in rows})[:STORES_PER_PASS]
        stores = db.exec(select(Store).where(col(Store.id).in_(wanted), Store.kind == StoreKind.JE)).all()
    found = []
    for store in stores:
        try:
            environment = environment_of(store, settings)
        except ServiceError as error:
            logger.info("environment not seen here", store=store.id, error=error.detail)
            continue
        found.append((environment, [row_id for name, row_id, due in rows if name == store.id and due]))
    return found
