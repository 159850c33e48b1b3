"""Rules of windows: add, list, remove; and what they mean for a store."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import text
from sqlmodel import Session, col, func, select

from app.auth.service import Caller
from app.errors import Conflict, NotFound
from app.feed.writing import WINDOW, announce_change
from app.jobs.service import wake
from app.kit.ids import new_id
from app.kit.pagination import Page, read_page
from app.schedules.crontab import Crontab
from app.schedules.windows.models import WindowCreate, WindowRead, columns_of, read_window
from app.schedules.windows.rows import Window
from app.schedules.windows.rules import Rule, WindowKind

WINDOWS_MAX: Final = 500
WAKE_KEY: Final = "windows"
"""The event "the windows have changed"."""


class WindowNotFound(NotFound):
    """There is no such window."""


class TooManyWindows(Conflict):
    """Every job looks at every window of its store."""


def rule_of(row: Window) -> Rule:
    """A row as the rules have it."""
    crontab = Crontab(row.cron, row.time_zone)
    return Rule(row.id, WindowKind(row.kind), crontab, timedelta(seconds=row.duration_s), row.intensity)


def all_windows(db: Session, *, lock: bool = False) -> Sequence[Window]:
    """Every window.

    Args:
        lock: nobody removes one before the end of the transaction; one that is being removed is waited for.
    """
    query = select(Window).order_by(col(Window.id)).limit(WINDOWS_MAX)
    return db.exec(query.with_for_update(read=True, key_share=True) if lock else query).all()


def _alone(db: Session) -> None:
    """Whoever decides by the windows that a job rests does so before this, and is woken, or after it."""
    if db.get_bind().dialect.name == "postgresql":  # SQLite has one writer
        db.execute(text("lock table windows in exclusive mode"))


def is_for(window: Window, labels: Mapping[str, str]) -> bool:
    """Whether a window is one of a store with these labels."""
    return all(labels.get(name) == value for name, value in window.labels.items())


def show(row: Window, *, now: datetime) -> WindowRead:
    """A window as clients see it."""
    rule = rule_of(row)
    return read_window(row, open_until=rule.ends_at(now), next_at=rule.crontab.next_after(now))


def create_window(db: Session, request: WindowCreate, *, caller: Caller, now: datetime) -> Window:
    """Add a window; jobs that rest look again.

    Raises: TooManyWindows.
    """
    _alone(db)
    if db.exec(select(func.count()).select_from(Window)).one() >= WINDOWS_MAX:
        raise TooManyWindows(f"there are {WINDOWS_MAX} windows; remove one that nobody needs")
    fields = columns_of(request)
    row = Window(id=new_id("win"), **fields, created_by=caller.name, created_at=now)
    db.add(row)
    _tell(db, row, "ADDED", now=now)
    db.flush()
    wake(db, WAKE_KEY, now=now)
    return row


def _tell(db: Session, row: Window, change: str, *, now: datetime) -> None:
    """Write the event of a change; a window is of no store, and its event for who sees all."""
    announce_change(
        db,
        "window",
        kind=WINDOW,
        store=None,
        subject=f"windows/{row.id}",
        data={"change": change, "kind": str(row.kind)},
        now=now,
    )


def get_window(db: Session, window_id: str) -> Window:
    """The row of a window.

    Raises: WindowNotFound.
    """
    row = db.get(Window, window_id)
    if row is None:
        raise WindowNotFound("there is no such window")
    return row


def remove_window(db: Session, window_id: str, *, now: datetime) -> None:
    """Remove a window; jobs that rest look again.

    Raises: WindowNotFound.
    """
    _alone(db)
    row = get_window(db, window_id)
    db.delete(row)
    _tell(db, row, "REMOVED", now=now)
    db.flush()
    wake(db, WAKE_KEY, now=now)


def list_windows(db: Session, *, page_size: int, page_token: str, now: datetime) -> Page[WindowRead]:
    """Windows, newest first."""
    return read_page(
        db,
        select(Window),
        col(Window.id),
        filters={"list": "windows"},
        page_size=page_size,
        page_token=page_token,
        item=lambda row: show(row, now=now),
    )
