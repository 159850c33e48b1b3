"""Replication sessions: bring a consumer up to date, look at what was sent, compare both sides."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.jobs import job_of
from lethe_client.literals import SessionOutcome, SessionState
from lethe_client.paths import resource
from lethe_client.replication import Anchor
from lethe_client.results import Job, Result
from lethe_client.transport import Call, Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What to bring; None leaves a choice to the agreement.

    `mode` is INCREMENTAL or TOTAL, `strategy` WINDOW or CLASSIC, `engine` AUTO, INLINE or SPARK;
    `max_duration` is ISO 8601; `discard_consumer_changes` is an admin's word, for TOTAL.
    """

    mode: str = "INCREMENTAL"
    strategy: str | None = None
    max_changes: int | None = None
    max_duration: str | None = None
    discard_consumer_changes: bool = False
    engine: str | None = None
    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        """Write the request's body, without what was not said."""
        throttle = {"rows_per_s": self.rows_per_s, "bytes_per_s": self.bytes_per_s}
        body: dict[str, Any] = {
            "mode": self.mode,
            "strategy": self.strategy,
            "max_changes": self.max_changes,
            "max_duration": self.max_duration,
            "discard_consumer_changes": self.discard_consumer_changes or None,
            "engine": self.engine,
            "throttle": {name: value for name, value in throttle.items() if value is not None} or None,
            "reason": self.reason,
        }
        return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class SessionProblem(Result):
    """What ended a session, or last held it up; `rids` are those that it is about."""

    code: str
    detail: str = ""
    rids: tuple[int, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReplicationSession(Result):
    """One session; `counters` are by RID.

    `outcome` is UP_TO_DATE, YIELDED, NEEDS_TOTAL, HALTED, DIVERGED, UNPROVEN, FAILED or ABORTED.
    """

    id: str
    store: str
    agreement_id: str
    job_id: str
    mode: str
    strategy: str
    engine: str
    state: SessionState
    outcome: SessionOutcome | None = None
    epoch: int = 0
    max_changes: int | None = None
    max_duration: timedelta | None = None
    supplier: Mapping[str, Any] = field(default_factory=dict)
    consumer: Mapping[str, Any] = field(default_factory=dict)
    decision: Mapping[str, Any] = field(default_factory=dict)
    windows: Mapping[str, Any] = field(default_factory=dict)
    anchors: tuple[Anchor, ...] = ()
    counters: Mapping[str, Any] = field(default_factory=dict)
    total: Mapping[str, Any] = field(default_factory=dict)
    windows_done: int = 0
    rows_read: int = 0
    batches_sent: int = 0
    bytes_sent: int = 0
    problem: SessionProblem | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    updated_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison(Result):
    """What a session would decide now; `missing` counts changes by RID."""

    outcome: str
    reason: str | None = None
    need: tuple[int, ...] = ()
    blocked_rids: tuple[int, ...] = ()
    anchor: Anchor | None = None
    windows: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, Any] = field(default_factory=dict)
    missing_total: int = 0
    consumer_ahead: Mapping[str, Any] = field(default_factory=dict)
    diverged: tuple[int, ...] = ()
    unproven: tuple[int, ...] = ()
    supplier: Mapping[str, Any] = field(default_factory=dict)
    consumer: Mapping[str, Any] = field(default_factory=dict)


class ReplicationSessions:
    """`/v1/stores/{store}/replication-sessions`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        store_id: str,
        agreement_id: str,
        request: SessionRequest | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Job:
        """Start a session; the answer is its job, whose subject is the session.

        Raises: Conflict: a session of this agreement is under way; `.document["job_id"]` names its job.
        """
        asked = (request or SessionRequest()).document()
        call = Call(
            method="POST",
            path=_collection(store_id),
            json={"agreement_id": agreement_id} | asked,
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(self._transport.request(call))

    def list(self, store_id: str, *, agreement_id: str | None = None) -> Iterator[ReplicationSession]:
        """Yield the sessions of a store as supplier, newest first."""
        params = {"agreement_id": agreement_id}
        return pages.items(self._transport, _collection(store_id), ReplicationSession, params=params)

    def get(self, store_id: str, session_id: str) -> ReplicationSession:
        """Look at one."""
        path = resource("stores", store_id, "replication-sessions", session_id)
        return decode(
            ReplicationSession,
            self._transport.request(Call(method="GET", path=path, repeatable=True)).body,
        )

    def compare(self, store_id: str, agreement_id: str, *, strategy: str | None = None) -> Comparison:
        """Ask what a session would decide now; nothing is sent."""
        body = {"agreement_id": agreement_id} | ({} if strategy is None else {"strategy": strategy})
        path = f"{_collection(store_id)}:compare"
        call = Call(method="POST", path=path, json=body, repeatable=True)
        return decode(Comparison, self._transport.request(call).body)


def _collection(store_id: str) -> str:
    return resource("stores", store_id, "replication-sessions")
