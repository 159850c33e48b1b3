"""What a schedule does when it is due: whose rights, which overlap, what is shown."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlmodel import delete, select

from app.auth.rows import AuditEvent
from app.auth.scopes import Scope
from app.db import Database
from app.erase.rows import ErasureStore
from app.errors import InvalidRequest, ScopeMissing, ServiceError, StoreForbidden
from app.jobs.states import JobState
from app.purge.tick import tick_once
from app.schedules.errors import NeverDue, VerbNotScheduled
from app.schedules.listing import list_schedules
from app.schedules.service import pause_schedule, remove_schedule, resume_schedule
from app.settings import Settings
from app.stores.errors import StoreKindWrong, StoreNotFound
from app.stores.rows import Store
from app.stores.service import get_store
from tests.app.agreements import agreement_of
from tests.app.schedules.schedules_bench import BEGIN, PURGE, SchedulesBench, WallClock

TEN = timedelta(minutes=10)


def audited(bench: SchedulesBench) -> list[str]:
    with bench.database.reading() as db:
        return [row.action for row in db.exec(select(AuditEvent).order_by(AuditEvent.id)).all()]


def test_due_schedule_submits_its_job_as_its_writer(bench: SchedulesBench) -> None:
    bench.store()
    ann = bench.caller()
    schedule = bench.write(ann)
    assert bench.look() == []
    [job_id] = bench.look_at(BEGIN + TEN)
    [job] = bench.jobs()
    assert (job.id, job.store, job.token_id, job.requested_by) == (job_id, "shop", ann.token_id, "ann")
    assert (job.kind, job.params["kind"], job.reason) == ("PURGE", "OUTGOING", f"schedule {schedule.id}")
    row = bench.row(schedule)
    assert (row.last_due, row.last_outcome, row.last_job_id) == (BEGIN + TEN, "SUBMITTED", job_id)
    assert row.next_due == BEGIN + 2 * TEN
    assert bench.look() == []
    assert audited(bench) == ["schedule.fire"]


def test_labels_make_a_batch_over_the_stores_that_have_them_now(bench: SchedulesBench) -> None:
    for name in ("one", "two"):
        bench.store(name, labels={"region": "eu"})
    bench.store("three", labels={"region": "us"})
    bench.write(bench.caller(), labels={"region": "eu"})
    bench.look_at(BEGIN + TEN)
    jobs = {job.store: job for job in bench.jobs()}
    assert set(jobs) == {None, "one", "two"}
    assert jobs[None].kind == "BATCH"


def test_limited_token_reaches_its_own_stores_only(bench: SchedulesBench) -> None:
    for name in ("one", "two"):
        bench.store(name, labels={"region": "eu"})
    limited = bench.caller(Scope.SCHEDULES_WRITE, Scope.PURGES_WRITE, Scope.JOBS_READ, stores=["one"])
    with pytest.raises(StoreForbidden):
        bench.write(limited, store="two")
    bench.write(limited, labels={"region": "eu"})
    bench.look_at(BEGIN + TEN)
    assert {job.store for job in bench.jobs()} == {None, "one"}


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"revoked_at": BEGIN}, "TOKEN_REVOKED"),
        ({"expires_at": BEGIN}, "TOKEN_EXPIRED"),
        ({"scopes": ["schedules:write"]}, "SCOPE_MISSING"),
        ({"scopes": ["purges:write"]}, "SCOPE_MISSING"),
        ({"stores": ["other"]}, "STORE_FORBIDDEN"),
    ],
)
def test_writer_that_may_no_longer_is_refused_shown_and_audited_once(
    bench: SchedulesBench, values: dict[str, Any], code: str
) -> None:
    bench.store()
    ann = bench.caller()
    schedule = bench.write(ann)
    bench.set_token(ann, **values)
    bench.look_at(BEGIN + TEN)
    bench.look_at(BEGIN + 2 * TEN)
    row = bench.row(schedule)
    assert bench.jobs() == []
    assert row.last_outcome == "REFUSED"
    assert row.last_detail is not None
    assert row.last_detail.startswith(code)
    assert audited(bench) == ["schedule.refuse"]
    assert [each.outcome for each in bench.fired(schedule)] == ["REFUSED", "REFUSED"]


def test_store_that_is_removed_takes_its_schedules_with_it(bench: SchedulesBench) -> None:
    bench.store()
    bench.write(bench.caller())
    with bench.database.transaction() as db:
        db.execute(delete(Store))
    assert bench.look_at(BEGIN + TEN) == []
    bench.store()
    assert bench.look_at(BEGIN + 2 * TEN) == []
    assert bench.jobs() == []


def test_labels_that_no_store_has_any_more_are_refused(bench: SchedulesBench) -> None:
    schedule = bench.write(bench.caller(), labels={"region": "eu"})
    bench.look_at(BEGIN + TEN)
    row = bench.row(schedule)
    assert row.last_outcome == "REFUSED"
    assert str(row.last_detail).startswith("NO_STORES_SELECTED")


def test_body_that_became_invalid_is_refused_with_its_fault(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller())
    with bench.database.transaction() as db:
        row = db.merge(schedule)
        row.body = {"kind": "OUTGOING", "retired_field": 1}
    bench.look_at(BEGIN + TEN)
    assert "/body/retired_field" in str(bench.row(schedule).last_detail)
    assert bench.jobs() == []


def test_forbid_leaves_out_what_comes_while_the_last_job_runs(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller(), cron="* * * * *")
    for minute in range(1, 6):
        bench.look_at(BEGIN + timedelta(minutes=minute))
    assert [each.outcome for each in bench.fired(schedule)] == ["SUBMITTED"] + ["SKIPPED_RUNNING"] * 4
    bench.end_jobs()
    bench.look_at(BEGIN + timedelta(minutes=6))
    assert len(bench.jobs()) == 2


def test_queue_begins_one_when_the_last_job_has_ended(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller(), cron="* * * * *", overlap="QUEUE")
    bench.look_at(BEGIN + timedelta(minutes=1))
    for second in range(120, 500, 5):
        bench.look_at(BEGIN + timedelta(seconds=second))
    row = bench.row(schedule)
    assert (row.queued_due, row.last_outcome) == (BEGIN + timedelta(minutes=2), "QUEUED")
    bench.end_jobs()
    bench.look_at(BEGIN + timedelta(seconds=535))
    assert [each.due_at for each in bench.fired(schedule)] == [
        BEGIN + timedelta(minutes=1),
        BEGIN + timedelta(minutes=2),
    ]
    assert bench.row(schedule).next_due == BEGIN + timedelta(minutes=9)


def test_suspended_store_is_left_out(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller())
    with bench.database.transaction() as db:
        get_store(db, "shop").sqlmodel_update({"is_suspended": True, "suspended_reason": "moves"})
    bench.look_at(BEGIN + TEN)
    row = bench.row(schedule)
    assert (row.last_outcome, row.last_detail) == ("SKIPPED_SUSPENDED", "moves")


def test_paused_schedule_rests_and_makes_nothing_up(bench: SchedulesBench) -> None:
    bench.store()
    ann = bench.caller()
    schedule = bench.write(ann, missed="RUN_ONCE")
    with bench.database.transaction() as db:
        pause_schedule(db, schedule.id, caller=ann, now=bench.clock.now())
    assert bench.look_at(BEGIN + 3 * TEN) == []
    with bench.database.transaction() as db:
        resume_schedule(db, schedule.id, caller=ann, now=bench.clock.now())
    assert bench.look() == []
    assert len(bench.look_at(BEGIN + 4 * TEN)) == 1


def test_whoever_lacks_the_verb_may_pause_and_remove_but_not_resume(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller())
    guard = bench.caller(Scope.SCHEDULES_WRITE)
    with bench.database.transaction() as db:
        pause_schedule(db, schedule.id, caller=guard, now=bench.clock.now())
    with pytest.raises(ScopeMissing), bench.database.transaction() as db:
        resume_schedule(db, schedule.id, caller=guard, now=bench.clock.now())
    with bench.database.transaction() as db:
        remove_schedule(db, schedule.id, caller=guard, now=bench.clock.now())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"verb": "EVENT_WAIT"}, VerbNotScheduled),
        ({"verb": "LOG_SWITCH", "body": {"action": "START"}}, StoreKindWrong),
        ({"store": "nobody"}, StoreNotFound),
        ({"body": {"kind": "OUTGOING", "typo": 1}}, InvalidRequest),
        ({"body": PURGE | {"plan_id": f"job_{'0' * 26}"}}, ServiceError),
        ({"body": {"kind": "CHANGELOG"}}, StoreKindWrong),
        ({"labels": {"region": "nowhere"}, "body": {"kind": "NOTHING"}}, InvalidRequest),
    ],
)
def test_what_the_post_would_refuse_is_refused_when_it_is_written(
    bench: SchedulesBench, fields: dict[str, Any], error: type[ServiceError]
) -> None:
    bench.store()
    with pytest.raises(error):
        bench.write(bench.caller(Scope.ADMIN), **fields)
    assert bench.jobs() == []


def test_writing_while_such_a_job_runs_is_no_fault_and_leaves_no_job(bench: SchedulesBench) -> None:
    bench.store()
    ann = bench.caller()
    bench.write(ann)
    bench.look_at(BEGIN + TEN)
    bench.write(ann)
    assert len(bench.jobs()) == 1


def test_cron_that_never_comes_is_refused(bench: SchedulesBench) -> None:
    bench.store()
    with pytest.raises((NeverDue, ValueError)):
        bench.write(bench.caller(), cron="0 0 30 2 *")


def test_list_holds_ticks_beside_schedules_page_by_page(bench: SchedulesBench) -> None:
    bench.store(parameters={"start.purge.job": True})
    ann = bench.caller()
    schedule = bench.write(ann)
    tick_once(bench.database, bench.settings, now=bench.clock.now())
    seen, token = [], ""
    while True:
        with bench.database.reading() as db:
            page = list_schedules(db, ann, store=None, page_size=2, page_token=token)
        seen += page.items
        token = page.next_page_token
        if not token:
            break
    assert {(item.id, item.source) for item in seen} == {
        (schedule.id, None),
        ("tick:shop:OUTGOING", "start.purge.job"),
        ("tick:shop:INCOMING", "start.purge.job"),
        ("tick:shop:DATA_GAP", "start.purge.job"),
    }
    stranger = bench.caller(Scope.JOBS_READ, stores=["other"])
    with bench.database.reading() as db:
        assert list_schedules(db, stranger, store=None, page_size=9, page_token="").items == []


@pytest.mark.postgresql
@pytest.mark.parametrize("table", ["schedules", "agreements", "sweep_ticks", "erasure_stores", "stores"])
def test_list_leaves_out_what_is_removed_as_it_looks(
    postgresql_database: Database, settings: Settings, table: str
) -> None:
    """It read the ids, then row by row: one that had gone since was an error 500."""
    bench = SchedulesBench(postgresql_database, settings, WallClock())
    bench.store(parameters={"start.purge.job": True})
    ann = bench.caller()
    schedule = bench.write(ann)
    tick_once(bench.database, bench.settings, now=bench.clock.now())
    now = bench.clock.now()
    with bench.database.transaction() as db:
        db.add(ErasureStore(store="shop", seen_enabled=True, seen_period_s=60.0, updated_at=now))
        db.add(agreement_of("shop", now, id="agr_x", interval_s=60.0))
    with bench.database.reading() as db:
        whole = list_schedules(db, ann, store=None, page_size=50, page_token="").items
    assert len(whole) == 6
    gone: list[str] = []

    def remove(_conn: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if "UNION ALL" in statement and not gone:
            gone.append(table)
            with postgresql_database.engine.connect() as other:
                other.exec_driver_sql("set session_replication_role = replica")  # whatever refers to it
                other.exec_driver_sql(f"delete from {table}")
                other.commit()
                other.exec_driver_sql("set session_replication_role = origin")
                other.commit()

    sa.event.listen(postgresql_database.engine, "after_cursor_execute", remove)
    try:
        with bench.database.reading() as db:
            seen = list_schedules(db, ann, store=None, page_size=50, page_token="").items
    finally:
        sa.event.remove(postgresql_database.engine, "after_cursor_execute", remove)
    assert gone == [table]
    ids = {
        "schedules": {schedule.id},
        "agreements": {"agr_x"},
        "erasure_stores": {"tick:shop:ERASURE"},
    }.get(table, {f"tick:shop:{kind}" for kind in ("OUTGOING", "INCOMING", "DATA_GAP")})
    assert {item.id for item in whole} - {item.id for item in seen} == ids


def test_due_time_that_was_fired_is_not_shown_as_missed(bench: SchedulesBench) -> None:
    """A clock was put back and forth again: the newest due time had its job, and was shown as missed."""
    bench.store()
    schedule = bench.write(bench.caller())
    bench.look()
    assert len(bench.look_at(BEGIN + 2 * TEN)) == 1  # 10:20
    bench.end_jobs()
    before = bench.row(schedule)
    bench.look_at(BEGIN + TEN / 2)  # back to 10:05: 10:10 was never fired, and is next
    assert bench.row(schedule).next_due == BEGIN + TEN
    assert bench.look_at(BEGIN + 2 * TEN + TEN / 2) == []  # 10:25, and 10:20 has had its job
    after = bench.row(schedule)
    assert (after.last_outcome, after.last_due) == ("SUBMITTED", BEGIN + 2 * TEN)
    assert (after.last_at, after.last_job_id) == (before.last_at, before.last_job_id)
    assert after.next_due == BEGIN + 3 * TEN
    assert len(bench.look_at(BEGIN + 3 * TEN)) == 1


def test_failed_job_of_a_schedule_is_shown(bench: SchedulesBench) -> None:
    bench.store()
    ann = bench.caller()
    bench.write(ann)
    bench.look_at(BEGIN + TEN)
    bench.end_jobs(JobState.FAILED)
    with bench.database.reading() as db:
        [item] = list_schedules(db, ann, store="shop", page_size=9, page_token="").items
    assert item.last is not None
    assert (item.last.outcome, item.last.job_state) == ("SUBMITTED", JobState.FAILED)
