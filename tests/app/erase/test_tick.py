"""What follows what by itself, and what a change of the parameters does at once."""

from __future__ import annotations

from sqlalchemy import event
from sqlmodel import select

from app.auth.rows import AuditEvent
from app.jobs.rows import Job
from app.stores.rows import Store
from app.stores.service import get_store
from spark.erase.calls.calls import Refusal, RefusalCode
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog

HOUR_S = 3_600.0


def begin_by_parameters(erasers: Erasers) -> str:
    erasers.set(run_eraser=True, period="PT1H")
    assert erasers.tick() == ["je"]
    return erasers.cycle().id


def test_nothing_begins_unasked(erasers: Erasers) -> None:
    erasers.tick()
    erasers.set(run_eraser=True)
    erasers.tick()
    erasers.set(run_eraser=False, period="PT1H")
    erasers.tick()
    assert erasers.cycles() == []


def test_enabled_store_gets_a_cycle_with_an_audit_row(erasers: Erasers) -> None:
    cycle_id = begin_by_parameters(erasers)
    cycle = erasers.cycle()
    assert (cycle.origin, cycle.period_s, cycle.min_file_age_s, cycle.duration_s) == (
        "PARAMETERS",
        HOUR_S,
        HOUR_S,
        HOUR_S,
    )
    with erasers.database.reading() as db:
        audit = db.exec(select(AuditEvent)).all()
        job = db.exec(select(Job)).one()
    assert [(row.actor, row.subject_id) for row in audit] == [("eraser", cycle_id)]
    assert job.requested_by == "eraser"


def test_an_idle_look_asks_for_all_stores_at_once(erasers: Erasers) -> None:
    erasers.begin()
    erasers.run()
    asked: list[str] = []

    def look() -> int:
        asked.clear()
        assert erasers.tick() == []
        return len(asked)

    def note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        asked.append(statement)

    event.listen(erasers.database.engine, "before_cursor_execute", note)
    try:
        of_one = look()
        with erasers.database.transaction() as db:
            values = dict(get_store(db, erasers.store_id))
            db.add_all(Store(**values | {"id": f"more-{number}"}) for number in range(20))
        assert 0 < of_one < 10
        assert look() == of_one
    finally:
        event.remove(erasers.database.engine, "before_cursor_execute", note)


def test_second_look_begins_nothing_more(erasers: Erasers) -> None:
    begin_by_parameters(erasers)
    assert erasers.tick() == []
    assert len(erasers.cycles()) == 1


def test_next_cycle_begins_at_the_end_of_the_complete_one(erasers: Erasers) -> None:
    first = begin_by_parameters(erasers)
    erasers.run(until_s=HOUR_S - 60)
    assert erasers.cycle(first).state == "COMPLETE"
    erasers.tick()
    assert len(erasers.cycles()) == 1
    erasers.clock.advance(120)
    erasers.tick()
    assert len(erasers.cycles()) == 2


def test_next_cycle_begins_after_an_incomplete_one(erasers: Erasers) -> None:
    begin_by_parameters(erasers)
    erasers.protect(0, 1)
    erasers.run(until_s=HOUR_S + 60)
    assert erasers.cycle().state == "INCOMPLETE"
    erasers.tick()
    assert len(erasers.cycles()) == 2


def test_change_of_the_period_drops_the_cycle_and_a_fresh_one_begins(erasers: Erasers) -> None:
    first = begin_by_parameters(erasers)
    erasers.run(until_s=60)
    erasers.set(period="PT2H")
    erasers.tick()
    erasers.run()
    assert (erasers.cycle(first).state, erasers.job(first).state) == ("DROPPED", "ABORTED")
    assert erasers.job(first).reason == "PERIOD_CHANGED"
    erasers.tick()
    assert (len(erasers.cycles()), erasers.cycle().period_s) == (2, 2 * HOUR_S)


def test_requested_period_is_not_dropped_by_the_parameter(erasers: Erasers) -> None:
    erasers.begin(period="PT5H")
    erasers.run(until_s=60)
    erasers.set(period="PT2H")
    erasers.tick()
    assert erasers.cycle().state == "RUNNING"


def test_switched_off_eraser_waits_until_it_is_on_again(erasers: Erasers, log: FakeLog) -> None:
    begin_by_parameters(erasers)
    log.on_round = lambda _call: erasers.set(run_eraser=False)
    erasers.run(until_s=HOUR_S / 2)
    assert (erasers.cycle().state, erasers.job().state) == ("SUSPENDED", "WAITING")
    assert erasers.waiting_kinds() == ["ERASER_DISABLED"]
    erasers.tick()
    log.on_round = lambda _call: None
    erasers.set(run_eraser=True)
    erasers.tick()
    erasers.run(until_s=HOUR_S / 4)
    assert (erasers.cycle().state, erasers.states()[0]) == ("RUNNING", "ERASED")
    assert len(erasers.cycles()) == 1


def test_aborted_eraser_is_begun_again_by_switching_it_off_and_on(erasers: Erasers) -> None:
    first = begin_by_parameters(erasers)
    erasers.abort()
    erasers.tick()
    assert erasers.cycle(first).state == "ABORTED"
    erasers.set(run_eraser=False)
    erasers.tick()
    erasers.set(run_eraser=True)
    erasers.tick()
    assert len(erasers.cycles()) == 2


def test_switched_kinds_act_on_the_next_file(erasers: Erasers, log: FakeLog) -> None:
    asked = []
    log.on_plan = lambda call: asked.append(call.request.switches.deleted_databases)
    begin_by_parameters(erasers)
    erasers.set(**{"je.erase.eraseAllObsoleteEntries": False})
    log.on_round = lambda _call: erasers.set(**{"je.erase.deletedDatabases": False})
    erasers.run(until_s=HOUR_S)
    assert asked[0] is True
    assert asked[-1] is False
    assert "DELETED_DATABASES" not in erasers.cycle().kinds


def test_suspended_store_begins_nothing(erasers: Erasers) -> None:
    erasers.suspend()
    erasers.set(run_eraser=True, period="PT1H")
    erasers.tick()
    assert erasers.cycles() == []
    erasers.resume_store()
    erasers.tick()
    assert len(erasers.cycles()) == 1


def test_failed_cycle_is_followed_after_its_whole_length(erasers: Erasers, log: FakeLog) -> None:
    log.refuse("plan", -1, Refusal(RefusalCode.PERMISSION, "not allowed"))
    begin_by_parameters(erasers)
    erasers.run(until_s=10)
    assert erasers.cycle().state == "FAILED"
    erasers.tick()
    assert len(erasers.cycles()) == 1
    erasers.clock.advance(HOUR_S)
    erasers.tick()
    assert len(erasers.cycles()) == 2
