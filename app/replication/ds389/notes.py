"""The last look at a server's health, noted for `/metrics`: a scrape asks no server.

Rules:
- each look replaces all that the one before it has noted of the store; one that could not ask it too, so that
  nobody takes an old look for a good one;
- without metadata the look itself is as good.
"""

from contextlib import suppress
from typing import Final

from sqlalchemy import delete
from sqlmodel import col

from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable
from app.figures.rows import Figure
from app.figures.sums import OF_DS389, Name, count
from app.replication.ds389.looking import Look, findings_about
from app.stores.rows import Store
from app.stores.service import target_of_row
from spark.replication.ds389.judge import judged_lag_s, worst
from spark.replication.ds389.records import Severity
from spark.replication.ds389.topology import rid_lags

VALUES: Final = {Severity.OK: 0.0, Severity.WARNING: 1.0, Severity.CRITICAL: 2.0, Severity.UNKNOWN: 3.0}
"""As exit codes of plugins of Nagios."""


def note_look(database: Database, seen: Look) -> None:
    """Note what was seen, for each store by itself."""
    for store in seen.stores:
        note_store(database, store, seen)


def note_store(database: Database, store: Store, seen: Look) -> None:
    """Note what concerns one store."""
    found = list(findings_about(seen, store.id))
    with suppress(MetadataUnavailable, MetadataBusy), database.transaction(is_news=False) as db:
        kept = db.get(Store, store.id, with_for_update=True)
        if kept is None or target_of_row(kept) != target_of_row(store):
            return  # removed, or led to another server, while this one was asked
        names = [name.value for name in OF_DS389]
        db.execute(delete(Figure).where(col(Figure.store) == store.id, col(Figure.name).in_(names)))
        now = database.now(db)
        count(db, Name.DS389_HEALTH, store=store.id, value=VALUES[worst(found)], now=now)
        count(db, Name.DS389_HEALTH_AT, store=store.id, value=now.timestamp(), now=now)
        for code, severity in sorted({(each.code, each.severity) for each in found}):
            count(db, Name.DS389_FINDING, code, severity.value, store=store.id, now=now)
        reading = seen.readings.get(store.id)
        if reading is None:
            return
        lags = {
            lag.rid: judged_lag_s(lag, is_moving=(store.id, lag.rid) in seen.moving)
            for lag in rid_lags(seen.readings)[store.id]
        }
        for rid in {element.rid for element in reading.ruv.elements} | lags.keys():
            count(db, Name.DS389_LAG, str(rid), store=store.id, value=lags.get(rid, 0.0), now=now)
