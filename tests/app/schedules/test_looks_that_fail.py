"""Looks that fail, or take long, lose no due time: the service was there."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from app.auth.scopes import Scope
from app.errors import MetadataUnavailable
from app.schedules import firing, scheduler
from app.stores.models import StoreKind
from tests.app.schedules.schedules_bench import BEGIN, PURGE, SchedulesBench

TEN = timedelta(minutes=10)


def away(*_args: object, **_fields: object) -> None:
    raise MetadataUnavailable("metadata is away")


def rest(bench: SchedulesBench, seconds: float | None = None) -> None:
    bench.clock.advance(bench.scheduler.rest_s if seconds is None else seconds)


def test_look_that_fails_is_made_again_soon_and_what_came_due_is_fired(
    bench: SchedulesBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store()
    schedule = bench.write(bench.caller())
    bench.look_at(BEGIN + TEN - timedelta(seconds=1))
    rest(bench)
    with monkeypatch.context() as broken:
        broken.setattr(scheduler, "_next", away)
        while bench.clock.now() < BEGIN + TEN + timedelta(minutes=3):
            with pytest.raises(MetadataUnavailable):
                bench.look()
            assert bench.scheduler.rest_s == scheduler.FAILED_PAUSE_S
            rest(bench)
    assert len(bench.look()) == 1
    assert [each.due_at for each in bench.fired(schedule)] == [BEGIN + TEN]


def test_crowd_that_takes_minutes_is_fired_to_its_end(
    bench: SchedulesBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "DUE_MAX", 2)
    fire: Callable[..., str | None] = firing.Firing.fire

    def slow(*args: object, **fields: object) -> str | None:
        bench.clock.advance(40)
        return fire(*args, **fields)

    monkeypatch.setattr(firing.Firing, "fire", slow)
    ann = bench.caller()
    for number in range(5):
        bench.write(ann, store=bench.store(f"shop-{number}"), cron="0 11 * * *")
    bench.look_at(BEGIN + 6 * TEN - timedelta(seconds=1))
    rest(bench)
    for _ in range(4):
        bench.look()
        rest(bench)
    assert len(bench.jobs()) == 5


def test_what_came_while_nobody_looked_is_late(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller())
    bench.look_at(BEGIN + timedelta(minutes=1))
    assert bench.look_at(BEGIN + TEN + timedelta(seconds=61)) == []
    assert bench.row(schedule).last_outcome == "SKIPPED_MISSED"


def test_queue_that_is_full_passes_and_the_due_time_is_fired_then(bench: SchedulesBench) -> None:
    bench.store()
    ann = bench.caller()
    first = bench.write(ann, store=bench.store("first"), cron="5 * * * *")
    schedule = bench.write(ann)
    bench.scheduler.settings = bench.settings.model_copy(update={"jobs_queued_max": 1})
    bench.look_at(BEGIN + timedelta(minutes=5))
    assert bench.look_at(BEGIN + TEN) == []
    row = bench.row(schedule)
    assert (row.last_outcome, row.queued_due) == ("QUEUED", BEGIN + TEN)
    bench.end_jobs()
    bench.clock.advance(120)
    assert len(bench.look()) == 1
    assert [each.due_at for each in bench.fired(schedule)] == [BEGIN + TEN]
    assert len(bench.fired(first)) == 1


def test_first_store_of_labels_that_refuses_does_not_refuse_the_others(
    bench: SchedulesBench, tmp_path: Path
) -> None:
    schedule = bench.write(bench.caller(Scope.ADMIN), verb="ERASURE", body={}, labels={"region": "eu"})
    for name, period in (("a", "PT0S"), ("b", "PT1H")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000.jdb").write_bytes(b"")
        bench.store(
            name,
            kind=StoreKind.JE,
            url=None,
            path=str(tmp_path / name),
            labels={"region": "eu"},
            parameters={"je.erase.period": period},
        )
    bench.look_at(BEGIN + TEN)
    assert bench.row(schedule).last_outcome == "SUBMITTED", bench.row(schedule).last_detail
    assert {job.store for job in bench.jobs()} == {None, "b"}, [job.params for job in bench.jobs()]


def test_engine_that_the_firing_instance_lacks_is_no_refusal(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller())
    with bench.database.transaction() as db:
        db.merge(schedule).body = PURGE | {"engine": "SPARK"}
    spark = bench.settings.spark.model_copy(update={"enabled": False})
    bench.scheduler.settings = bench.settings.model_copy(update={"spark": spark})
    assert len(bench.look_at(BEGIN + TEN)) == 1


def test_firing_that_breaks_is_refused_and_the_schedule_comes_again(
    bench: SchedulesBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store()
    schedule = bench.write(bench.caller())

    def broken(*_args: object, **_fields: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(firing, "fire_job", broken)
        assert bench.look_at(BEGIN + TEN) == []
    row = bench.row(schedule)
    assert (row.last_outcome, row.next_due) == ("REFUSED", BEGIN + 2 * TEN)
    assert str(row.last_detail).startswith("INTERNAL: ")
    assert [each.outcome for each in bench.fired(schedule)] == ["REFUSED"]
    assert len(bench.look_at(BEGIN + 2 * TEN)) == 1
