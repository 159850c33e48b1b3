"""The task of a replication session: acquire, decide, send windows, release; resumable at every step.

Rules:
- what this replica is about to show is noted in the metadata before a peer sees it: a target that is put back
  later is known by it;
- an epoch is noted under the job's token before anything is sent in it: an attempt that has lost its lease
  sends nothing;
- what has to be sent is decided by the consumer's own RUV, at every acquire and after every window; nothing
  that is remembered here can make a change be left out;
- the lease is given back, or noted as perhaps still held, before the job waits, rests or ends.

Source: design.md, Replication; facts/replication-session, sections 5 to 7; facts/replication-decision-table,
section 6.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.errors import ServiceError
from app.jobs.engines.choice import Engines
from app.jobs.errors import JobFailed, JobStopped, JobWaiting, LeaseLost
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import read_store_of
from app.jobs.running.suspension import require_awake
from app.jobs.writing import EVENT_WARNING
from app.replication.agreements.service import address_of
from app.replication.agreements.sessions.models import SessionParams
from app.replication.agreements.submitted import agreement_as_submitted
from app.replication.peer.answers import PeerError, PeerRefused, PeerTooSlow
from app.replication.peer.client import PeerClient
from app.replication.rows import SessionOutcome
from app.replication.supplier.ground import Ground
from app.replication.supplier.record import FAILED_OUTCOMES, Record, SessionProblem
from app.replication.supplier.signals import (
    PREV_GAP,
    REPLICA_BUSY,
    failed_by_peer,
    is_reacquired,
    is_waited_for,
    supplying_replica,
    waiting_for_peer,
)
from app.replication.supplier.work import Again, NeedsTotal, Supply, foreign
from app.stores.rows import Store
from spark.replication.session_errors import HistoryDiverged
from spark.replication.supplier.decide import Reason

QUICK_TRIES_MAX: Final = 3
QUICK_WAIT_S: Final = 0.5
PREV_GAPS_MAX: Final = 3
ANSWER_GRACE_S: Final = 1.0
CHECKPOINT_FAILURES: Final = "failures"


def run_session(context: JobContext, *, engines: Engines) -> Mapping[str, Any]:
    """Go on with a session, and return the result that clients see.

    Raises: JobSignal.
    """
    store = read_store_of(context)
    params = SessionParams.model_validate(context.job.params)
    record = Record.of(context, store.id, params)
    if record.is_ended:  # by an attempt that died before its job's end was written
        return _again(record)
    require_awake(context, store)
    record.begin()
    try:
        return _attempt(context, store, params, record, engines)
    except JobFailed as failed:
        if not record.is_ended:
            is_parted = failed.code == HistoryDiverged.code
            outcome = SessionOutcome.DIVERGED if is_parted else SessionOutcome.FAILED
            record.end(outcome, SessionProblem(failed.code, failed.detail))
        failed.result = failed.result or record.result()
        raise


def _again(record: Record) -> Mapping[str, Any]:
    """The end of a session that was written already."""
    problem = record.row.problem or {}
    if record.row.outcome in FAILED_OUTCOMES:
        raise JobFailed(problem["code"], problem["detail"], result=record.result())
    return record.result()


def _attempt(
    context: JobContext, store: Store, params: SessionParams, record: Record, engines: Engines
) -> Mapping[str, Any]:
    agreement = agreement_as_submitted(
        context, store, params.agreement_id, consumer=params.consumer, target=params.target
    )
    with supplying_replica(context, store) as conn:
        try:
            address = address_of(agreement, context.settings, context.database)
            client = PeerClient(address, connections_max=params.in_flight + 1)
        except (ServiceError, PeerError) as error:
            raise JobFailed(error.code, error.detail) from error
        supply: Supply | None = None
        with client:
            forget = context.on_cancel(_Cut(context, client))
            try:
                ground = Ground(context, store, agreement, params, record, conn, client, engines)
                ground.prepare()
                supply = Supply(ground)
                return _supplied(supply)
            except LeaseLost:  # whoever has the job now has, or takes, an epoch of its own
                raise
            except (JobStopped, JobWaiting, JobFailed):
                if supply is not None:
                    supply.rest()
                raise
            finally:
                forget()


class _Cut:
    """Ends requests that are not answered soon after a stop; the first call only begins to count.

    A batch is answered within moments as a rule, and then it is known what it did.
    """

    def __init__(self, context: JobContext, client: PeerClient) -> None:
        self._context = context
        self._client = client
        self._asked_at_s: float | None = None

    def __call__(self) -> None:
        now_s = self._context.clock.boottime_s()
        if self._asked_at_s is None:
            self._asked_at_s = now_s
        elif now_s - self._asked_at_s >= ANSWER_GRACE_S:
            self._client.cut()


def _supplied(supply: Supply) -> Mapping[str, Any]:
    """Acquire and send, again and again where that helps, until the session ends or has to wait."""
    context, record = supply.context, supply.record
    tries, prev_gaps = 0, 0
    while True:
        acknowledged = record.acknowledged
        try:
            outcome = supply.once()
            return _ended(supply, outcome)
        except Again:
            continue
        except NeedsTotal as found:
            raise _needs_total(supply, found) from found
        except PeerError as error:
            if isinstance(error, PeerRefused) and error.code == Reason.GENERATION_MISMATCH:
                raise _needs_total(supply, foreign(error)) from error
            if record.acknowledged > acknowledged:
                tries, prev_gaps = 0, 0
                context.save_checkpoint(CHECKPOINT_FAILURES, {"count": 0}, advanced=True)
            tries += 1
            prev_gaps += 1 if error.code == PREV_GAP else 0
            if prev_gaps >= PREV_GAPS_MAX:
                raise _hole(supply, error) from error
            # A peer that trickles has taken its time already: what is waited for is to be seen.
            if is_reacquired(error) and tries <= QUICK_TRIES_MAX and not isinstance(error, PeerTooSlow):
                _rest(context, QUICK_WAIT_S * 2 ** (tries - 1))
                continue
            raise _trouble(supply, error) from error


def _rest(context: JobContext, seconds: float) -> None:
    deadline_s = context.clock.boottime_s() + seconds
    while (left_s := deadline_s - context.clock.boottime_s()) > 0:
        context.check()
        context.sleep(left_s)
    context.check()


def _ended(supply: Supply, outcome: SessionOutcome) -> Mapping[str, Any]:
    record = supply.record
    if outcome is SessionOutcome.UNPROVEN:
        return _unproven(supply)
    if outcome is not SessionOutcome.HALTED:
        return record.end(outcome)
    rids = sorted(supply.halted)
    detail = f"the consumer refused a record of {', '.join(map(str, rids))}: see the dead letters"
    problem = SessionProblem("HALTED", detail, rids=rids)
    result = record.end(outcome, problem)
    supply.context.note(EVENT_WARNING, problem.document())
    return result | {"warnings": [problem.document()]}


def _unproven(supply: Supply) -> Mapping[str, Any]:
    """All that is known to be missing was sent; whether both have one history, nobody can tell yet."""
    rids = sorted(supply.unproven)
    detail = (
        f"the histories of {', '.join(map(str, rids))} cannot be compared: what this replica has of them was"
        " trimmed at the consumer, which is ahead"
    )
    problem = SessionProblem("UNPROVEN_HISTORY", detail, rids=rids)
    result = supply.record.end(SessionOutcome.UNPROVEN, problem)
    supply.context.note(EVENT_WARNING, problem.document())
    return result | {"warnings": [problem.document()]}


def _needs_total(supply: Supply, found: NeedsTotal) -> JobFailed:
    decision = found.decision
    reason = "" if decision.reason is None else decision.reason.value
    problem = SessionProblem("NEEDS_TOTAL", found.detail, rids=decision.blocked_rids, reason=reason)
    result = supply.record.end(SessionOutcome.NEEDS_TOTAL, problem)
    return JobFailed("NEEDS_TOTAL", found.detail, result=result)


def _hole(supply: Supply, error: PeerError) -> JobFailed:
    """The consumer misses a record that this changelog has not either: no session can bring it."""
    facts = error.facts if isinstance(error, PeerRefused) else {}
    rid = facts.get("rid")
    rids = [rid] if isinstance(rid, int) else []
    detail = f"a record is missing in this changelog: {error.detail}"
    problem = SessionProblem("NEEDS_TOTAL", detail, rids=rids, reason=PREV_GAP)
    result = supply.record.end(SessionOutcome.NEEDS_TOTAL, problem)
    return JobFailed("NEEDS_TOTAL", detail, result=result)


def _trouble(supply: Supply, error: PeerError) -> JobFailed | JobWaiting:
    """What a trouble with the consumer means now: waiting with a growing pause, or the end."""
    if not is_waited_for(error):
        return failed_by_peer(error)
    context = supply.context
    known = context.checkpoint(CHECKPOINT_FAILURES) or {"count": 0}
    failures = known["count"] if error.code == REPLICA_BUSY else known["count"] + 1
    context.save_checkpoint(CHECKPOINT_FAILURES, {"count": failures})
    supply.record.held_up(SessionProblem(error.code, error.detail))
    return waiting_for_peer(
        context, error, consumer=supply.ground.agreement.consumer_store, failures=failures
    )
