"""The frame of a sweep: check, claim, limits, archive, units, end. A kind is a value of what differs.

Rules:
- nothing is removed before the target is claimed, and before the plan is held against the store's limits;
- a refusal that a client would have got at submission fails the job, with the same code; metadata that are
  away do not: the attempt ends, and another one goes on;
- a job goes on only at the target for which it was submitted;
- what was removed is told by the target's ledger where there is one, else by what the job has noted.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from app.archives.housekeeping import trim_old_ledgers
from app.errors import MetadataBusy, MetadataUnavailable, ServiceError
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import Claimed, claim, controlled, counts_by_ledger
from app.jobs.running.suspension import awake_store
from app.stores.rows import Store
from app.sweeps.allowance import Limit
from app.sweeps.archive import end_archive, open_archive
from app.sweeps.counts import Counts, Tally, ledger_counts, noted_counts
from app.sweeps.settling import settle
from spark.targets.connection import Connection


class SweepParams(Protocol):
    """The snapshot of a job that sweeps, as far as its frame reads it."""

    @property
    def target(self) -> dict[str, Any]:
        """The store's target as it was."""

    @property
    def overlap(self) -> str:
        """REFUSE, or QUEUE behind the job that writes there."""

    @property
    def archive(self) -> object:
        """Whether what goes is kept."""


P = TypeVar("P", bound=SweepParams)
M = TypeVar("M", bound=BaseModel)


@dataclass(slots=True)
class Attempt(Generic[P]):
    """What one attempt carries from step to step.

    Attributes:
        claimed: None before the claim.
        archive: where what goes is kept; None: nowhere, or not opened yet.
        tally: what the units of this attempt did, of a course that notes no windows.
    """

    context: JobContext
    conn: Connection
    store: Store
    params: P
    claimed: Claimed | None = field(default=None, kw_only=True)
    archive: Path | None = field(default=None, kw_only=True)
    tally: Tally = field(default_factory=Tally, kw_only=True)

    @property
    def claim(self) -> Claimed:
        """The target that it may write to."""
        assert self.claimed is not None, "nothing is removed without a claim"
        return self.claimed


A = TypeVar("A", bound=Attempt[Any])


def nothing(_attempt: Attempt[Any]) -> None:
    """A kind that has nothing to do here."""


def nothing_held(_attempt: Attempt[Any]) -> AbstractContextManager[object]:
    """A kind that holds nothing while its units run."""
    return nullcontext()


def wants_archive(attempt: Attempt[Any]) -> bool:
    """Whether the client wants what goes to be kept."""
    return bool(attempt.params.archive)


def claim_fenced(attempt: Attempt[Any], resource: str) -> Claimed:
    """Each unit looks at the fence of the resource, and leaves its row in the ledger."""
    queue = attempt.params.overlap == "QUEUE"
    return claim(attempt.context, attempt.conn, resource=resource, queue=queue)


def claim_and_trim(context: JobContext, conn: Connection, *, resource: str) -> Claimed:
    """Claim for a job of one fenced unit, which waits for its turn; old rows of the ledger are forgotten.

    Raises: JobSignal.
    """
    claimed = claim(context, conn, resource=resource, queue=True)
    if claimed.has_ledger:
        trim_old_ledgers(context, conn)
    return claimed


def claim_unfenced(attempt: Attempt[Any], resource: str) -> Claimed:
    """Of a kind whose units are told from late ones, and counted, by rows of their own at the target."""
    queue = attempt.params.overlap == "QUEUE"
    return claim(attempt.context, attempt.conn, resource=resource, queue=queue, is_fenced=False)


def kept_and_counted(attempt: Attempt[Any], done: Counts) -> dict[str, Any]:
    """Close the archive; what clients see of it, of counts and of units.

    Raises: JobWaiting: its manifest cannot be written now.
    """
    return {
        "counts": done.word,
        "archive": end_archive(attempt.context, attempt.conn, is_exact=done.is_exact),
        "units": done.units,
        "longest_hold_ms": round(attempt.tally.longest_s * 1000),
    }


def nothing_kept(_attempt: Attempt[Any], _done: Counts) -> dict[str, Any]:
    """A kind without an archive, whose target keeps its counts."""
    return {}


def counts_of(attempt: Attempt[Any]) -> Counts:
    """What all attempts have removed so far."""
    if attempt.claim.has_ledger:
        return ledger_counts(attempt.context, attempt.conn)
    return noted_counts(attempt.context)


def bounded(unit: Any, rows: int) -> Any:
    """A unit that may remove so many rows."""
    return replace(unit, most=rows)


def limit_of(
    attempt: Attempt[Any],
    most: int,
    *,
    bound: Callable[[Any, int], Any],
    gone: Callable[[Mapping[str, int]], int] = lambda rows: sum(rows.values()),
) -> Limit:
    """What rows that come after the count could add to it; see app.sweeps.allowance.

    Args:
        most: rows that all attempts together may remove.
        bound: a unit with the most rows that it may remove.
        gone: from rows by step to those that count.
    """

    def removed(rows: Mapping[str, int]) -> int:
        if attempt.claim.has_ledger and counts_by_ledger(attempt.context):
            return gone(ledger_counts(attempt.context, attempt.conn).rows)
        return gone(rows)

    return Limit(most, removed, bound=bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeping(Generic[A]):
    """A kind of sweep.

    Args:
        resource: what it claims; the name of claim and fence.
        claim: takes the resource.
        claimed: done when the claim is there, before anything is counted.
        check: holds the plan against the store's limits and against a reviewed plan; raises JobFailed.
        held: what is held from before the archive is opened until the job's end.
        archives: whether an archive is opened before the units.
        sweep: the units; returns when all are done.
        counts: what all attempts have removed.
        ends: closes the archive; what the result says of archive, counts and units.
        tell: what it says beside that; may say these otherwise.
    """

    resource: Callable[[A], str]
    check: Callable[[A], None]
    sweep: Callable[[A], None]
    tell: Callable[[A, Counts], Mapping[str, Any]]
    claim: Callable[[A, str], Claimed] = claim_fenced
    claimed: Callable[[A], None] = nothing
    held: Callable[[A], AbstractContextManager[object]] = nothing_held
    archives: Callable[[A], bool] = wants_archive
    counts: Callable[[A], Counts] = counts_of
    ends: Callable[[A, Counts], Mapping[str, Any]] = kept_and_counted


@contextmanager
def refusals_fail() -> Iterator[None]:
    """Turn a refusal that a client would have got at submission into the job's failure.

    Raises: JobFailed; MetadataUnavailable, MetadataBusy: as they come.
    """
    try:
        yield
    except (MetadataUnavailable, MetadataBusy):
        raise
    except ServiceError as error:
        raise JobFailed(error.code, error.detail) from error


@contextmanager
def asked(
    context: JobContext, model: type[M], *, target_fields: Callable[[Store], dict[str, Any]]
) -> Iterator[tuple[Connection, Store, M]]:
    """The control connection of a job, its store and its snapshot.

    Args:
        target_fields: what tells one target of a store from another, as the snapshot has it.
    Raises: JobSignal: the store rests, or names another target by now; JobFailed: a refusal.
    """
    store = awake_store(context)
    params = model.model_validate(context.job.params)
    if context.job.params["target"] != target_fields(store):  # a retry of a job from before a change
        raise JobFailed("STORE_CHANGED", "the store names another target than when this was submitted")
    with refusals_fail(), controlled(context, store) as conn:
        yield conn, store, params


def run_sweep(kind: Sweeping[A], attempt: A) -> dict[str, Any]:
    """Sweep, and return the result that clients see.

    Raises: JobSignal.
    """
    context, conn = attempt.context, attempt.conn
    attempt.claimed = kind.claim(attempt, kind.resource(attempt))
    kind.claimed(attempt)
    if attempt.claim.has_ledger:
        trim_old_ledgers(context, conn)
    kind.check(attempt)
    with kind.held(attempt):
        if kind.archives(attempt):
            attempt.archive = open_archive(context, resource=attempt.claim.resource)
        kind.sweep(attempt)
        return _result(kind, attempt)


def _result(kind: Sweeping[A], attempt: A) -> dict[str, Any]:
    done = kind.counts(attempt)
    told = kind.tell(attempt, done)
    result = {**kind.ends(attempt, done), **told}
    attempt.context.write(lambda db: settle(attempt.context, db, result, {}))
    return result


def beside_plan(plan_id: str | None, planned: Mapping[str, int] | None, removed: int) -> dict[str, Any]:
    """What was planned, beside what has gone; empty: no plan is executed.

    Args:
        planned: rows by table.
    """
    if planned is None:
        return {}
    return {
        "plan_id": plan_id,
        "planned": dict(planned),
        "fewer_than_planned": sum(planned.values()) - removed,
    }
