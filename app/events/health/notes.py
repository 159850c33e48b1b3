"""The last look at a node's health, noted for `/metrics`: a scrape asks no node.

Rules:
- each look replaces all that the one before it has noted of the store; one that could not ask the node too,
  so that nobody takes an old look for a good one;
- without metadata the look itself is as good.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from sqlalchemy import delete
from sqlmodel import Session, col

from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable
from app.figures.rows import Figure
from app.figures.sums import OF_HEALTH, Name, count
from app.stores.rows import Store
from app.stores.service import target_of_row
from spark.events.health.judge import judge_node
from spark.events.health.records import HealthFinding, NodeReading, Severity, Thresholds, worst

VALUES: Final = {Severity.OK: 0.0, Severity.WARNING: 1.0, Severity.CRITICAL: 2.0, Severity.UNKNOWN: 3.0}
"""As exit codes of plugins of Nagios."""
Writer = Callable[[Session, datetime], None]


def note_node(
    database: Database, store: Store, reading: NodeReading, limits: Thresholds
) -> list[HealthFinding]:
    """Note what one node sees, by its own word alone; returns it."""
    findings = judge_node(reading, limits)

    def write(db: Session, now: datetime) -> None:
        _status(db, store, worst([each.severity for each in findings]), now)
        for each in findings:
            _finding(db, store, each.code, each.severity, each.node, now)
        _measures(db, store, reading, now)

    _replace(database, store, write)
    return findings


def note_unasked(database: Database, store: Store, node: int | None, code: str) -> None:
    """Note that a node could not be asked."""

    def write(db: Session, now: datetime) -> None:
        _status(db, store, Severity.UNKNOWN, now)
        _finding(db, store, code, Severity.UNKNOWN, node, now)

    _replace(database, store, write)


def _replace(database: Database, store: Store, write: Writer) -> None:
    with suppress(MetadataUnavailable, MetadataBusy), database.transaction(is_news=False) as db:
        kept = db.get(Store, store.id, with_for_update=True)
        if kept is None or target_of_row(kept) != target_of_row(store):
            return  # removed, or led to another node, while this one was asked
        names = [name.value for name in OF_HEALTH]
        db.execute(delete(Figure).where(col(Figure.store) == store.id, col(Figure.name).in_(names)))
        write(db, database.now(db))


def _status(db: Session, store: Store, severity: Severity, now: datetime) -> None:
    count(db, Name.SLONY_HEALTH, store=store.id, value=VALUES[severity], now=now)
    count(db, Name.SLONY_HEALTH_AT, store=store.id, value=now.timestamp(), now=now)


def _finding(
    db: Session, store: Store, code: str, severity: Severity, node: int | None, now: datetime
) -> None:
    of_node = "" if node is None else str(node)
    count(db, Name.SLONY_FINDING, code, severity.value, of_node, store=store.id, now=now)


def _measures(db: Session, store: Store, reading: NodeReading, now: datetime) -> None:
    for table, rows in reading.table_rows.items():
        if rows is not None:
            count(db, Name.SLONY_TABLE_ROWS, table, store=store.id, value=float(rows), now=now)
    for each in reading.origins:
        if each.newest_at is not None:
            age_s = max(0.0, (reading.now - each.newest_at).total_seconds())
            count(db, Name.SLONY_EVENT_AGE, str(each.origin), store=store.id, value=age_s, now=now)
    oldest = min((each.since for each in reading.transactions), default=reading.now)
    age_s = max(0.0, (reading.now - oldest).total_seconds())
    count(db, Name.SLONY_TRANSACTION_AGE, store=store.id, value=age_s, now=now)
