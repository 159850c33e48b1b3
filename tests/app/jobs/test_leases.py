"""api.md, Jobs: leases are judged by the metadata's clock, taken back, and never written past."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlmodel import Session

from app.db import Database
from app.jobs.errors import LeaseLost
from app.jobs.models import WaitingOn, read_waiting
from app.jobs.running import outcome
from app.jobs.running.claims import reap, renew
from app.jobs.running.context import JobContext
from app.jobs.running.instances import InstanceBusy, InstanceLock
from app.jobs.running.waits import causes_of
from app.jobs.service import request_abort, request_pause
from app.jobs.states import JobState
from app.jobs.writing import change_job
from app.settings import Settings
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench, claimer, kind, stopped_by, until_somebody_waits_for_a_row


def reaped(bench: Workbench, by: str = "ins_b", *, own: bool = False, at_once: int = 4) -> list[str]:
    with bench.database.transaction() as db:
        return reap(db, bench.database, replace(claimer(by), recovered_at_once=at_once), own=own)


def test_lease_that_ran_out_queues_the_job_and_counts_a_crash(bench: Workbench) -> None:
    job_id = bench.submit()
    bench.claim()
    assert reaped(bench) == []
    bench.lapse(job_id)
    assert reaped(bench) == [job_id]
    row = bench.job(job_id)
    assert (row.state, row.crash_count, row.lease_instance) == ("QUEUED", 1, None)
    assert row.unproven is True
    assert bench.events(job_id)[-1].data == {"state": "QUEUED", "reason": "LEASE_LOST", "instance": "ins_a"}
    assert reaped(bench) == []


@pytest.mark.parametrize("way", ["lapses", "is handed back", "is not proved silent"])
def test_job_that_comes_back_to_the_queue_waits_for_nothing_but_a_runner(bench: Workbench, way: str) -> None:
    job_id = bench.submit()
    context = bench.context()
    context.show_waiting([WaitingOn(kind="SPARK_POOL", ref="no room")])
    assert bench.job(job_id).waiting_cause == "SPARK_POOL"
    if way == "lapses":
        bench.lapse(job_id)
        assert reaped(bench) == [job_id]
    elif way == "is handed back":
        outcome.hand_back(context)
    else:
        outcome.silence_unproven(context, "no answer")  # its abort was taken back meanwhile
    job = bench.job(job_id)
    assert (job.state, job.waiting_on, job.waiting_cause) == ("QUEUED", [], "QUEUED")
    assert [shown.kind for shown in read_waiting(job)] == causes_of(job) == ["QUEUED"]


def test_lease_is_judged_by_the_databases_clock_alone(postgresql_bench: Workbench) -> None:
    bench = postgresql_bench
    job_id = bench.submit()
    bench.claim()
    assert isinstance(bench.clock, FakeClock)
    bench.clock.advance(86_400)  # this process believes that it is tomorrow
    assert reaped(bench) == []
    with bench.database.transaction() as db:
        assert renew(db, bench.database, claimer(), [(job_id, 1)]) == [job_id]
    left = bench.job(job_id).lease_expires_at - bench.clock.now()
    assert left < timedelta(hours=-23)


def test_lease_on_sqlite_runs_out_exactly_at_its_end(sqlite_bench: Workbench) -> None:
    bench = sqlite_bench
    job_id = bench.submit()
    bench.claim(claimer(ttl_s=90))
    assert isinstance(bench.clock, FakeClock)
    bench.clock.advance(89.999)
    assert reaped(bench) == []
    bench.clock.advance(0.001)
    assert reaped(bench) == [job_id]


@pytest.mark.parametrize("ask", [request_pause, request_abort])
def test_stopping_job_of_a_dead_runner_keeps_its_state(bench: Workbench, ask) -> None:
    job_id = bench.submit()
    bench.claim()
    state = bench.do(ask, job_id).state
    bench.lapse(job_id)
    assert reaped(bench) == [job_id]
    row = bench.job(job_id)
    assert (row.state, row.lease_instance, row.crash_count) == (state, None, 0)
    claimed = bench.claim(claimer("ins_b"))
    assert claimed is not None
    assert claimed.state == state


def test_own_leases_are_taken_back_at_start_and_others_are_not(bench: Workbench) -> None:
    mine, foreign = bench.submit(), bench.submit()
    bench.claim(claimer("ins_a"))
    bench.claim(claimer("ins_b"))
    assert reaped(bench, "ins_a", own=True) == [mine]
    assert (bench.state(mine), bench.state(foreign)) == ("QUEUED", "RUNNING")
    assert bench.job(mine).crash_count == 1


def test_recovered_jobs_start_staggered(bench: Workbench) -> None:
    # "What peers do badly: all recovered jobs restarted at once."
    ids = [bench.submit() for _ in range(10)]
    for _ in ids:
        bench.claim()
    with bench.database.transaction() as db:
        now = bench.database.now(db)
    assert reaped(bench, "ins_a", own=True, at_once=3) == ids
    due = [bench.job(job_id).not_before or now for job_id in ids]
    seconds = [round((at - now).total_seconds()) for at in due]
    assert seconds == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_all_own_leases_are_taken_back_however_many(sqlite_bench: Workbench, settings: Settings) -> None:
    # One pass took 100; the rest of a large runner's jobs stood until their leases ran out.
    bench = sqlite_bench
    held = {"lease_instance": "ins_a", "fencing_token": 1, "runs_on_key": "elsewhere"}
    ids = [bench.put(JobState.RUNNING, **held) for _ in range(130)]
    runner = bench.runner({})
    runner.start()
    runner.stop(5.0)
    assert {bench.state(job_id) for job_id in ids} == {"QUEUED"}


def test_renewal_prolongs_only_what_is_still_held(bench: Workbench) -> None:
    ids = [bench.submit() for _ in range(4)]
    tokens = [claimed.token for _ in ids if (claimed := bench.claim())]
    held = list(zip(ids, tokens, strict=True))
    bench.set(ids[0], fencing_token=99)
    bench.set(ids[1], lease_instance="ins_b")
    bench.set(ids[2], state=JobState.QUEUED)
    before = [bench.job(job_id).lease_expires_at for job_id in ids]
    if isinstance(bench.clock, FakeClock):
        bench.clock.advance(5)
    with bench.database.transaction() as db:
        assert renew(db, bench.database, claimer(), held) == [ids[3]]
    after = [bench.job(job_id).lease_expires_at for job_id in ids]
    assert after[:3] == before[:3]
    assert after[3] > before[3]


def test_renewal_and_a_change_of_many_jobs_lock_in_one_order(postgresql_bench: Workbench) -> None:
    # The pause of a parent locked its children by no order, and so did the renewal of their leases.
    bench = postgresql_bench
    ids = [bench.submit() for _ in range(2)]
    held = [(claimed.id, claimed.token) for _ in ids if (claimed := bench.claim())]

    def renewed() -> list[str]:
        with bench.database.transaction() as db:
            return renew(db, bench.database, claimer(), held[::-1])

    with ThreadPoolExecutor(1) as pool:
        with bench.database.transaction() as db:
            change_job(db, ids[0], guards=[], values={}, now=bench.clock.now())
            renewal = pool.submit(renewed)
            until_somebody_waits_for_a_row(bench)
            db.execute(text("set local lock_timeout = '400ms'"))
            change_job(db, ids[1], guards=[], values={}, now=bench.clock.now())
        assert renewal.result(20) == ids


@pytest.mark.parametrize("heir_of", ["ins_b", "ins_a"], ids=["another", "itself"])
def test_runner_that_slept_past_its_lease_writes_nothing_any_more(bench: Workbench, heir_of: str) -> None:
    job_id = bench.submit()
    sleeper = bench.context(claimer("ins_a"))
    bench.lapse(job_id)
    reaped(bench)
    heir = bench.context(claimer(heir_of))
    before, history = bench.row(job_id), bench.events(job_id)
    attempts = [
        lambda: sleeper.save_checkpoint("units", {"done": 9}),
        lambda: sleeper.note("warning", {"late": True}),
        lambda: sleeper.progress(unit="rows", done=5, total=9),
        lambda: sleeper.show_throttle(None, None),
        lambda: outcome.succeed(sleeper, {"late": True}),
        lambda: outcome.hand_back(sleeper),
        lambda: outcome.paused(sleeper),
        lambda: outcome.aborted(sleeper),
    ]
    for attempt in attempts:
        with pytest.raises(LeaseLost):
            attempt()
    assert bench.row(job_id) == before
    assert len(bench.events(job_id)) == len(history)
    assert bench.checkpoint(job_id, "units") is None
    heir.save_checkpoint("units", {"done": 3})
    assert bench.checkpoint(job_id, "units") == {"done": 3}


def test_runner_between_reap_and_next_claim_writes_nothing(bench: Workbench) -> None:
    job_id = bench.submit()
    sleeper = bench.context()
    bench.lapse(job_id)
    reaped(bench)
    with pytest.raises(LeaseLost):
        sleeper.save_checkpoint("units", {"done": 9})
    assert bench.checkpoint(job_id, "units") is None


def test_holder_stops_itself_after_the_last_renewal(sqlite_bench: Workbench) -> None:
    bench = sqlite_bench
    clock = FakeClock()
    bench.submit()
    context = bench.context(clock=clock)
    clock.advance(bench.settings.lease_self_stop_s)
    assert stopped_by(context.check) is None
    clock.advance(0.001)
    assert stopped_by(context.check) == "LEASE_LOST"
    context.renewed(clock.boottime_s())
    assert stopped_by(context.check) == "LEASE_LOST"  # once lost, never trusted again


def test_renewal_moves_the_self_stop(sqlite_bench: Workbench) -> None:
    bench = sqlite_bench
    clock = FakeClock()
    bench.submit()
    context = bench.context(clock=clock)
    for _ in range(10):
        clock.advance(50)
        assert stopped_by(context.check) is None
        context.renewed(clock.boottime_s())


class FrozenAfterCommit(Database):
    """A process that is stopped for a while right after each of its commits."""

    frozen: FakeClock
    seconds = 0.0

    @contextmanager
    def transaction(self, *, is_news: bool = True) -> Iterator[Session]:
        with super().transaction(is_news=is_news) as db:
            yield db
        self.frozen.advance(self.seconds)


@pytest.mark.parametrize("frozen_at", ["claim", "renewal"])
def test_process_frozen_right_after_a_commit_does_not_trust_its_lease(
    sqlite_bench: Workbench, clock: FakeClock, frozen_at: str
) -> None:
    # The holder noted the time of its claim and renewals after the commit. Stopped in between for longer than
    # the lease, it took the old lease for a fresh one and went on while somebody else had the job.
    frozen = FrozenAfterCommit(str(sqlite_bench.database.url), clock=clock)
    frozen.frozen = clock
    stuck = Workbench(frozen, clock, sqlite_bench.settings)
    held: list[JobContext] = []
    looked = threading.Event()

    def task(context: JobContext) -> dict[str, object]:
        held.append(context)
        looked.wait(10)
        return {}

    stuck.submit()
    runner = stuck.runner(kind(task), clock=clock)
    too_long = stuck.settings.lease_self_stop_s + 1
    frozen.seconds = too_long if frozen_at == "claim" else 0.0
    runner._claim_once()
    frozen.seconds = too_long if frozen_at == "renewal" else 0.0
    if frozen_at == "renewal":
        runner._renew_once()
    frozen.seconds = 0.0
    while not held:
        time.sleep(0.001)
    cause = stopped_by(held[0].check)
    looked.set()
    for _, thread, _ in runner._snapshot():
        thread.join(10)
    frozen.close()
    assert cause == "LEASE_LOST"


def test_second_process_in_a_data_directory_is_refused(tmp_path) -> None:
    first = InstanceLock(tmp_path)
    with pytest.raises(InstanceBusy):
        InstanceLock(tmp_path)
    first.release()
    again = InstanceLock(tmp_path)
    assert again.id == first.id
    again.release()
    assert (tmp_path / "instance.id").stat().st_mode & 0o777 == 0o600
