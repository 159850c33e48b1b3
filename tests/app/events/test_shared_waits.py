"""Many waits on one store: one look for all of them, an event where there is something to tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import func
from sqlmodel import col, select

from app.jobs.rows import Job, JobClass, JobEvent
from app.jobs.running.candidates import Wanted, oldest
from app.jobs.running.claims import reap
from app.jobs.service import request_abort
from app.stores.rows import Store
from tests.app.events.test_wait_task import clock_of, confirm, make_event, node, store, waits
from tests.app.events.waits import Waits
from tests.app.jobs.workbench import Workbench, claimer
from tests.spark.events.catalogs import LoadedCatalog

__all__ = ["node", "store", "waits"]
pytestmark = pytest.mark.postgresql
MANY, SOME = 31, 6


def due(waits: Waits) -> str | None:
    """The wait that a runner takes next."""
    with waits.bench.database.reading() as db:
        found = oldest(db, Wanted(JobClass.INTERACTIVE), [""], now=clock_of(waits).now())
    return found[0] if found else None


def let_pass(waits: Waits, seconds: float) -> Counter[str]:
    """Let a runner take whatever is due; the looks of each wait."""
    clock, looks = clock_of(waits), Counter[str]()
    until = clock.now() + timedelta(seconds=seconds)
    while (next_at := next_due_at(waits)) is not None and next_at < until:
        clock.advance(max(0.0, (next_at - clock.now()).total_seconds()))
        while (job_id := due(waits)) is not None:
            waits.attempt(job_id)
            looks[job_id] += 1
    clock.advance((until - clock.now()).total_seconds())
    return looks


def next_due_at(waits: Waits) -> datetime | None:
    with waits.bench.database.reading() as db:
        resting = col(Job.state).in_(["QUEUED", "WAITING"])
        times = [at or clock_of(waits).now() for at in db.exec(select(Job.not_before).where(resting)).all()]
    return min(times, default=None)


def count_events(bench: Workbench, job_ids: Iterable[str]) -> int:
    with bench.database.reading() as db:
        return db.exec(select(func.count()).where(col(JobEvent.job_id).in_(list(job_ids)))).one()


def submit(waits: Waits, store: Store, node: LoadedCatalog, count: int) -> list[str]:
    """Waits for an event, and one for a later one."""
    for seqno in (5_000_000_020, 5_000_000_030):
        make_event(node, 1, seqno)
    early = [waits.submit(store, timeout="PT1H", seqno=5_000_000_020) for _ in range(count - 1)]
    return [*early, waits.submit(store, timeout="PT1H", seqno=5_000_000_030)]


@pytest.fixture
def many(waits: Waits, store: Store, node: LoadedCatalog) -> list[str]:
    return submit(waits, store, node, MANY)


@pytest.fixture
def some(waits: Waits, store: Store, node: LoadedCatalog) -> list[str]:
    return submit(waits, store, node, SOME)


def test_many_waits_cost_the_looks_of_one_and_no_event_but_what_they_tell(
    waits: Waits, many: list[str]
) -> None:
    """Before: 300 looks and 22 events of each wait in a minute."""
    let_pass(waits, 65)
    before = count_events(waits.bench, many)
    looks = let_pass(waits, 60)
    assert looks.total() <= 35
    assert count_events(waits.bench, many) - before <= MANY * 7
    for job_id in many:
        moments = [event.at for event in waits.bench.events(job_id) if event.type == "outstanding"]
        gaps = [(later - sooner).total_seconds() for sooner, later in pairwise(moments)]
        assert len(moments) >= 10
        assert all(10 <= gap <= 12.5 for gap in gaps), gaps


def test_confirmations_end_each_of_them_as_soon_as_anybody_has_seen_them(
    waits: Waits, some: list[str], node: LoadedCatalog
) -> None:
    let_pass(waits, 30)
    for receiver in (2, 3):
        confirm(node, 1, receiver, 5_000_000_020)
    let_pass(waits, 2)
    jobs = [waits.bench.job(job_id) for job_id in some]
    assert [job.state for job in jobs] == ["SUCCEEDED"] * (SOME - 1) + ["WAITING"]
    assert waits.bench.states_seen(some[3]) == ["QUEUED", "RUNNING", "WAITING", "RUNNING", "SUCCEEDED"]
    assert let_pass(waits, 10).keys() == {some[-1]}  # who is left looks by itself, as often as before
    for receiver in (2, 3):
        confirm(node, 1, receiver, 5_000_000_030)
    let_pass(waits, 2)
    assert waits.bench.state(some[-1]) == "SUCCEEDED"


def test_a_deadline_is_kept_whoever_looks(waits: Waits, store: Store, some: list[str]) -> None:
    short = waits.submit(store, timeout="PT33.3S")
    began = clock_of(waits).now()
    let_pass(waits, 40)
    job = waits.bench.job(short)
    assert (job.state, (job.error or {})["code"]) == ("FAILED", "WAIT_TIMEOUT")
    assert job.finished_at is not None
    assert 33.3 <= (job.finished_at - began).total_seconds() < 33.5


def looker(waits: Waits) -> Job:
    """Who looks for all."""
    [(job_id, _)] = let_pass(waits, 3).most_common(1)
    return waits.bench.job(job_id)


def test_others_look_where_nobody_looks_for_them_any_more(
    waits: Waits, some: list[str], node: LoadedCatalog
) -> None:
    let_pass(waits, 30)
    gone = looker(waits)
    waits.bench.do(request_abort, gone.id)
    for receiver in (2, 3):
        confirm(node, 1, receiver, 5_000_000_030)
    let_pass(waits, 13)
    states = Counter(waits.bench.state(job_id) for job_id in some)
    assert states == {"SUCCEEDED": SOME - 1, "ABORTED": 1}


def test_a_look_that_was_killed_holds_up_nobody(waits: Waits, some: list[str], node: LoadedCatalog) -> None:
    let_pass(waits, 30)
    next_at = next_due_at(waits)
    assert next_at is not None
    clock_of(waits).advance((next_at - clock_of(waits).now()).total_seconds())
    killed = waits.context().job.id
    for receiver in (2, 3):
        confirm(node, 1, receiver, 5_000_000_030)
    let_pass(waits, 13)
    states = Counter(waits.bench.state(job_id) for job_id in some)
    assert states == {"SUCCEEDED": SOME - 1, "RUNNING": 1}
    with waits.bench.database.transaction() as db:
        assert reap(db, waits.bench.database, claimer(), own=True) == [killed]
    let_pass(waits, 1)
    assert waits.bench.state(killed) == "SUCCEEDED"


def test_another_store_on_the_same_node_looks_for_itself(
    waits: Waits, some: list[str], node: LoadedCatalog
) -> None:
    other = waits.register("other-1", node)
    alone = waits.submit(other, seqno=5_000_000_020)
    let_pass(waits, 5)
    assert let_pass(waits, 10)[alone] >= 9
