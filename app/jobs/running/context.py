"""What a task knows of its job: its parameters, its checkpoints, and when it must stop.

Rules:
- every write to the metadata carries the fencing token; a write that does not match is LeaseLost;
- the task stops by itself at the last renewal + `lease_self_stop_s` of CLOCK_BOOTTIME, even if it was asleep;
- metadata that is away is waited for, never longer than that.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from sqlmodel import Session, col

from app.clock import Clock
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable
from app.jobs.errors import JobFailed, JobStopped, LeaseLost, StopCause
from app.jobs.models import ThrottleSetting, WaitingOn, read_bounds
from app.jobs.rows import Job, JobCheckpoint
from app.jobs.running.claims import ClaimedJob
from app.jobs.running.pace import Shown, fraction_of
from app.jobs.running.throttle import REQUESTED, Throttle
from app.jobs.states import HELD, JobState
from app.jobs.writing import EVENT_PROGRESS, change_job
from app.kit.instants import instant_text
from app.settings import Settings

METADATA_RETRY_S = 0.5
T = TypeVar("T")


class FinishesAt(Protocol):
    """When work of so many seconds is done; None: nobody can tell."""

    def __call__(self, now: datetime, /, *, work_s: float) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class Spread:
    """How fast work goes that is spread over a time, waits and all, and when it ends so."""

    rate_per_s: float
    ends_at: datetime


class JobContext:
    """One attempt of one job."""

    def __init__(
        self,
        job: ClaimedJob,
        *,
        instance_id: str,
        database: Database,
        settings: Settings,
        clock: Clock,
        changed: Callable[[str], None],
        moved: Callable[[], None] = lambda: None,
        finishes_at: FinishesAt = lambda now, *, work_s: now + timedelta(seconds=work_s),
    ) -> None:
        self.job = job
        self.instance_id = instance_id
        self.database = database
        self.settings = settings
        self.clock = clock
        self.throttle = Throttle(clock, read_bounds(job.throttle) if job.throttle else None)
        self._changed = changed
        self._moved = moved
        self._finishes_at = finishes_at
        self.is_on_pool = False
        self.too_late: JobFailed | None = None
        """How it fails once it has stopped by WAITED_TOO_LONG."""
        self._guard = threading.Lock()
        self._stop: StopCause | None = None
        self._stopped = threading.Event()
        self._stop_asked_at: float | None = None
        self._cancels: list[Callable[[], object]] = []
        self._renewed_at = clock.boottime_s()
        self._began_at = clock.boottime_s()
        self._shown = Shown()
        self._bounds_shown = (ThrottleSetting(), REQUESTED)

    # -- stopping

    def signal(self, cause: StopCause) -> None:
        """Ask the task to stop; a stronger cause outranks a weaker one. Any thread."""
        with self._guard:
            if self._stop is not None and self._stop >= cause:
                return
            self._stop = cause
            self._stop_asked_at = self._stop_asked_at or self.clock.boottime_s()
        self._stopped.set()
        if cause >= StopCause.ABORT:
            self.cancel_statements()

    def cancel_statements(self) -> None:
        """End whatever statement blocks the task now. Any thread."""
        with self._guard:
            cancels = list(self._cancels)
        for cancel in cancels:
            cancel()

    def cancel_if_overdue(self, grace_s: float) -> None:
        """After the grace of a polite stop, end the statements that block it."""
        asked_at = self._stop_asked_at
        if asked_at is not None and self.clock.boottime_s() - asked_at > grace_s:
            self.cancel_statements()

    def on_cancel(self, cancel: Callable[[], object]) -> Callable[[], None]:
        """Register a way to end a blocked statement; returns the function that removes it."""
        with self._guard:
            self._cancels.append(cancel)

        def remove() -> None:
            with self._guard:
                self._cancels.remove(cancel)

        return remove

    @property
    def stop_cause(self) -> StopCause | None:
        """Why the task must stop, or None."""
        if self.clock.boottime_s() - self._renewed_at > self.settings.lease_self_stop_s:
            self.signal(StopCause.LEASE_LOST)
        return self._stop

    def check(self) -> None:
        """Raise JobStopped at a safe point if the task must stop."""
        cause = self.stop_cause
        if cause is StopCause.LEASE_LOST:
            raise LeaseLost
        if cause is not None:
            raise JobStopped(cause)

    def sleep(self, seconds: float) -> None:
        """Sleep in short slices; ends early when the task must stop or the throttle changes."""
        self._stopped.wait(min(seconds, 1.0))

    def renewed(self, at_s: float) -> None:
        """The runner has the lease by a transaction that it began at `at_s` of CLOCK_BOOTTIME.

        Not its end: a process stopped right after its commit must not take an old lease for a fresh one.
        """
        self._renewed_at = at_s

    def moves_to(self, *, pool: bool) -> None:
        """Say where the units of this attempt run: a job on the pool leaves room for another one here."""
        self.is_on_pool = pool
        self._moved()

    # -- metadata

    def metadata_now(self) -> datetime:
        """What time it is by the metadata database's clock.

        Raises: LeaseLost.
        """

        return self.read(self.database.now)

    def read(self, ask: Callable[[Session], T]) -> T:
        """Ask the metadata, waiting while it is away, as long as the lease is surely ours.

        It waits for no writer, and is no news to anybody.
        Raises: LeaseLost.
        """

        def act() -> T:
            with self.database.reading() as db:
                return ask(db)

        return self.patiently(act)

    def write(self, effect: Callable[[Session], T], *, is_news: bool = True) -> T:
        """Run a transaction on the metadata, waiting while it is away, as long as the lease is surely ours.

        Args:
            is_news: whether it may concern anybody who waits; what it tells the feed does so anyway.
        Raises: LeaseLost.
        """

        def act() -> T:
            with self.database.transaction(is_news=is_news) as db:
                return effect(db)

        return self.patiently(act)

    def patiently(self, act: Callable[[], T]) -> T:
        """Do what needs the metadata, waiting while it is away, as long as the lease is surely ours.

        Raises: LeaseLost.
        """
        while True:
            try:
                return act()
            except (MetadataUnavailable, MetadataBusy):
                if self.stop_cause is StopCause.LEASE_LOST:
                    raise LeaseLost from None
                self.clock.sleep(METADATA_RETRY_S)

    def change(
        self,
        db: Session,
        values: Mapping[str, Any],
        event: tuple[str, Mapping[str, Any]] | None = None,
        *,
        states: Collection[JobState] = HELD,
    ) -> None:
        """Change the job's row under the token, from one of `states`.

        Raises: LeaseLost: the job is not ours, or not in these states any more.
        """
        won = change_job(
            db,
            self.job.id,
            guards=[
                col(Job.fencing_token) == self.job.token,
                col(Job.lease_instance) == self.instance_id,
                col(Job.state).in_(sorted(states)),
            ],
            values=values,
            now=self.database.now(db),
            event=event,
        )
        if not won:
            raise LeaseLost

    def checkpoint(self, name: str) -> dict[str, Any] | None:
        """What an earlier attempt noted."""

        def read(db: Session) -> dict[str, Any] | None:
            row = db.get(JobCheckpoint, (self.job.id, name))
            return None if row is None else dict(row.value)

        return self.write(read)

    def save_checkpoint(self, name: str, value: Mapping[str, Any], *, advanced: bool = False) -> None:
        """Note something for a later attempt.

        Args:
            advanced: real progress was made: crashes and retries count from zero again.
        """

        def save(db: Session) -> None:
            self.change(db, {"crash_count": 0, "retries": 0} if advanced else {})
            db.merge(
                JobCheckpoint(job_id=self.job.id, name=name, value=dict(value), at=self.database.now(db))
            )

        self.write(save)

    def note(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add an event."""
        self.write(lambda db: self.change(db, {}, (kind, data)))
        self._changed(self.job.id)

    def progress(
        self,
        *,
        unit: str,
        done: int,
        total: int | None,
        total_is_estimate: bool = False,
        repeated: int = 0,
        removed: int | None = None,
        spread: Spread | None = None,
        left_s: float | None = None,
        force: bool = False,
    ) -> None:
        """Show how far it is; at most once in `progress_interval_s`, more often in the first seconds.

        Args:
            repeated: how much of `done` this attempt only found done by an earlier one: it gained nothing.
            removed: rows that are gone, where `done` counts what was looked at.
            spread: the plan that the work keeps to; without one the rate of late tells when it ends.
            left_s: seconds of work that are left under the bounds in effect, where the task knows better.
        """
        now_s = self.clock.boottime_s()
        gained = self._shown.count(now_s, done=done - repeated, bounds=self.throttle.setting)
        if not force and not self._shown.is_due(now_s, every_s=self.settings.progress_interval_s):
            return
        self._shown.show(now_s)
        active_s = now_s - self._began_at
        done = max(done, self.job.done)
        if total is not None:
            total = max(total, done)
        shown = self._progress_row(unit, done, total, total_is_estimate, left_s)
        if removed is not None:
            shown["removed"] = max(removed, self.job.removed)
        if spread is not None:
            shown |= {"rate_per_s": round(spread.rate_per_s, 1), "eta": instant_text(spread.ends_at)}
        values: dict[str, Any] = {"progress": shown, "active_s": self.job.active_s + active_s}
        if gained > 0:  # what an attempt gained is not lost: crashes count from zero
            values |= {"crash_count": 0, "retries": 0}
        self.write(lambda db: self.change(db, values, (EVENT_PROGRESS, shown)))
        self._changed(self.job.id)

    def _progress_row(
        self, unit: str, done: int, total: int | None, is_estimate: bool, left_s: float | None
    ) -> dict[str, Any]:
        rate = self._shown.rate
        if left_s is None and rate is not None and total is not None:
            left_s = max(0, total - done) / rate
        # Both are of the intensity in effect; what is left meets other windows.
        intensity = (self.throttle.setting.intensity or 1.0) if self.throttle.cause != REQUESTED else 1.0
        eta = None if left_s is None else self._finishes_at(self.clock.now(), work_s=left_s * intensity)
        return {
            "unit": unit,
            "done": done,
            "total": total,
            "total_is_estimate": is_estimate,
            "fraction": fraction_of(done, total),
            "rate_per_s": None if rate is None else round(rate, 1),
            "eta": None if eta is None else instant_text(eta),
        }

    def show_waiting(self, waiting_on: Sequence[WaitingOn]) -> None:
        """Tell clients what the running job is held up by; empty: nothing any more."""
        shown = [item.model_dump(mode="json") for item in waiting_on]
        self.write(lambda db: self.change(db, {"waiting_on": shown}))
        self._changed(self.job.id)

    def show_throttle(self, effective: ThrottleSetting | None, cause: str | None) -> None:
        """Tell clients what holds the job back."""
        values = {
            "throttle_effective": effective.model_dump() if effective else None,
            "throttle_cause": cause,
        }
        self.write(lambda db: self.change(db, values))
        self._changed(self.job.id)

    def show_bounds(self) -> None:
        """Tell clients which bounds hold the job from now on, once they are others than before."""
        setting, cause = self.throttle.setting, self.throttle.cause
        if (setting, cause) == self._bounds_shown:
            return
        self._bounds_shown = (setting, cause)
        is_bounded = setting != ThrottleSetting()
        self.show_throttle(setting if is_bounded else None, cause if is_bounded else None)
