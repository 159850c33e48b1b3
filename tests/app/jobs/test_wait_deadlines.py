"""What waits longer than its deadline fails or is told of, as the parameters say (running/deadlines)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlmodel import Session, select

from app.auth.service import Caller
from app.fleet.attention import Limits, Shown, needs_somebody
from app.fleet.models import AttentionCode
from app.fleet.sight import Sight
from app.jobs.batches.service import JOB_BATCH, prove_children_silent, run_batch
from app.jobs.errors import JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.rows import JobClaim
from app.jobs.running import outcome
from app.jobs.running.claims import claim_target, reap
from app.jobs.running.context import JobContext
from app.jobs.running.deadlines import A_DAY, WAIT_FAILS, WAIT_MAX, WAITED_TOO_LONG
from app.jobs.running.tasks import TaskKind
from app.jobs.running.waits import ORDERED, PLANNED
from app.jobs.service import request_abort
from app.outbox.facts import Fact
from app.parameters.service import known_parameter, set_global
from app.runbook.registry import RUNBOOK
from app.stores.rows import Store, StoreKind
from app.verbs.table import VERBS
from tests.app.fake_clock import FakeClock
from tests.app.hooks.outboxes import deliveries_of, events_of, make_hook
from tests.app.jobs.workbench import Workbench, claimer, silent

HOUR = timedelta(hours=1)
CAUSES = ("JOB", "TARGET_UNREACHABLE", "BACKUP", "SPARK_POOL", "PEER", "ABANDONED_JOB", "ARCHIVE_FULL")
Prove = Callable[[JobContext], None]


@pytest.fixture
def home(sqlite_bench: Workbench) -> Workbench:
    """On SQLite the clock of the metadata is the fake one."""
    return sqlite_bench


def not_proved(_context: JobContext) -> None:
    raise JobWaiting([], not_before=None, detail="TARGET_UNREACHABLE: no answer")


def set_to(bench: Workbench, most: str | None = None, *, fails: bool | None = None) -> None:
    with bench.database.transaction() as db:
        for name, value in ((WAIT_MAX, most), (WAIT_FAILS, fails)):
            if value is not None:
                set_global(db, known_parameter(name), value, now=bench.clock.now())


def look(
    bench: Workbench,
    cause: str = "JOB",
    *,
    prove: Prove = silent,
    most: timedelta | None = A_DAY,
    transient: bool = False,
    until: timedelta | None = HOUR,
    claims: bool = False,
) -> None:
    """One attempt of the next job, as a runner makes it, that finds that it has to wait."""

    def run(context: JobContext) -> Mapping[str, Any]:
        if claims:
            place = {"target_identity": "pg:shop", "resource": "sym", "now": bench.clock.now()}
            context.write(lambda db: claim_target(db, job_id=context.job.id, **place))
        raise JobWaiting(
            [WaitingOn(kind=cause, ref="x7")],
            not_before=None if until is None else bench.clock.now() + until,
            transient=transient,
            code=cause,
            detail="somebody has it, password=p4ss",
        )

    kinds = {"TOY": TaskKind(run=run, prove_silence=prove, wait_max=most)}
    runner = bench.runner(kinds, clock=bench.clock, job_retries_max=10**6)
    runner._attempt(bench.context(clock=bench.clock))


def move(bench: Workbench, span: timedelta) -> None:
    assert isinstance(bench.clock, FakeClock)
    bench.clock.advance(span.total_seconds())


def look_on(bench: Workbench, job_id: str, span: timedelta, *, steps: int = 3, **more: Any) -> None:
    """Let time pass, with a look now and then."""
    for _ in range(steps):
        if bench.state(job_id) != "WAITING":
            return
        move(bench, span / steps)
        bench.set(job_id, not_before=bench.clock.now())
        look(bench, **more)


def shown_late(bench: Workbench, *, patience: timedelta = timedelta(days=90)) -> list[str]:
    """What the overview shows as waiting for too long."""
    with bench.database.reading() as db:
        caller = Caller("tok_1", "ann", frozenset(), None)
        sight = Sight(caller, bench.database.now(db))
        found, _ = needs_somebody(db, sight, Limits(wait=patience, heartbeat=HOUR), Shown())
    return [each.subject for each in found if each.code is AttentionCode.WAITS_LONG]


def told(bench: Workbench) -> list[dict[str, Any]]:
    return [event.data for event in events_of(bench.database) if event.type == Fact.JOB_WAITS_LONG]


@pytest.mark.parametrize("cause", [*CAUSES, *sorted(ORDERED)])
def test_what_is_late_is_told_once_and_shown_and_waits_on(home: Workbench, cause: str) -> None:
    hook = make_hook(home.database)  # it names no time of its own
    make_hook(home.database, waits_longer_than=timedelta(days=300))  # it is told by its own measure
    job_id = home.submit()
    look(home, cause)
    look_on(home, job_id, A_DAY - timedelta(seconds=1), cause=cause)
    assert (told(home), shown_late(home)) == ([], [])
    look_on(home, job_id, timedelta(days=30), steps=9, cause=cause)
    assert home.state(job_id) == "WAITING"
    assert shown_late(home) == [f"jobs/{job_id}"]
    [data] = told(home)
    assert (data["job_id"], data["waiting_on"], data["state"]) == (job_id, [cause], "WAITING")
    assert "p4ss" not in str(data)
    assert [row.webhook_id for row in deliveries_of(home.database)] == [hook.id]


@pytest.mark.parametrize("transient", [False, True])
@pytest.mark.parametrize("cause", CAUSES)
def test_what_is_late_fails_and_gives_its_claims_back(
    home: Workbench, cause: str, *, transient: bool
) -> None:
    set_to(home, "PT6H", fails=True)
    job_id = home.submit()
    more: dict[str, Any] = {"cause": cause, "transient": transient, "claims": True}
    look(home, **more)
    look_on(home, job_id, 6 * HOUR - timedelta(seconds=1), **more)
    assert home.state(job_id) == "WAITING"
    look_on(home, job_id, timedelta(seconds=1), steps=1, **more)
    job = home.job(job_id)
    assert job.error is not None
    assert (job.state, job.error["code"], job.silence_proved) == ("FAILED", WAITED_TOO_LONG, True)
    assert job.error["retryable"] is True
    detail = job.error["detail"]
    assert f"PT6H for {cause} x7" in detail  # for how long, and for what
    assert "somebody has it" in detail
    assert f"lethe explain {cause}" in detail
    assert "p4ss" not in detail
    with home.database.reading() as db:
        assert db.exec(select(JobClaim)).all() == []
    assert WAITED_TOO_LONG in RUNBOOK


def test_late_without_a_proof_of_silence_says_so(home: Workbench) -> None:
    set_to(home, fails=True)
    job_id = home.submit()
    look(home, "TARGET_UNREACHABLE", transient=True, prove=not_proved)
    look_on(home, job_id, A_DAY, cause="TARGET_UNREACHABLE", transient=True, prove=not_proved)
    job = home.job(job_id)
    assert (job.state, job.silence_proved) == ("FAILED", False)


def test_nothing_fails_unless_somebody_says_so(home: Workbench) -> None:
    job_id = home.submit()
    look(home, prove=not_proved)
    look_on(home, job_id, timedelta(days=400), steps=40, prove=not_proved)
    assert (home.state(job_id), home.job(job_id).unproven) == ("WAITING", True)


@pytest.mark.parametrize("cause", sorted(PLANNED))
def test_what_is_planned_has_no_deadline(home: Workbench, cause: str) -> None:
    set_to(home, "PT1M", fails=True)
    job_id = home.submit()
    look(home, cause, until=None)
    assert home.job(job_id).not_before is None
    look_on(home, job_id, timedelta(days=30), cause=cause)
    assert (home.state(job_id), told(home), shown_late(home)) == ("WAITING", [], [])


@pytest.mark.parametrize("cause", sorted(ORDERED))
def test_what_waits_for_an_order_never_fails(home: Workbench, cause: str) -> None:
    set_to(home, "PT1M", fails=True)
    job_id = home.submit()
    look(home, cause)
    look_on(home, job_id, timedelta(days=30), cause=cause)
    assert (home.state(job_id), shown_late(home)) == ("WAITING", [f"jobs/{job_id}"])


@pytest.mark.parametrize("until", [None, timedelta(days=25), HOUR])
def test_a_job_looks_again_at_its_deadline_at_the_latest(home: Workbench, until: timedelta | None) -> None:
    job_id = home.submit()
    began = home.clock.now()
    look(home, until=until)
    assert home.job(job_id).not_before == began + min(until or A_DAY, A_DAY)
    look_on(home, job_id, A_DAY, steps=1, until=until)  # late, and told: it may sleep as long as it likes
    later = None if until is None else home.clock.now() + until
    assert home.job(job_id).not_before == later


def test_a_wait_that_is_over_begins_anew(home: Workbench) -> None:
    set_to(home, fails=True)
    job_id = home.submit()
    for cause in ("JOB", "BACKUP", "JOB", "BACKUP"):  # each for less than a day
        home.set(job_id, not_before=home.clock.now())
        look(home, cause)
        look_on(home, job_id, 20 * HOUR, cause=cause)
    assert home.state(job_id) == "WAITING"


def test_a_later_wait_of_the_same_job_is_told_too(home: Workbench) -> None:
    make_hook(home.database)
    job_id = home.submit()
    look(home)
    for cause in ("JOB", "BACKUP", "JOB"):
        home.set(job_id, not_before=home.clock.now())
        look(home, cause)
        look_on(home, job_id, 2 * A_DAY, steps=4, cause=cause)
    assert [data["waiting_on"] for data in told(home)] == [["JOB"], ["BACKUP"], ["JOB"]]


def test_the_deadline_is_of_the_kind_unless_it_is_set(home: Workbench) -> None:
    set_to(home, fails=True)
    job_id = home.submit()
    look(home, most=HOUR)
    look_on(home, job_id, HOUR, most=HOUR)
    assert home.state(job_id) == "FAILED"
    own = home.submit()
    look(home, most=None)  # a kind with a deadline of its own
    look_on(home, own, timedelta(days=30), most=None)
    assert home.state(own) == "WAITING"
    home.do(request_abort, own)
    with home.database.transaction() as db:
        now = home.clock.now()
        db.add(
            Store(
                id="shop", kind=StoreKind.SQL, created_at=now, updated_at=now, parameters={WAIT_MAX: "PT2H"}
            )
        )
    of_store = home.submit()
    look(home, most=HOUR)
    look_on(home, of_store, 2 * HOUR - timedelta(seconds=1), most=HOUR)
    assert home.state(of_store) == "WAITING"
    look_on(home, of_store, timedelta(seconds=1), steps=1, most=HOUR)
    assert home.state(of_store) == "FAILED"


def test_waits_for_events_keep_their_own_deadline_and_destructive_kinds_have_a_day() -> None:
    spans = {verb.kind: verb.wait_max for verb in VERBS}
    assert [kind for kind, span in spans.items() if span is None] == ["EVENT_WAIT"]
    assert {verb.wait_max for verb in VERBS if verb.obeys_windows} == {A_DAY}


def test_an_abort_without_proof_is_told_and_never_fails(home: Workbench) -> None:
    set_to(home, "PT1H", fails=True)
    make_hook(home.database)
    job_id = home.submit()
    context = home.context()
    home.do(request_abort, job_id)
    for _ in range(5):
        outcome.silence_unproven(context, "no answer")
        move(home, HOUR)
        home.set(job_id, not_before=home.clock.now())
        context = home.context()
    assert home.state(job_id) == "ABORTING"
    assert [data["waiting_on"] for data in told(home)] == [["TARGET_SILENCE"]]
    assert shown_late(home) == [f"jobs/{job_id}"]


def test_a_crash_loop_whose_target_is_gone_ends_too(home: Workbench) -> None:
    set_to(home, "PT1H", fails=True)
    job_id = home.submit()
    home.set(job_id, crash_count=5)
    look(home, prove=not_proved)
    assert home.job(job_id).waiting_on[0]["kind"] == "TARGET_SILENCE"
    look_on(home, job_id, HOUR, prove=not_proved)
    job = home.job(job_id)
    assert job.error is not None
    assert (job.state, job.error["code"], job.silence_proved) == ("FAILED", WAITED_TOO_LONG, False)


@pytest.mark.parametrize("fails", [False, True])
def test_a_running_job_that_is_held_up_has_a_deadline_too(bench: Workbench, *, fails: bool) -> None:
    """A replica that lags, or a pool that never comes: the task waits within its attempt."""
    set_to(bench, "PT1H", fails=fails)
    make_hook(bench.database)
    silenced: list[str] = []

    def held_up(context: JobContext) -> Mapping[str, Any]:
        context.show_waiting([WaitingOn(kind="REPLICA_LAG", ref="r1: 900 s behind")])
        while context.stop_cause is None:
            context.sleep(0.02)
        context.show_waiting([])  # as the brake of a purge does
        context.check()
        return {}

    kinds = {"TOY": TaskKind(run=held_up, prove_silence=lambda context: silenced.append(context.job.id))}
    with bench.running(kinds) as runner:
        job_id = bench.submit()
        while not bench.job(job_id).waiting_on:
            runner.wake()
        assert told(bench) == []
        with bench.database.reading() as db:
            since = bench.database.now(db) - 2 * HOUR
        bench.set(job_id, waiting_since=since)
        runner.wake()
        if fails:
            job = bench.until(job_id, "FAILED")
            assert job.error is not None
            assert (job.error["code"], job.silence_proved) == (WAITED_TOO_LONG, True)
            assert "REPLICA_LAG r1: 900 s behind" in job.error["detail"]
            assert silenced == [job_id]
        else:
            while not told(bench):
                runner.wake()
            assert shown_late(bench) == [f"jobs/{job_id}"]
            assert bench.state(job_id) == "RUNNING"
    assert len(told(bench)) == (0 if fails else 1)


def test_a_batch_ends_well_when_its_child_has_waited_too_long(bench: Workbench) -> None:
    set_to(bench, "PT1H", fails=True)

    def run(context: JobContext) -> Mapping[str, Any]:
        if context.job.store == "madrid":
            raise JobWaiting([WaitingOn(kind="JOB", ref="job_x")], not_before=None)
        return {"removed": {}}

    kinds = {
        "TOY": TaskKind(run=run, prove_silence=silent),
        JOB_BATCH: TaskKind(run=partial(run_batch, submitters={}), prove_silence=prove_children_silent),
    }
    with bench.running(kinds) as runner:
        parent = bench.submit(JOB_BATCH, store=None)
        children = {store: bench.submit(store=store, parent_id=parent) for store in ("oslo", "madrid")}
        bench.until(children["madrid"], "WAITING")
        bench.until(parent, "WAITING")
        with bench.database.reading() as db:
            since = bench.database.now(db) - 2 * HOUR
        bench.set(children["madrid"], waiting_since=since)
        bench.make_due(children["madrid"])
        runner.wake()
        job = bench.until(parent, "FAILED")
    assert job.error is not None
    assert job.error["code"] == "CHILDREN_FAILED"
    assert job.result is not None
    states = {store: item["state"] for store, item in job.result["stores"].items()}
    assert states == {"oslo": "SUCCEEDED", "madrid": "FAILED"}
    assert bench.job(children["madrid"]).error["code"] == WAITED_TOO_LONG  # type: ignore[index]


def test_an_abort_that_comes_in_between_wins(home: Workbench) -> None:
    set_to(home, "PT1H", fails=True)
    job_id = home.submit()
    look(home)
    move(home, 2 * HOUR)
    home.set(job_id, not_before=home.clock.now())
    look(home, prove=lambda _context: _order_abort(home, job_id))
    assert home.state(job_id) == "ABORTED"


def _order_abort(bench: Workbench, job_id: str) -> None:
    if bench.state(job_id) == "RUNNING":
        bench.do(request_abort, job_id)


def test_what_it_waited_for_comes_just_then_and_it_goes_on(home: Workbench) -> None:
    set_to(home, "PT1H", fails=True)
    job_id = home.submit()
    look(home)
    move(home, 2 * HOUR)
    home.set(job_id, not_before=home.clock.now())
    waiting = JobWaiting([WaitingOn(kind="JOB", ref="x7")], not_before=None, overtaken=lambda _db: True)
    assert outcome.too_long(home.context(), waiting, most=A_DAY) is None


class Killed(BaseException):
    """The process is gone: nothing after this is done by it."""


def test_kill_as_a_late_job_fails_leaves_neither_half_of_it(home: Workbench) -> None:
    """FAILED and the claims that it gives back are one transaction; the next attempt ends as it would."""
    set_to(home, "PT2H", fails=True)
    job_id = home.submit()
    look(home, claims=True)
    move(home, 3 * HOUR)
    home.set(job_id, not_before=home.clock.now())

    def kill(db: Any) -> None:
        row = db.execute(text("select state from jobs where id = :id"), {"id": job_id}).scalar_one()
        if row == "FAILED":
            raise Killed

    event.listen(Session, "before_commit", kill)
    try:
        with pytest.raises(Killed):
            look(home)
    finally:
        event.remove(Session, "before_commit", kill)
    assert home.state(job_id) == "RUNNING"
    assert claims_of(home) == [job_id]
    home.lapse(job_id)
    with home.database.transaction() as db:
        assert reap(db, home.database, claimer()) == [job_id]
    look(home)
    look_on(home, job_id, 3 * HOUR)
    assert (home.state(job_id), claims_of(home)) == ("FAILED", [])


def claims_of(bench: Workbench) -> list[str]:
    with bench.database.reading() as db:
        return [row.job_id for row in db.exec(select(JobClaim)).all()]
