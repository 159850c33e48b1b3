"""What changes without a job stands in the feed: pages and dashboards that are open hear of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import col, select

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.feed.rows import FeedEvent
from app.fleet.checker import FIRST
from app.protection.rows import ProtectionKind
from app.protection.service import NewProtection, create_protection, end_protection
from app.schedules.models import ScheduleCreate
from app.schedules.service import create_schedule, pause_schedule, remove_schedule, resume_schedule
from app.schedules.windows.models import WindowCreate
from app.schedules.windows.service import create_window, remove_window
from app.settings import Settings
from app.stores.checks.models import Finding, FindingSeverity, StoreCheck
from app.stores.models import SuspendRequest
from app.stores.resting import end_past_suspensions, resume_store, suspend_store
from app.stores.rows import Store
from app.stores.service import remove_store
from tests.app.fake_clock import FakeClock
from tests.app.fleet.test_checker import PERIOD, Watched

ADMIN = Caller("tok_1", "ann", frozenset(Scope), None)


def told(database: Database) -> list[tuple[str, str, Any]]:
    """Type, subject and what has changed, of all events."""
    with database.reading() as db:
        rows = db.exec(select(FeedEvent).order_by(col(FeedEvent.subject), col(FeedEvent.seq))).all()
    return [(each.type, each.subject, each.data.get("change", each.data.get("state"))) for each in rows]


def add_store(database: Database, clock: FakeClock, name: str = "shop") -> None:
    now = clock.now()
    with database.transaction() as db:
        db.add(Store(id=name, kind="SYMMETRICDS", url="sqlite:////x", created_at=now, updated_at=now))


def test_store_that_becomes_unready_is_told_once_and_is_news(
    database: Database, clock: FakeClock, settings: Settings
) -> None:
    found = [StoreCheck(ok=True, reachable=True)]
    watched = Watched(database, clock, settings, lambda _store: found[0])
    watched.add("a")
    watched.run()
    watched.after(FIRST)
    away = Finding(code="TARGET_UNREACHABLE", severity=FindingSeverity.ERROR, detail="away")
    found[0] = StoreCheck(ok=False, reachable=False, findings=[away])
    news = database.news()
    for _ in range(3):
        assert watched.after(PERIOD) == ["a"]
    assert told(database) == [("store", "stores/a", "HEALTH")] * 2
    assert database.news() == news + 1  # else nobody on SQLite would look
    with database.reading() as db:
        last = db.exec(select(FeedEvent).order_by(col(FeedEvent.seq).desc())).first()
    assert last is not None
    assert last.data["is_ready"] is False
    assert last.data["findings"] == ["TARGET_UNREACHABLE"]


def test_rest_of_a_store_is_told_with_its_end(database: Database, clock: FakeClock) -> None:
    add_store(database, clock)
    request = SuspendRequest(reason="restore", duration=timedelta(hours=1))
    with database.transaction() as db:
        suspend_store(db, "shop", request, now=clock.now())
    clock.advance(1)
    with database.transaction() as db:
        resume_store(db, "shop", now=clock.now())
        suspend_store(db, "shop", request, now=clock.now())
    clock.advance(3600)
    with database.transaction() as db:
        end_past_suspensions(db, now=clock.now())
        remove_store(db, "shop", if_match="*", active_jobs=0, now=clock.now())
    changes = [change for _, _, change in told(database)]
    assert sorted(changes) == ["REMOVED", "RESUMED", "RESUMED", "SUSPENDED", "SUSPENDED"]


def test_schedules_and_windows_are_told(database: Database, clock: FakeClock, settings: Settings) -> None:
    add_store(database, clock)
    body = {"verb": "PURGE", "body": {"kind": "OUTGOING"}, "cron": "0 3 * * *", "store": "shop"}
    schedule = ScheduleCreate.model_validate(body)
    window = WindowCreate.model_validate({"kind": "DENY", "cron": "0 8 * * *", "duration": "PT1H"})
    with database.transaction() as db:
        row = create_schedule(db, schedule, caller=ADMIN, settings=settings, now=clock.now())
        schedule_id = row.id
        window_id = create_window(db, window, caller=ADMIN, now=clock.now()).id
    for act in (pause_schedule, resume_schedule, remove_schedule):
        clock.advance(1)
        with database.transaction() as db:
            act(db, schedule_id, caller=ADMIN, now=clock.now())
    with database.transaction() as db:
        remove_window(db, window_id, now=clock.now())
    of_schedule = [change for what, _, change in told(database) if what == "schedule"]
    assert of_schedule == ["ADDED", "PAUSED", "RESUMED", "REMOVED"]
    assert [change for what, _, change in told(database) if what == "window"] == ["ADDED", "REMOVED"]


@pytest.mark.parametrize("of_backup", [False, True])
def test_protection_is_told_unless_its_backup_is(
    database: Database, clock: FakeClock, of_backup: bool
) -> None:
    add_store(database, clock)
    new = NewProtection(
        kind=ProtectionKind.SCAN,
        name="scan",
        lease=timedelta(hours=1),
        numbers=[1],
        backup_session_id="bks_1" if of_backup else None,
    )
    with database.transaction() as db:
        row = create_protection(db, "shop", new, caller=ADMIN, now=clock.now())
        end_protection(db, row, now=clock.now())
    states = [(what, state) for what, _, state in told(database)]
    assert states == ([] if of_backup else [("protection", "ACTIVE"), ("protection", "ENDED")])
