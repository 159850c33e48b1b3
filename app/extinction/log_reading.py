"""How far the logs of JE stores are read for what JE itself has discarded.

Invariants:
- no key is NOT_EXTINCT unless the log was read up to its end: a position that was noted, and a walk over
  every entry behind it that found no discard;
- a position is noted in the transaction that notes what was found before it;
- files that went before anybody had read them leave a gap, which only an admin's word closes.
Source: je-extinction-filter; facts eraser-behaviour, 11.
"""

import threading
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlmodel import Session, col, select

from app.db import Database
from app.errors import ServiceError
from app.extinction.models import MaybeBecause
from app.extinction.rows import ExtinctionLogRow
from app.extinction.status import note_log_extinctions
from app.kit.rests import Rest, forget_others, is_resting
from app.settings import Settings
from app.stores.rows import ExtinctionFilterMode, Store, StoreKind
from app.stores.targets import environment_directory
from spark.erase.calls.count_calls import CountAnswer, CountCall
from spark.erase.hands.child import ChildHands
from spark.erase.hands.hands import HandsLost
from spark.erase.reading.log_tail import LogPosition, TailCause, TailLook, look_at_tail

TAIL_MAX_BYTES: Final = 32 << 20
"""More than that behind a position is read by hands, not in the thread of a request."""
NOTED_EVERY_BYTES: Final = 4 << 20
TORN_AFTER: Final = timedelta(seconds=30)
REST_FIRST: Final = timedelta(seconds=3)
REST_MAX: Final = timedelta(minutes=1)
TEXT_MAX: Final = 300
NOT_READ: Final = "LOG_NOT_READ"
GAP: Final = "LOG_GAP"
logger = structlog.get_logger("lethe.extinction")
_guard = threading.Lock()
_seen: dict[tuple[str, str], tuple[LogPosition, LogPosition]] = {}
"""Database and store: the position that is noted, and how far this process has walked from there."""


def unread_log(database: Database, settings: Settings, store: Store, *, now: datetime) -> list[MaybeBecause]:
    """Why the keys of a JE store cannot be judged now; empty: its log is known up to its end."""
    with database.reading() as db:
        row = db.get(ExtinctionLogRow, store.id)
    if row is not None and row.gap is not None and row.path == store.path:
        return [MaybeBecause(code=GAP, detail=row.gap)]
    look = _look(database, settings, store, row, now=now)
    return [] if look.position is not None else [MaybeBecause(code=NOT_READ, detail=look.detail)]


def _look(
    database: Database, settings: Settings, store: Store, row: ExtinctionLogRow | None, *, now: datetime
) -> TailLook:
    if not set(store.runs_on) <= set(settings.labels):
        where = ", ".join(store.runs_on)
        return TailLook(None, TailCause.UNREAD, f"only instances with the labels {where} reach its log")
    noted = position_of(row) if row is not None and row.path == store.path else None
    if noted is None:
        trouble = None if row is None else row.trouble
        return TailLook(None, TailCause.UNREAD, trouble or "its log has not been read yet")
    try:
        directory = environment_directory(store, settings)
    except ServiceError as error:
        return TailLook(None, TailCause.UNREAD, error.detail)
    name = (str(database.url), store.id)
    with _guard:
        known = _seen.get(name)
    start = known[1] if known is not None and known[0] == noted else noted
    torn_before_ns = int((now - TORN_AFTER).timestamp() * 1_000_000_000)
    look = look_at_tail(directory, start, bytes_max=TAIL_MAX_BYTES, torn_before_ns=torn_before_ns)
    if look.position is not None:
        with _guard:
            _seen[name] = (noted, look.position)
    return look


def position_of(row: ExtinctionLogRow) -> LogPosition | None:
    """The position that a row notes."""
    if row.number is None or row.inode is None:
        return None
    assert row.offset is not None, "a position is whole"
    assert row.checksum is not None, "a position is whole"
    assert row.device is not None, "a position is whole"
    return LogPosition(row.number, row.offset, row.checksum, row.device, int(row.inode))


def accept_gap(db: Session, store: Store, *, now: datetime) -> str | None:
    """An admin's word that nothing was discarded in files that went unread; returns what had gone.

    The log is read anew.
    """
    row = db.get(ExtinctionLogRow, store.id)
    if row is None or row.gap is None:
        return None
    gap = row.gap
    row.gap, row.number, row.updated_at = None, None, now
    db.add(row)
    return gap


def read_by_child(call: CountCall) -> CountAnswer:
    """Read a log in a process of its own.

    Raises: HandsLost.
    """
    hands = ChildHands()
    try:
        return hands.count(call)
    finally:
        hands.close()


@dataclass(frozen=True, slots=True)
class LogReading:
    """One look at the logs of all JE stores with an installed filter; those that need it are read as a whole.

    Args:
        rests: of stores whose log was not settled; kept from look to look.
        read: reads a whole log.
    """

    database: Database
    settings: Settings
    now: datetime
    rests: MutableMapping[str, Rest] = field(default_factory=dict)
    changed: Callable[[str], None] = lambda _: None
    read: Callable[[CountCall], CountAnswer] = read_by_child

    def run(self) -> list[str]:
        """Bring every log's position to its end; returns the stores that were read as a whole."""
        stores = self._stores()
        forget_others(self.rests, {store.id for store in stores})
        return [store.id for store in stores if self._bring_up(store)]

    def _stores(self) -> list[Store]:
        with self.database.reading() as db:
            query = select(Store).where(
                Store.kind == StoreKind.JE, Store.extinction_filter == ExtinctionFilterMode.INSTALLED
            )
            stores = db.exec(query.order_by(col(Store.id))).all()
        labels = set(self.settings.labels)
        return [store for store in stores if set(store.runs_on) <= labels]

    def _bring_up(self, store: Store) -> bool:
        with self.database.reading() as db:
            row = db.get(ExtinctionLogRow, store.id)
        look = _look(self.database, self.settings, store, row, now=self.now)
        if look.position is not None:
            if row is not None and _is_far(position_of(row), look.position):
                self._note(store, look.position, gap=row.gap, trouble=None)
            self.rests.pop(store.id, None)
            return False
        if look.cause is TailCause.WRITING or is_resting(self.rests, store.id, now=self.now):
            return False
        gap = look.detail if look.cause is TailCause.GAP else None
        self._read(store, gap=gap or (row.gap if row is not None and row.path == store.path else None))
        return True

    def _read(self, store: Store, *, gap: str | None) -> None:
        answer: CountAnswer | None = None
        try:
            directory = environment_directory(store, self.settings)
            answer = self.read(CountCall(str(directory), discards=True))
            trouble = _trouble(answer)
        except ServiceError as error:
            trouble = error.detail
        except HandsLost as lost:
            trouble = str(lost)
        position = None if answer is None or answer.refusal is not None else answer.read_to
        self._note(store, position, gap=gap, trouble=trouble, answer=answer)
        if trouble is None:
            self.rests.pop(store.id, None)
        else:
            before = self.rests.get(store.id)
            self.rests[store.id] = Rest.after(before, now=self.now, first=REST_FIRST, longest=REST_MAX)
        self.changed(store.id)

    def _note(
        self,
        store: Store,
        position: LogPosition | None,
        *,
        gap: str | None,
        trouble: str | None,
        answer: CountAnswer | None = None,
    ) -> None:
        with self.database.transaction() as db:
            current = db.get(Store, store.id)
            if current is None or current.path != store.path or current.created_at != store.created_at:
                return  # it was taken away, or is another one
            if answer is not None:
                note_log_extinctions(db, store.id, answer.log_extinctions, now=self.now)
            db.merge(
                ExtinctionLogRow(
                    store=store.id,
                    path=str(store.path),
                    number=None if position is None else position.number,
                    offset=None if position is None else position.offset,
                    checksum=None if position is None else position.checksum,
                    device=None if position is None else position.device,
                    inode=None if position is None else str(position.inode),
                    gap=None if gap is None else gap[:TEXT_MAX],
                    trouble=None if trouble is None else trouble[:TEXT_MAX],
                    updated_at=self.now,
                )
            )


def _is_far(noted: LogPosition | None, found: LogPosition) -> bool:
    """Whether a process that starts would walk long from the noted position."""
    return noted is None or noted.number != found.number or found.offset - noted.offset > NOTED_EVERY_BYTES


def _trouble(answer: CountAnswer) -> str | None:
    if answer.refusal is not None:
        return answer.refusal.detail
    if answer.read_to is None:
        return "JE has noted a discard whose transaction has not ended, or may be rolled back"
    return None
