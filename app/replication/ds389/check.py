"""`:check` of a store of kind DS389: the server, and what concerns it among all of its suffix."""

from collections.abc import Iterator
from datetime import datetime

from sqlmodel import col, select

from app.db import Database
from app.jobs.running.claims import current_epoch
from app.replication.ds389.looking import RID, Look, findings_about, look, stores_of_suffix
from app.replication.ds389.notes import note_store
from app.settings import Settings
from app.stores.checks.models import Finding, FindingSeverity, RecoveryRead, StoreCheck
from app.stores.models import StoreKind
from app.stores.rows import Store
from spark.replication.ds389.records import HealthFinding, Reading, Severity


def check_directory(database: Database, store: Store, settings: Settings, _now: datetime) -> StoreCheck:
    """Ask the server and the others of its suffix; whatever is wrong with it is a finding."""
    if not set(store.runs_on) <= set(settings.labels):
        detail = f"only runners labelled {', '.join(store.runs_on)} reach it; this service does not try"
        finding = Finding(code="RUNS_ON_ELSEWHERE", severity=FindingSeverity.INFO, detail=detail)
        return StoreCheck(ok=True, reachable=False, findings=[finding])
    stores = stores_of_suffix(database, store.suffix or "", None)
    if all(each.id != store.id for each in stores):
        stores = [*stores, store]
    seen = look(database, settings, stores, is_whole=True)
    note_store(database, store, seen)
    reading = seen.readings.get(store.id)
    if reading is None:
        return _refused(store, seen)
    same = _conflicts(database, store, reading)
    difference_s = None if reading.clock is None else (reading.clock - reading.at).total_seconds()
    return StoreCheck(
        ok=True,
        reachable=True,
        identity=reading.identity,
        layout=f"{reading.version}, {reading.role} with RID {reading.rid}",
        clock_difference_s=None if difference_s is None else round(difference_s, 3),
        conflicts=[each.detail for each in same],
        findings=[*same, *_findings(seen, store)],
        parameters={RID: reading.rid},
    )


def _refused(store: Store, seen: Look) -> StoreCheck:
    [one] = [each for each in seen.unasked if each.store.id == store.id]
    reachable = not one.is_away and one.code not in ("HOST_NOT_ALLOWED", "SECRET_UNAVAILABLE")
    finding = Finding(code=one.code, severity=FindingSeverity.ERROR, detail=one.detail)
    return StoreCheck(ok=False, reachable=reachable, findings=[finding])


def _findings(seen: Look, store: Store) -> Iterator[Finding]:
    """A CRITICAL one is a WARNING of a check: an ERROR says that Lethe cannot work with the store."""
    others = [each.id for each in seen.stores if each.id != store.id]
    for each in findings_about(seen, store.id):
        severity = FindingSeverity.INFO if each.severity is Severity.UNKNOWN else FindingSeverity.WARNING
        yield Finding(code=each.code, severity=severity, detail=_sentence(each)).naming(others)


def _sentence(one: HealthFinding) -> str:
    return f"{one.detail}. {one.advice}"


def _conflicts(database: Database, store: Store, reading: Reading) -> list[Finding]:
    """Other stores that are this very replica."""
    query = select(Store).where(
        Store.kind == StoreKind.DS389,
        col(Store.id) != store.id,
        Store.target_identity == reading.identity,
    )
    with database.reading() as db:
        others = db.exec(query.order_by(col(Store.id)).limit(10)).all()
    severity, words = FindingSeverity.WARNING, "is the same replica under another name"
    return [
        Finding(code="SAME_REPLICA", severity=severity, detail=f"store {other.id} {words}").naming([other.id])
        for other in others
    ]


def recover_directory(database: Database, _settings: Settings, _store: Store, _actor: str) -> RecoveryRead:
    """Nothing of ours is kept at a server that is only read: there is nothing to recover."""
    with database.reading() as db:
        epoch = current_epoch(db)
    return RecoveryRead(epoch_before=epoch, epoch_after=epoch, foreign_jobs=[])


def is_directory_ahead(_database: Database, _store: Store, _settings: Settings) -> bool:
    """A server that is only read has seen no epoch."""
    return False
