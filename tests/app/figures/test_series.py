"""Series of stores: each value once, whatever is rolled back, doubled up or written at the same time."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import Session, select

from app.db import Database
from app.events.lags import note_lags
from app.figures.rows import SeriesPoint
from app.figures.series import (
    DAY,
    MONTH,
    Length,
    Series,
    forget_points,
    piece_of,
    read_points,
    unit_of,
)
from app.figures.sums import Name, count, note
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.jobs.writing import add_job, change_job, end_values, state_event
from app.kinds.table import StoreKind
from app.kit.ids import new_id
from app.stores.checks.keeping import keep_check
from app.stores.checks.models import StoreCheck, TableSize
from app.stores.rows import Store
from spark.events.records import Confirmed
from tests.app.fake_clock import FakeClock

NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def points(database: Database, length: Length = DAY, *, now: datetime = NOON) -> list[SeriesPoint]:
    with database.reading() as db:
        return read_points(db, "shop", length, now=now)


def test_values_of_a_piece_add_up_in_both_lengths(database: Database) -> None:
    for value, minute in ((10.0, 1), (30.0, 2), (5.0, 21)):
        with database.transaction() as db:
            note(db, Series.BACKLOG, value, store="shop", now=NOON + timedelta(minutes=minute))
    later = NOON + timedelta(minutes=30)
    first, second = points(database, now=later)
    assert (first.at, first.total, first.number, first.most, first.last) == (NOON, 40.0, 2, 30.0, 30.0)
    assert (second.at, second.total) == (NOON + timedelta(minutes=20), 5.0)
    [whole] = points(database, MONTH, now=later)
    assert (whole.total, whole.number, whole.most, whole.last) == (45.0, 3, 30.0, 5.0)


def test_backlog_of_a_cluster_is_events_of_the_pair_that_is_furthest_behind(database: Database) -> None:
    # Rows of tables as a check estimates them, and the events of each pair, stood in one series.
    def pair(receiver: int, events: int, lag: timedelta | None) -> Confirmed:
        return Confirmed(1, receiver, seqno=5, timestamp=NOON, last_seqno=9, lag_events=events, lag=lag)

    store = Store(id="shop", kind=StoreKind.SLONY, url="x", created_at=NOON, updated_at=NOON)
    sizes = [TableSize(table="t", rows_estimate=1_000_000, bytes=1)]
    with database.transaction() as db:
        db.add(store)
        db.flush()
        found = StoreCheck(ok=True, reachable=True, sizes=sizes)
        keep_check(db, store, found, period=timedelta(minutes=5), now=NOON)
        rows = [pair(2, 40, timedelta(seconds=9)), pair(3, 4, None), pair(4, 0, timedelta(0))]
        note_lags(db, "shop", rows, now=NOON)
    seen = {each.name: (each.number, each.last) for each in points(database)}
    assert seen == {"backlog": (1, 40.0), "lag_seconds": (1, 9.0)}
    assert unit_of(Series.BACKLOG, StoreKind.SLONY) == "events"
    assert unit_of(Series.BACKLOG, StoreKind.SYMMETRICDS) == "rows"


def test_transaction_that_is_rolled_back_counts_nothing(database: Database) -> None:
    def fail() -> None:
        with database.transaction() as db:
            note(db, Series.BACKLOG, 1.0, store="shop", now=NOON)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert points(database) == []


def test_end_of_a_purge_counts_its_rows_and_the_time_of_an_abort(
    database: Database, clock: FakeClock
) -> None:
    def ended(state: JobState, result: dict[str, object] | None, kind: str = "PURGE") -> None:
        job_id = new_id("job")
        with database.transaction() as db:
            job = Job(
                id=job_id,
                kind=kind,
                store="shop",
                state=JobState.RUNNING,
                requested_by="ann",
                created_at=clock.now(),
                updated_at=clock.now(),
                abort_asked_at=clock.now() - timedelta(seconds=3),
            )
            add_job(db, job, now=clock.now(), event=state_event(JobState.RUNNING))
        with database.transaction() as db:
            values = end_values(state, clock.now()) | {"result": result}
            assert change_job(db, job_id, guards=[], values=values, now=clock.now(), event=state_event(state))

    ended(JobState.SUCCEEDED, {"removed": {"sym_data": 7, "sym_outgoing_batch": 3}})
    ended(JobState.SUCCEEDED, {"removed": {"sl_log_1": 5}}, kind="EVENT_CLEANUP")
    ended(JobState.ABORTED, None)
    found = {point.name: point for point in points(database, now=clock.now())}
    assert found["rows_removed"].total == 15
    assert (found["abort_seconds"].total, found["abort_seconds"].number) == (3.0, 1)


def test_writers_at_once_lose_and_double_nothing(database: Database) -> None:
    writers, each = 4, 20

    def work() -> None:
        for _ in range(each):
            with database.transaction() as db:
                count(db, Name.PURGE_ROWS_REMOVED, "t", store="shop", value=2.0, now=NOON)
                note(db, Series.BACKLOG, 1.0, store="shop", now=NOON)

    threads = [threading.Thread(target=work) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {point.name: point for point in points(database)}
    assert (found["rows_removed"].total, found["backlog"].number) == (2.0 * writers * each, writers * each)


def test_each_length_is_kept_for_its_own_time(database: Database) -> None:
    with database.transaction() as db:
        note(db, Series.BACKLOG, 1.0, store="shop", now=NOON)

    def left(db: Session) -> set[int]:
        return {point.step_s for point in db.exec(select(SeriesPoint)).all()}

    with database.transaction() as db:
        assert forget_points(db, now=NOON + timedelta(hours=25)) == 0
        assert forget_points(db, now=NOON + timedelta(hours=27)) == 1
        assert left(db) == {MONTH.step_s}
        assert forget_points(db, now=NOON + timedelta(days=32)) == 1
        assert left(db) == set()


def test_pieces_begin_at_multiples_of_their_length() -> None:
    assert piece_of(NOON + timedelta(minutes=19, seconds=59), 600) == NOON + timedelta(minutes=10)
    assert piece_of(NOON - timedelta(seconds=1), 21_600) == NOON - timedelta(hours=6)
