"""Slony-I: events, confirmations, waiting, cleanup, log switch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.errors import PlanFailed, ProblemError, TransportFailed
from lethe_client.jobs import Jobs, job_of
from lethe_client.paths import resource
from lethe_client.results import Job
from lethe_client.slony_results import (
    CleanupPlan,
    ConfirmationMatrix,
    ConfirmOutcome,
    Event,
    LogStatus,
    Precondition,
    SlonyHealth,
)
from lethe_client.transport import Call, Transport

ALL: Final = "ALL"
PLAN_WAIT_S: Final = 10
PLAN_MARGIN_S: Final = 20.0
# The other nodes of a cluster are asked one connection each, with timeouts of their own.
CLUSTER_TIMEOUT_S: Final = 120.0
READY_POLL_S: Final = 10.0
"""As often as slonik says what it waits for."""
READY_PAUSE_S: Final = 1.0
"""A service (or a proxy) that answers at once must not make us spin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWait:
    """What to wait for, in slonik's words; None leaves a choice to the service.

    `origin` and `confirmed` are node ids or "ALL"; `timeout` is ISO 8601, PT0S waits for ever; `seqno` needs
    one origin.
    """

    origin: int | str = ALL
    confirmed: int | str = ALL
    wait_on: int | None = None
    timeout: str | None = None
    seqno: int | None = None
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        """Write the request's body, without what was not said."""
        return _said(
            {
                "origin": self.origin,
                "confirmed": self.confirmed,
                "wait_on": self.wait_on,
                "timeout": self.timeout,
                "seqno": self.seqno,
                "reason": self.reason,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupRequest:
    """What to clean; None leaves a choice to the service.

    `interval` (ISO 8601) and `confirmed_before` exclude each other; `via` is NATIVE or BUILTIN, `rule`
    PROGRAM or MANUAL, `log_switch` AS_PROGRAM or NONE; `archive` keeps the removed events as Parquet;
    `max_drift`, rows or a share below 1, goes with `plan_id`.
    """

    interval: str | None = None
    confirmed_before: datetime | None = None
    via: str | None = None
    rule: str | None = None
    log_switch: str | None = None
    archive: bool = False
    max_rows_in_tx: int | None = None
    engine: str | None = None
    rows_per_s: float | None = None
    overlap: str | None = None
    plan_id: str | None = None
    max_drift: float | None = None
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        """Write the request's body, without what was not said."""
        return _said(
            {
                "interval": self.interval,
                "confirmed_before": self.confirmed_before.isoformat() if self.confirmed_before else None,
                "via": self.via,
                "rule": self.rule,
                "log_switch": self.log_switch,
                "archive": {"format": "PARQUET"} if self.archive else None,
                "max_rows_in_tx": self.max_rows_in_tx,
                "engine": self.engine,
                "throttle": None if self.rows_per_s is None else {"rows_per_s": self.rows_per_s},
                "overlap": self.overlap,
                "plan_id": self.plan_id,
                "max_drift": self.max_drift,
                "reason": self.reason,
            }
        )


class Slony:
    """What can be asked of a store of kind SLONY."""

    def __init__(self, transport: Transport, jobs: Jobs) -> None:
        self._transport = transport
        self._jobs = jobs

    def events(
        self,
        store_id: str,
        *,
        origins: Sequence[int] = (),
        types: Sequence[str] = (),
        from_seqno: int | None = None,
        upto_seqno: int | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> Iterator[Event]:
        """Yield the events that a node holds, in the order of origin and seqno."""
        params = _said(
            {
                "origin": [*origins] or None,
                "type": [*types] or None,
                "from_seqno": from_seqno,
                "upto_seqno": upto_seqno,
                "created_after": created_after.isoformat() if created_after else None,
                "created_before": created_before.isoformat() if created_before else None,
            }
        )
        return pages.items(self._transport, resource("stores", store_id, "events"), Event, params=params)

    def event(self, store_id: str, origin: int, seqno: int) -> Event:
        """Look at one event, and at who has confirmed it."""
        path = resource("stores", store_id, "events", str(origin), str(seqno))
        return decode(Event, self._transport.request(Call(method="GET", path=path, repeatable=True)).body)

    def sync(self, store_id: str, *, idempotency_key: str | None = None) -> Event:
        """Make a SYNC on a node, by its cluster's own function.

        Raises: Conflict: FUNCTIONS_MISSING.
        """
        path = resource("stores", store_id, "events")
        return decode(Event, self._post(path, {"type": "SYNC"}, idempotency_key))

    def confirmations(self, store_id: str) -> ConfirmationMatrix:
        """How far each node has confirmed the events of each other, as this one knows it."""
        path = resource("stores", store_id, "confirmations")
        body = self._transport.request(Call(method="GET", path=path, repeatable=True)).body
        return decode(ConfirmationMatrix, body)

    def confirm(
        self,
        store_id: str,
        *,
        origin: int,
        receiver: int,
        seqno: int,
        force: bool = False,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> ConfirmOutcome:
        """Say that a receiver has processed an origin's events up to `seqno`.

        Args:
            force: without asking the receiver: an admin's word, with a reason.
        Raises: Conflict: NOT_PROCESSED_BY_RECEIVER, RECEIVER_NOT_ASKED.
        """
        body = {"origin": origin, "receiver": receiver, "seqno": seqno}
        more = _said({"force": force or None, "reason": reason})
        path = resource("stores", store_id, "confirmations")
        return decode(ConfirmOutcome, self._post(path, body | more, idempotency_key))

    def wait(self, store_id: str, request: EventWait, *, idempotency_key: str | None = None) -> Job:
        """Wait for events to be confirmed; the answer is the job that waits."""
        path = resource("stores", store_id, "events", verb="wait")
        return self._job(path, request.document(), idempotency_key)

    def precondition(
        self,
        store_id: str,
        command: str,
        *,
        as_program: bool = False,
        wait_s: int = 0,
        awaited: Sequence[Mapping[str, Any]] = (),
        **nodes: int | None,
    ) -> Precondition:
        """Ask whether a command of slonik may be submitted; nothing is changed.

        Args:
            command: SUBSCRIBE_SET, DROP_NODE, CLONE_PREPARE, CREATE_SET, STORE_NODE, RESUBSCRIBE_NODE,
                MERGE_SET, MOVE_SET, LOCK_SET, FAILOVER or SUBMIT_TO_OTHER_NODE.
            as_program: what slonik's code does, instead of what its manual says.
            wait_s: answer as soon as it may, so many seconds later at most; the service cuts it to a minute.
            awaited: of an earlier answer, to go on with the same wait.
            nodes: provider, receiver, node, origin, event_node, previous_event_node, backup_node; and sets:
                set, add_set.
        """
        said = {"as_program": as_program or None, "awaited": list(awaited) or None}
        call = Call(
            method="POST",
            path=resource("stores", store_id, "events", verb="precondition"),
            json={"command": command} | _said(said | nodes),
            headers={"Prefer": f"wait={wait_s}"} if wait_s else {},
            repeatable=True,
            timeout_s=wait_s + CLUSTER_TIMEOUT_S,
        )
        return decode(Precondition, self._transport.request(call).body)

    def ready(
        self,
        store_id: str,
        command: str,
        *,
        as_program: bool = False,
        timeout_s: float | None = None,
        **nodes: int | None,
    ) -> Iterator[Precondition]:
        """Wait until a command of slonik may be submitted: yield what holds it about every ten seconds.

        The last one is `met`, or the time is over. What it waits for is fixed at the first look, as slonik
        does at its start. Nothing is left of it in the service or at a node when the loop is left.

        Args:
            timeout_s: of all of it; None waits as long as it takes.
            as_program, nodes: as of `precondition`.
        Raises: LetheError: the request is refused; what may pass is told as `problem` and tried again.
        """
        policy = self._transport.retries
        deadline = None if timeout_s is None else policy.monotonic() + timeout_s
        last = Precondition(met=False, command=command, as_program=as_program)
        while not last.met:
            began = policy.monotonic()
            left_s = READY_POLL_S if deadline is None else min(READY_POLL_S, deadline - began)
            asked: dict[str, Any] = {"as_program": as_program, "awaited": last.awaited, **nodes}
            try:
                last = self.precondition(store_id, command, wait_s=max(1, round(left_s)), **asked)
            except (ProblemError, TransportFailed) as error:
                if isinstance(error, ProblemError) and not error.retryable:
                    raise
                last = replace(last, held_by=(), problem=str(error))
            yield last
            if deadline is not None and policy.monotonic() >= deadline:
                return
            if not last.met:
                policy.sleep(max(0.0, READY_PAUSE_S - (policy.monotonic() - began)))

    def cleanup(self, store_id: str, request: CleanupRequest, *, idempotency_key: str | None = None) -> Job:
        """Remove what everybody has confirmed; the answer is the job."""
        path = resource("stores", store_id, "event-cleanups")
        return self._job(path, request.document(), idempotency_key)

    def plan_cleanup(
        self, store_id: str, request: CleanupRequest, *, timeout_s: float | None = None
    ) -> CleanupPlan:
        """Tell what a cleanup would remove; nothing is written to the target.

        Raises: PlanFailed; WaitTimedOut: it is not ready after `timeout_s`.
        """
        wait = max(0, min(PLAN_WAIT_S, int(PLAN_WAIT_S if timeout_s is None else timeout_s)))
        call = Call(
            method="POST",
            path=resource("stores", store_id, "event-cleanups"),
            params={"validate_only": True},
            json=request.document(),
            headers={"Prefer": f"wait={wait}"},
            creates=True,
            timeout_s=wait + PLAN_MARGIN_S,
        )
        answer = self._transport.request(call)
        if answer.status != 202:
            return decode(CleanupPlan, answer.body)
        job = self._jobs.wait(job_of(answer).id, timeout_s=timeout_s)
        if job.state != "SUCCEEDED":
            raise PlanFailed(job)
        return decode(CleanupPlan, job.result)

    def sync_if_older(
        self,
        store_id: str,
        *,
        interval: str | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Make a SYNC of the node where its newest one is older; the answer is the job.

        Args:
            interval: ISO 8601, PT1S to P1D; None: ten minutes.
        """
        body = _said({"interval": interval, "reason": reason})
        return self._job(resource("stores", store_id, "event-syncs"), body, idempotency_key)

    def switch_log(
        self,
        store_id: str,
        *,
        action: str = "FULL",
        timeout: str | None = None,
        overlap: str | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Switch the log tables; the answer is the job.

        Args:
            action: START, FINISH or FULL: start, wait until drained, empty the other one.
            timeout: ISO 8601: how long to wait for drain and lock; PT0S tries once.
        """
        body = _said({"action": action, "timeout": timeout, "overlap": overlap, "reason": reason})
        return self._job(resource("stores", store_id, "log-switches"), body, idempotency_key)

    def log_status(self, store_id: str) -> LogStatus:
        """Look at the two log tables, and at what holds the switch back."""
        path = resource("stores", store_id, "log-switches", "status")
        return decode(LogStatus, self._transport.request(Call(method="GET", path=path, repeatable=True)).body)

    def health(self, store_id: str) -> SlonyHealth:
        """Whether a node is well; one that cannot be asked is UNKNOWN, and no error."""
        path = resource("stores", store_id, "slony-health")
        call = Call(method="GET", path=path, repeatable=True, timeout_s=CLUSTER_TIMEOUT_S)
        return decode(SlonyHealth, self._transport.request(call).body)

    def cluster_health(self, cluster: str) -> SlonyHealth:
        """Whether a cluster is well, by all of its nodes that are registered.

        Raises: NotFound: CLUSTER_NOT_FOUND.
        """
        call = Call(
            method="GET",
            path="/v1/slony-health",
            params={"cluster": cluster},
            repeatable=True,
            timeout_s=CLUSTER_TIMEOUT_S,
        )
        return decode(SlonyHealth, self._transport.request(call).body)

    def _job(self, path: str, body: Mapping[str, Any], key: str | None) -> Job:
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=key)
        return job_of(self._transport.request(call))

    def _post(self, path: str, body: Mapping[str, Any], key: str | None) -> Any:
        call = Call(
            method="POST",
            path=path,
            json=body,
            creates=True,
            idempotency_key=key,
            timeout_s=CLUSTER_TIMEOUT_S,
        )
        return self._transport.request(call).body


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
