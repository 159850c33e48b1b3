"""The task of a wait: one look at the confirmations, then rest until the next; nothing is held in between.

Invariants:
- the deadline is the job's `created_at` and its timeout, by the metadata database's clock: a crash, another
  instance, a pause or a node that is away moves it not; at the deadline there is always one more look, unless
  the node cannot be asked then;
- a node that is away is waited for like a confirmation, to the deadline; who is outstanding is told every
  TELL_EVERY_S;
- one look is for all waits of its store (`sharing`), and all stores together are looked at no more than
  LOOKS_PER_S times a second: runners take the oldest job first, and looks they cannot keep up with would let
  the younger waits starve;
- a look that finds nothing new has no event;
- a node that takes a connection and hangs holds one thread, for as long as a look may take (`hanging`);
- nothing is written to the target: there is no silence to prove.
Source: slony-events-confirmations, 4.1.4; facts/slony, section 6.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from sqlmodel import Session

from app.errors import ServiceError
from app.events.waits.hanging import LOOKS, NodeHangs
from app.events.waits.models import (
    EVENT_OUTSTANDING,
    Noted,
    OutstandingRead,
    WaitParams,
    WaitResult,
    WaitTold,
)
from app.events.waits.service import awaited_of, deadline_of
from app.events.waits.sharing import REST, Seen, count_places, tell_others
from app.events.waits.telling import CHECKPOINT, named, told_of, waiting_on_of
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.queries import get_job
from app.jobs.rows import JobCheckpoint
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import controlled, signal_of
from app.jobs.running.suspension import suspended_wait
from app.kit.durations import format_duration
from app.stores.rows import Store, is_suspended
from app.stores.service import get_store
from spark.events.catalog import read_catalog
from spark.events.confirmations import confirmed_upto
from spark.events.waiting import TELL_EVERY_S, Impossible, Look, look, pause_s
from spark.targets.errors import TargetUnreachable

AWAY_PAUSE_FIRST_S: Final = 1.0
AWAY_PAUSE_MAX_S: Final = 10.0
AWAY_TRIES_COUNTED_MAX: Final = 10
LOOKS_PER_S: Final = 5.0
LOOK_MAX_MS: Final = 10_000
"""Of each statement of a look: a node that hangs must not keep a thread from the waits of others."""
NAMED_MAX: Final = 3
_VAIN: Final = {
    Impossible.ORIGIN_GONE: "the origin was dropped",
    Impossible.RECEIVER_GONE: "the node that was to confirm was dropped",
    Impossible.NO_RECEIVERS: "no active node is left that could confirm",
}


@dataclass(frozen=True, slots=True)
class _Wait:
    """One attempt."""

    context: JobContext
    params: WaitParams
    where: Store
    resting: Store | None
    created_at: datetime
    began_at: datetime
    began_s: float
    noted: Noted
    places: int

    @property
    def now(self) -> datetime:
        """By the metadata database's clock, as it was at the beginning, and what has passed since."""
        return self.began_at + timedelta(seconds=self.context.clock.boottime_s() - self.began_s)

    @property
    def deadline(self) -> datetime | None:
        return deadline_of(self.created_at, self.params)

    @property
    def turn(self) -> timedelta:
        """When each other store has been looked at."""
        return timedelta(seconds=self.places / LOOKS_PER_S)

    @property
    def is_late(self) -> bool:
        return self.deadline is not None and self.now >= self.deadline

    def not_after_deadline(self, instant: datetime) -> datetime:
        return instant if self.deadline is None else min(instant, self.deadline)


def run_wait(context: JobContext) -> Mapping[str, Any]:
    """Look once; return the result that clients see if all have confirmed.

    Raises: JobSignal: JobFailed WAIT_TIMEOUT, or why waiting is in vain, with who is outstanding.
    """
    wait = _begin(context)
    if wait.resting is not None:
        _rest(wait, wait.resting)
    try:
        with _look_at(wait), controlled(context, wait.where, statement_max_ms=LOOK_MAX_MS) as conn:
            assert wait.where.cluster is not None, "a store of kind SLONY names its cluster"
            catalog = read_catalog(conn, wait.where.cluster)
            if catalog.local_node != wait.params.wait_on:
                detail = f"the store is node {catalog.local_node} now, not {wait.params.wait_on}"
                raise JobFailed("STORE_CHANGED", detail)
            seen = Seen(catalog.nodes, confirmed_upto(conn, catalog), wait.now)
    except JobWaiting as away:
        _away(wait, away)
    return _judged(wait, seen)


@contextmanager
def _look_at(wait: _Wait) -> Iterator[None]:
    """Take a turn at the node.

    Raises: JobWaiting: another wait of this process looks at it, and has no answer; JobStopped.
    """
    try:
        with LOOKS.at(wait.where.id, clock_s=wait.context.clock.boottime_s):
            yield
    except NodeHangs as hangs:
        raise signal_of(wait.context, TargetUnreachable(str(hangs))) from hangs


def prove_wait_silent(_context: JobContext) -> None:
    """A wait only reads."""


def _begin(context: JobContext) -> _Wait:
    params = WaitParams.model_validate(context.job.params)

    def read(db: Session) -> _Wait:
        job = get_job(db, context.job.id)
        assert job.store is not None, "a wait has a store"
        now = context.database.now(db)
        stores = [get_store(db, name) for name in (job.store, params.wait_on_store)]
        noted = db.get(JobCheckpoint, (job.id, CHECKPOINT))
        return _Wait(
            context=context,
            params=params,
            where=stores[1],
            resting=next((store for store in stores if is_suspended(store, now=now)), None),
            created_at=job.created_at,
            began_at=now,
            began_s=context.clock.boottime_s(),
            noted=Noted() if noted is None else Noted.model_validate(noted.value),
            places=count_places(db),
        )

    try:
        return context.write(read)
    except ServiceError as error:  # the store of the node that was to be asked is not registered any more
        if error.retryable:
            raise
        raise JobFailed(error.code, error.detail) from error


def _rest(wait: _Wait, store: Store) -> NoReturn:
    """Wait for the store to be resumed, to the deadline at most."""
    if wait.is_late:
        raise _timeout(wait, wait.noted.told, because=f"store {store.id} was suspended")
    waiting = suspended_wait(store.id, now=wait.now, until=store.suspended_until)
    assert waiting.not_before is not None, "it looks again by itself"
    waiting.not_before = wait.not_after_deadline(waiting.not_before)
    raise waiting


def _away(wait: _Wait, away: JobWaiting) -> NoReturn:
    """Note that the node cannot be asked now, and try again."""
    tries = wait.noted.away_tries
    told = wait.noted.told.model_copy(update={"problem": f"{away.code}: {away.detail}"})
    if wait.is_late:
        raise _timeout(wait, told, because=f"node {wait.params.wait_on} could not be asked")
    _note(wait, told, away_tries=min(tries + 1, AWAY_TRIES_COUNTED_MAX))
    pause = timedelta(seconds=min(AWAY_PAUSE_FIRST_S * 2**tries, AWAY_PAUSE_MAX_S))
    waiting_on = [WaitingOn(kind=away.code, ref=wait.where.id, until=wait.deadline)]
    not_before = wait.not_after_deadline(wait.now + max(pause, wait.turn))
    raise JobWaiting(waiting_on, not_before=not_before, detail=away.detail) from away


def _judged(wait: _Wait, seen: Seen) -> Mapping[str, Any]:
    """The result, or the end, or the next look."""
    found = look(awaited_of(wait.params), seen.nodes, seen.confirmed)
    told = told_of(found, looked_at=seen.at)
    pace_s = pause_s((wait.now - wait.created_at).total_seconds())
    ends = found.impossible is not None or found.is_satisfied or wait.is_late
    another_looks = tell_others(wait.context, wait.params, seen, pace_s=pace_s, ends=ends)
    if found.impossible is not None:
        raise JobFailed(found.impossible, _VAIN[found.impossible], result=_result(wait, told, found))
    if found.is_satisfied:
        return _result(wait, told, found)
    if wait.is_late:
        raise _timeout(wait, told, found=found)
    told_at = _note(wait, told, away_tries=0)
    pause = max(timedelta(seconds=pace_s), wait.turn)
    next_words = max(told_at + timedelta(seconds=TELL_EVERY_S), wait.now + wait.turn)
    own = min(wait.now + pause, next_words)
    not_before = wait.not_after_deadline(told_at + REST if another_looks else own)
    raise JobWaiting(waiting_on_of(told, deadline=wait.deadline), not_before=not_before)


def _note(wait: _Wait, told: WaitTold, *, away_tries: int) -> datetime:
    """Tell who is outstanding if that is due, remember it, and return when it was told last."""
    before, now = wait.noted.told_at, wait.now
    due = before is None or now >= before + timedelta(seconds=TELL_EVERY_S)
    told_at = now if due or before is None else before
    if due:
        wait.context.note(EVENT_OUTSTANDING, told.model_dump(mode="json"))
    if due or away_tries != wait.noted.away_tries or wait.context.job.crash_count:
        noted = Noted(told=told, told_at=told_at, away_tries=away_tries)
        # A look is progress: crashes of a service in a long time are no crash loop of the wait.
        has_crashed = wait.context.job.crash_count > 0
        wait.context.save_checkpoint(CHECKPOINT, noted.model_dump(mode="json"), advanced=has_crashed)
    return told_at


def _timeout(wait: _Wait, told: WaitTold, *, found: Look | None = None, because: str = "") -> JobFailed:
    parts = [f"waited {format_duration(wait.params.timeout)} in vain"] + ([because] if because else [])
    if told.outstanding:
        names = ", ".join(_said(each) for each in told.outstanding[:NAMED_MAX])
        more = f", and {told.outstanding_total - NAMED_MAX} more" * (told.outstanding_total > NAMED_MAX)
        parts.append(f"outstanding: {names}{more}")
    return JobFailed("WAIT_TIMEOUT", "; ".join(parts), retryable=True, result=_result(wait, told, found))


def _said(each: OutstandingRead) -> str:
    reached = "never confirmed anything" if each.behind is None else f"only at {each.confirmed_seqno}"
    return f"{named(each)} {reached}"


def _result(wait: _Wait, told: WaitTold, found: Look | None) -> dict[str, object]:
    result = WaitResult(
        awaited=wait.params.awaited,
        wait_on=wait.params.wait_on,
        is_satisfied=found is not None and found.is_satisfied,
        origins_gone=[] if found is None else list(found.origins_gone),
        pairs=told.pairs,
        outstanding=told.outstanding,
        outstanding_total=told.outstanding_total,
        looked_at=told.looked_at,
        deadline=wait.deadline,
    )
    return result.model_dump(mode="json")
