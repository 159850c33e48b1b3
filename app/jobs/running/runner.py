"""The runner: claims jobs, runs each in a thread of its own, keeps the leases, stops gracefully.

Invariants:
- at most `runner_interactive_jobs_max` interactive jobs at once, and at most `runner_jobs_max` bulk jobs that
  work in this process, with up to `runner_spark_jobs_max` more beside them whose units the pool runs;
- a job that the runner does not surely hold is told to stop before anybody else may take it;
- PAUSED and ABORTED are written only after the kind's proof of silence;
- nothing that a task or a round of a loop raises ends the runner (broad excepts: tests/style/test_places.py).
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial

import structlog
from sqlmodel import Session, select

from app.clock import Clock
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable
from app.jobs.errors import JobFailed, JobStopped, JobWaiting, LeaseLost, StopCause
from app.jobs.models import WaitingOn, read_bounds
from app.jobs.rows import Job, JobClass
from app.jobs.running import outcome
from app.jobs.running.candidates import LimitsOf
from app.jobs.running.claims import ClaimedJob, Claimer, claim_next, reap, renew
from app.jobs.running.context import JobContext
from app.jobs.running.looking import WorkGate
from app.jobs.running.openings import AlwaysOpen, Openings, brake, rest_wait, window_wait
from app.jobs.running.orders import OrderDesk
from app.jobs.running.tasks import TaskKind, TaskKinds, unexpected
from app.jobs.states import JobState
from app.settings import Settings

logger = structlog.get_logger("lethe.runner")
THREAD_JOIN_S = 0.5
LOOKS_APART_S = 0.05
"""Between a look for work that found none and the next, however much is written."""
_AWAY = (MetadataUnavailable, MetadataBusy)


def survive(act: Callable[[], object], trouble: str) -> bool:
    """One round of a loop: neither metadata that is away nor a bug may end the loop itself."""
    try:
        return bool(act())
    except _AWAY as error:
        logger.warning(trouble, error=error.detail)
    except Exception:
        logger.exception("a round of a loop failed")
    return False


class Runner:
    """Runs jobs of the given kinds until it is stopped.

    Args:
        kinds: job kind to its task.
        parallel_limits: asked before each claim about the stores that have jobs at work.
        suspended_stores: read by the control loop: stores whose jobs must rest.
        openings: asked before each attempt and by the control loop: when jobs may work.
        changed: told the id of each job whose row this runner changed.
    """

    def __init__(
        self,
        *,
        claimer: Claimer,
        kinds: TaskKinds,
        database: Database,
        settings: Settings,
        clock: Clock,
        parallel_limits: LimitsOf,
        suspended_stores: Callable[[Session], Collection[str]],
        openings: Openings | None = None,
        changed: Callable[[str], None] = lambda _job_id: None,
    ) -> None:
        self.claimer, self.kinds = claimer, kinds
        self.database = database
        self.settings = settings
        self.clock = clock
        self._limits_of = parallel_limits
        self._openings: Openings = openings or AlwaysOpen()
        self._desk = OrderDesk(
            database,
            kinds=kinds,
            openings=self._openings,
            suspended_stores=suspended_stores,
            monotonic=clock.boottime_s,
        )
        self._changed = changed
        self._guard = threading.Lock()
        self._held: dict[str, tuple[JobContext, threading.Thread, JobClass]] = {}
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._control_wake = threading.Event()
        self._gate = WorkGate(database, clock)
        self._loops = [
            threading.Thread(target=self._claim_loop, name="lethe-claims", daemon=True),
            threading.Thread(target=self._control_loop, name="lethe-control", daemon=True),
            threading.Thread(target=self._renew_loop, name="lethe-leases", daemon=True),
        ]

    # -- life

    def start(self) -> None:
        """Take back what this instance held before, then begin to claim."""
        with self.database.transaction() as db:
            recovered = reap(db, self.database, self.claimer, own=True)
        if recovered:
            logger.warning("jobs recovered after a crash", jobs=recovered)
        for loop in self._loops:
            loop.start()

    def stop(self, timeout_s: float) -> bool:
        """Stop claiming, bring running jobs to a safe point and give the leases back.

        Returns: whether every job stopped in time.
        """
        self._stopping.set()
        self.wake()
        deadline = self.clock.boottime_s() + timeout_s
        self._join(self._loops[:1])  # what it claims now is stopped with the rest
        for context, _, _ in self._snapshot():
            context.signal(StopCause.SHUTDOWN)
        for context, thread, _ in self._snapshot():
            while thread.is_alive() and self.clock.boottime_s() < deadline:
                context.cancel_if_overdue(self.settings.cancel_grace_s)
                thread.join(0.1)
        if not self._snapshot():  # else the loops go on for the jobs that are left
            self._join(self._loops)
        return not self._snapshot()

    @staticmethod
    def _join(loops: Sequence[threading.Thread]) -> None:
        for loop in filter(threading.Thread.is_alive, loops):
            loop.join(THREAD_JOIN_S)

    def wake(self) -> None:
        """Look for work and for orders now."""
        self._wake.set()
        self._control_wake.set()

    @property
    def is_alive(self) -> bool:
        """Whether all loops run and no stop was asked for."""
        return not self._stopping.is_set() and all(loop.is_alive() for loop in self._loops)

    def _snapshot(self) -> list[tuple[JobContext, threading.Thread, JobClass]]:
        with self._guard:
            return list(self._held.values())

    # -- loops

    def _claim_loop(self) -> None:
        while not self._stopping.is_set():
            interval_s = self.settings.runner_poll_interval_s
            opens = self._gate.opens(again_s=interval_s)
            if not (opens and survive(self._claim_once, "metadata away")):
                if opens:  # whoever writes much is looked after together
                    self._stopping.wait(LOOKS_APART_S)
                if self._wake.wait(interval_s):
                    self._gate.forget()
                self._wake.clear()

    def _claim_once(self) -> bool:
        if not self._gate.finds_anything():
            return False
        with self.database.transaction() as db:
            reap(db, self.database, self.claimer)
        claimed = False
        for job_class in JobClass:
            if not self._has_room(job_class) or self._stopping.is_set():
                continue
            asked_at_s = self.clock.boottime_s()
            with self.database.transaction() as db:
                job = claim_next(
                    db,
                    self.database,
                    self.claimer,
                    job_class=job_class,
                    parallel_limits=self._limits_of,
                    kinds=self.kinds,
                    but=[context.job.id for context, _, _ in self._snapshot()],
                )
            if job is not None:
                self._launch(job, job_class, asked_at_s)
                claimed = True
        return claimed

    def _has_room(self, job_class: JobClass) -> bool:
        held = [context for context, _, held_class in self._snapshot() if held_class is job_class]
        settings = self.settings
        if job_class is JobClass.INTERACTIVE:
            return len(held) < settings.runner_interactive_jobs_max
        here, most = settings.runner_jobs_max, settings.runner_jobs_max + settings.runner_spark_jobs_max
        return sum(not context.is_on_pool for context in held) < here and len(held) < most

    def _launch(self, job: ClaimedJob, job_class: JobClass, asked_at_s: float) -> None:
        context = JobContext(
            job,
            instance_id=self.claimer.instance_id,
            database=self.database,
            settings=self.settings,
            clock=self.clock,
            changed=self._changed,
            moved=self.wake,
            finishes_at=partial(self._openings.finishes_at, job),
        )
        context.renewed(asked_at_s)
        thread = threading.Thread(target=self._run, args=(context,), name=f"lethe-{job.id}", daemon=True)
        with self._guard:
            assert job.id not in self._held, "claimed a job that is still held here"
            self._held[job.id] = (context, thread, job_class)
        self._changed(job.id)
        thread.start()

    def _control_loop(self) -> None:
        while not (self._stopping.is_set() and not self._snapshot()):
            survive(self._control_once, "metadata away")
            self._control_wake.wait(self.settings.runner_poll_interval_s)
            self._control_wake.clear()

    def _control_once(self) -> None:
        held = {context.job.id: context for context, _, _ in self._snapshot()}
        if not held:
            return
        self._desk.give(held)
        for context in held.values():
            if self._stopping.is_set():
                context.signal(StopCause.SHUTDOWN)
            context.cancel_if_overdue(self.settings.cancel_grace_s)

    def _renew_loop(self) -> None:
        while not (self._stopping.is_set() and not self._snapshot()):
            survive(self._renew_once, "leases could not be renewed")
            self._stopping.wait(self.settings.lease_renew_interval_s)
            if self._stopping.is_set():
                self.clock.sleep(0.1)

    def _renew_once(self) -> None:
        contexts = [context for context, _, _ in self._snapshot()]
        if not contexts:
            return
        asked_at_s = self.clock.boottime_s()
        with self.database.transaction() as db:
            kept = set(renew(db, self.database, self.claimer, [(c.job.id, c.job.token) for c in contexts]))
        for context in contexts:
            if context.job.id in kept:
                context.renewed(asked_at_s)
            else:
                context.signal(StopCause.LEASE_LOST)

    # -- one attempt

    def _run(self, context: JobContext) -> None:
        job = context.job
        with structlog.contextvars.bound_contextvars(job_id=job.id, kind=job.kind, token=job.token):
            try:
                self._attempt(context)
            except JobStopped as stopped:  # the lease went while the end was written
                logger.warning("job given up", cause=stopped.cause.name)
            except _AWAY:
                logger.warning("metadata away; the lease will run out")
            except Exception:
                logger.exception("the runner failed")
            finally:
                with self._guard:
                    self._held.pop(job.id, None)
                self._changed(job.id)
                self._wake.set()

    def _attempt(self, context: JobContext) -> None:
        kind = self.kinds[context.job.kind]
        if context.job.state is not JobState.RUNNING:
            self._finish_stop(context, kind)
            return
        if context.job.crash_count >= self.claimer.crash_loop_max:
            self._fail_crash_loop(context, kind)
            return
        try:
            result = self._work(context, kind)
        except JobStopped as stopped:
            self._stopped(context, kind, stopped.cause)
        except JobWaiting as waiting:
            self._rest(context, kind, waiting)
        except JobFailed as failed:
            self._fail(context, kind, failed)
        else:
            self._unless_ordered(context, kind, partial(outcome.succeed, context, result))

    def _work(self, context: JobContext, kind: TaskKind) -> Mapping[str, object]:
        wanted = read_bounds(context.job.throttle or {})
        if not context.patiently(partial(brake, context, self._openings, wanted, fresh=True)):
            raise context.patiently(partial(window_wait, context, self._openings))
        try:
            return kind.attempt(context)
        except (JobStopped, JobWaiting, JobFailed, *_AWAY):
            raise
        except Exception as error:
            logger.exception("the task failed")
            raise unexpected(error) from error

    def _rest(
        self, context: JobContext, kind: TaskKind, waiting: JobWaiting, *, provable: bool = True
    ) -> None:
        """Write WAITING, or FAILED where it has waited for too long."""
        failed = outcome.too_long(context, waiting, most=kind.wait_max)
        if failed is not None:
            self._fail(context, kind, failed)
            return
        proven = provable and not waiting.transient and self._prove(context, kind) is None
        wait = partial(outcome.wait, context, waiting, proven=proven, most=kind.wait_max)
        self._unless_ordered(context, kind, wait)

    def _fail(self, context: JobContext, kind: TaskKind, failed: JobFailed) -> None:
        """FAILED is silent too, or says that it may not be, and shows what was done before."""
        proven = self._prove(context, kind) is None
        self._unless_ordered(context, kind, partial(outcome.fail, context, failed, proven=proven))

    def _unless_ordered(self, context: JobContext, kind: TaskKind, end: Callable[[], None]) -> None:
        """Write an end, unless a pause or an abort was ordered meanwhile: then that wins."""
        try:
            end()
        except LeaseLost:
            if self._ordered_state(context) is None:
                raise
            context.signal(StopCause.PAUSE)  # a stop was ordered, whichever it is
            self._finish_stop(context, kind)

    def _ordered_state(self, context: JobContext) -> JobState | None:
        """PAUSING or ABORTING when that was ordered and the job is still ours."""
        query = select(Job.state).where(Job.id == context.job.id, Job.fencing_token == context.job.token)
        with self.database.reading() as db:
            state = db.exec(query).first()
        return JobState(state) if state in (JobState.PAUSING, JobState.ABORTING) else None

    def _stopped(self, context: JobContext, kind: TaskKind, cause: StopCause) -> None:
        if cause is StopCause.LEASE_LOST:
            logger.warning("lease lost")
        elif cause is StopCause.SHUTDOWN:
            self._unless_ordered(context, kind, partial(outcome.hand_back, context))
        elif cause in (StopCause.SUSPEND, StopCause.WINDOW):
            self._rest(context, kind, context.patiently(partial(rest_wait, context, self._openings, cause)))
        elif cause is StopCause.WAITED_TOO_LONG:
            assert context.too_late is not None, "noted before it was signalled"
            self._fail(context, kind, context.too_late)
        else:
            self._finish_stop(context, kind)

    def _finish_stop(self, context: JobContext, kind: TaskKind) -> None:
        """Prove silence, then write PAUSED or ABORTED, or QUEUED, whichever is ordered by then."""
        problem = self._prove(context, kind)
        if problem is not None:
            logger.warning("silence not proved yet", problem=problem)
            outcome.silence_unproven(context, problem, most=kind.wait_max)
            return
        # An order may become another one while it is carried out: PAUSED, QUEUED again, ABORTED at last.
        ordered = self._ordered_state(context)
        if ordered is JobState.PAUSING and _won(outcome.paused, context):
            return
        if ordered is not JobState.ABORTING and _won(outcome.go_on, context):
            return
        if self._ordered_state(context) is JobState.PAUSING:  # paused, resumed and paused again
            outcome.paused(context)
        else:
            outcome.aborted(context)

    def _prove(self, context: JobContext, kind: TaskKind) -> str | None:
        """Prove silence; returns what stands in the way, or None."""
        try:
            kind.prove_silence(context)
        except JobWaiting as waiting:
            return waiting.detail or str(waiting)
        except JobFailed as failed:
            return failed.detail
        return None

    def _fail_crash_loop(self, context: JobContext, kind: TaskKind) -> None:
        problem = self._prove(context, kind)
        detail = f"{context.job.crash_count} crashes without progress"
        if problem is not None:
            waiting = JobWaiting(
                [WaitingOn(kind="TARGET_SILENCE", ref=problem[:200])],
                not_before=self.clock.now() + timedelta(seconds=outcome.SILENCE_RETRY_S),
                detail=detail,
            )
            self._rest(context, kind, waiting, provable=False)
            return
        failed = JobFailed("CRASH_LOOP", detail)
        self._unless_ordered(context, kind, partial(outcome.fail, context, failed, proven=True))


def _won(end: Callable[[JobContext], None], context: JobContext) -> bool:
    try:
        end(context)
    except LeaseLost:
        return False
    return True
