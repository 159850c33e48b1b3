"""A wake that comes before the WAITING it is meant for finds nobody; the wait itself must notice.

The parent of a batch looked at its children, the last of them ended and woke nobody, and only then the parent
became WAITING: it slept until it looked again by itself.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from app.auth.service import Caller
from app.jobs.batches.service import run_batch
from app.jobs.errors import JobWaiting
from app.jobs.running import outcome
from app.jobs.running.claims import claim_target
from app.jobs.running.openings import window_wait
from app.jobs.running.sql_target import _conflict
from app.jobs.running.suspension import store_key, suspended_wait
from app.jobs.service import claim_key, release_claims, wake, wake_parent
from app.jobs.states import JobState
from app.jobs.writing import change_job
from app.schedules.windows.brake import WindowBrake
from app.schedules.windows.models import WindowCreate
from app.schedules.windows.rules import WindowKind
from app.schedules.windows.service import create_window, remove_window
from app.stores.models import StoreKind
from app.stores.resting import resume_store
from app.stores.rows import Store
from tests.app.jobs.workbench import Workbench, until_somebody_waits_for_a_row


def test_child_that_ends_before_its_parent_waits_is_noticed(bench: Workbench) -> None:
    parent = bench.submit("BATCH", store=None)
    context = bench.context()
    child = bench.submit(parent_id=parent)
    with pytest.raises(JobWaiting) as caught:
        run_batch(context, submitters={})
    bench.set(child, state=JobState.SUCCEEDED)
    outcome.wait(context, caught.value, proven=True)
    job = bench.job(parent)
    assert job.state == "WAITING"
    assert job.not_before is not None
    assert job.not_before <= job.updated_at


def test_child_that_goes_on_leaves_its_parent_waiting(bench: Workbench) -> None:
    parent = bench.submit("BATCH", store=None)
    context = bench.context()
    bench.submit(parent_id=parent)
    with pytest.raises(JobWaiting) as caught:
        run_batch(context, submitters={})
    outcome.wait(context, caught.value, proven=True)
    assert bench.job(parent).not_before == caught.value.not_before


def test_claim_that_is_free_before_the_wait_is_noticed(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    waiting = _conflict(context.clock, "job_other", "target", "tables", queue=True)
    assert isinstance(waiting, JobWaiting)
    assert waiting.wake_key == claim_key("target", "tables")
    outcome.wait(context, waiting, proven=True)
    job = bench.job(job_id)
    assert job.not_before is not None
    assert waiting.not_before is not None
    assert job.not_before < waiting.not_before


def test_wait_behind_a_paused_holder_is_woken_not_polled(bench: Workbench) -> None:
    # `overlap: QUEUE` behind a job that was paused for a day looked 17,000 times.
    holder = bench.submit()
    holding = bench.context()
    now = bench.database.clock.now()
    with bench.database.transaction() as db:
        claim_target(db, job_id=holder, target_identity="target", resource="tables", now=now)
    bench.set(holder, state=JobState.PAUSED, lease_instance=None)
    queued = bench.submit()
    context = bench.context()
    waiting = _conflict(context.clock, holder, "target", "tables", queue=True)
    assert isinstance(waiting, JobWaiting)
    outcome.wait(context, waiting, proven=True)
    not_before = bench.job(queued).not_before
    assert not_before is not None
    assert not_before - context.clock.now() >= timedelta(minutes=1)
    with bench.database.transaction() as db:
        release_claims(db, holder, now=bench.database.now(db))
    woken = bench.job(queued)
    assert woken.not_before is not None
    assert woken.not_before <= woken.updated_at
    assert holding.job.id == holder


def test_child_that_is_just_ending_is_waited_for(postgresql_bench: Workbench) -> None:
    # The end of a child woke a parent that did not wait yet, and its commit came after the parent's look: the
    # parent slept until it looked again by itself.
    bench = postgresql_bench
    parent = bench.submit("BATCH", store=None)
    context = bench.context()
    child = bench.submit(parent_id=parent)
    with pytest.raises(JobWaiting) as caught:
        run_batch(context, submitters={})
    with ThreadPoolExecutor(1) as pool:
        with bench.database.transaction() as db:
            wake_parent(db, parent, now=bench.database.now(db))
            change_job(db, child, guards=[], values={"state": JobState.SUCCEEDED}, now=bench.clock.now())
            waited = pool.submit(outcome.wait, context, caught.value, proven=True)
            until_somebody_waits_for_a_row(bench)
        waited.result(20)
    job = bench.job(parent)
    assert job.state == "WAITING"
    assert job.not_before is not None
    assert job.not_before <= job.updated_at


def test_window_that_is_just_being_removed_is_waited_for(postgresql_bench: Workbench) -> None:
    # The removal woke nobody, and its commit came after the job's look: the job rested for an hour.
    bench = postgresql_bench
    _add_store(bench)
    closed = WindowCreate(kind=WindowKind.DENY, cron="* * * * *", duration=timedelta(minutes=2))
    with bench.database.transaction() as db:
        window = create_window(db, closed, caller=CALLER, now=bench.clock.now())
    job_id = bench.submit("PURGE", params={"kind": "OUTGOING"})
    context = bench.context()
    brake = WindowBrake(bench.database, bench.clock, is_held=lambda _kind, _params: True)
    waiting = window_wait(context, brake)
    with ThreadPoolExecutor(1) as pool:
        with bench.database.transaction() as db:
            remove_window(db, window.id, now=bench.database.now(db))
            waited = pool.submit(outcome.wait, context, waiting, proven=True)
            until_somebody_waits_for_a_row(bench)
        waited.result(20)
    _assert_goes_on(bench, job_id)


def test_window_that_is_just_being_added_is_waited_for(postgresql_bench: Workbench) -> None:
    # Outside of every ALLOW; one that is open now is added meanwhile.
    bench = postgresql_bench
    _add_store(bench)
    never = WindowCreate(kind=WindowKind.ALLOW, cron="0 0 29 2 *", duration=timedelta(minutes=2))
    now_open = WindowCreate(kind=WindowKind.ALLOW, cron="* * * * *", duration=timedelta(minutes=2))
    with bench.database.transaction() as db:
        create_window(db, never, caller=CALLER, now=bench.clock.now())
    job_id = bench.submit("PURGE", params={"kind": "OUTGOING"})
    context = bench.context()
    brake = WindowBrake(bench.database, bench.clock, is_held=lambda _kind, _params: True)
    waiting = window_wait(context, brake)
    with ThreadPoolExecutor(1) as pool:
        with bench.database.transaction() as db:
            create_window(db, now_open, caller=CALLER, now=bench.database.now(db))
            waited = pool.submit(outcome.wait, context, waiting, proven=True)
            until_somebody_waits_for_a_row(bench)
        waited.result(20)
    _assert_goes_on(bench, job_id)


def test_store_that_is_just_resumed_is_waited_for(postgresql_bench: Workbench) -> None:
    bench = postgresql_bench
    _add_store(bench, is_suspended=True)
    job_id = bench.submit("PURGE")
    context = bench.context()
    waiting = suspended_wait("shop", now=bench.clock.now())
    with ThreadPoolExecutor(1) as pool:
        with bench.database.transaction() as db:
            resume_store(db, "shop", now=bench.clock.now())
            wake(db, store_key("shop"), now=bench.database.now(db))
            waited = pool.submit(outcome.wait, context, waiting, proven=True)
            until_somebody_waits_for_a_row(bench)
        waited.result(20)
    _assert_goes_on(bench, job_id)


CALLER = Caller("tok_test", "ann", frozenset(), None)


def _add_store(bench: Workbench, **fields: Any) -> None:
    now = bench.clock.now()
    shop = Store(
        id="shop",
        kind=StoreKind.SYMMETRICDS,
        url="sqlite:////nowhere/shop.db",
        created_at=now,
        updated_at=now,
        **fields,
    )
    with bench.database.transaction() as db:
        db.add(shop)


def _assert_goes_on(bench: Workbench, job_id: str) -> None:
    job = bench.job(job_id)
    assert job.state == "WAITING"
    assert job.not_before is not None
    assert job.not_before <= job.updated_at
