"""Extinctions: discard records whose keys will never be used again, and ask which keys are extinct."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.errors import PlanFailed
from lethe_client.extinction_filter import ExtinctionBundle
from lethe_client.feed_records import text64
from lethe_client.jobs import Jobs, job_of
from lethe_client.literals import ExtinctionOrigin, ExtinctionState
from lethe_client.paths import resource
from lethe_client.results import Job, Result
from lethe_client.transport import Call, Transport

PLAN_WAIT_S: Final = 10
PLAN_MARGIN_S: Final = 20.0
KEYS_MAX: Final = 10_000
"""Of one query of statuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtinctionRequest:
    """Records to discard.

    Attributes:
        databases: of a REPLICA store in base64, of a JE store as they are.
        start_key: inclusive; None: from the first key on. end_key: exclusive; None: to the last key.
        filter: see docs/concepts/extinction.md; None: every key of the range.
        confirm_keys_never_reused: the application's word that these keys will never be used again.
        plan_id: discard only if nothing but records of this plan goes; the range must be the plan's.
        max_drift: with `plan_id`: so many of them, or such a share below 1, may be gone by now.
    """

    databases: Sequence[str]
    label: str
    start_key: bytes | None = None
    end_key: bytes | None = None
    filter: Mapping[str, Any] | None = None
    confirm_keys_never_reused: bool = False
    plan_id: str | None = None
    max_drift: float | None = None
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        """Write the request's body, without what was not said."""
        body: dict[str, Any] = {
            "databases": list(self.databases),
            "start_key": None if self.start_key is None else text64(self.start_key),
            "end_key": None if self.end_key is None else text64(self.end_key),
            "filter": None if self.filter is None else dict(self.filter),
            "label": self.label,
            "confirm_keys_never_reused": self.confirm_keys_never_reused,
            "plan_id": self.plan_id,
            "max_drift": self.max_drift,
            "reason": self.reason,
        }
        return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Attestation(Result):
    """An admin's word that the application's own filter is installed."""

    by: str
    at: datetime
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Extinction(Result):
    """An extinction at a store; `active` until its work there is over. Keys stand in base64."""

    id: str
    store: str
    state: ExtinctionState
    active: bool
    origin: ExtinctionOrigin | None = None
    databases: tuple[str, ...] = ()
    start_key: str | None = None
    end_key: str | None = None
    label: str = ""
    csn: str | None = None
    records: int = 0
    bytes: int = 0
    hint: str | None = None
    job_id: str | None = None
    created_at: datetime | None = None
    logged_at: datetime | None = None
    done_at: datetime | None = None
    java_filter: bool = False
    attested: Attestation | None = None


@dataclass(frozen=True, kw_only=True)
class ExtinctionPlan(Result):
    """How much an extinction would reach now; name `plan_id` in one of this range to discard just that."""

    plan_id: str
    store: str
    records: int
    bytes: int
    hint: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class MaybeBecause(Result):
    """Why keys may be extinct."""

    code: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class KeyStatuses(Result):
    """EXTINCT, NOT_EXTINCT or MAYBE_EXTINCT of each key, in their order."""

    statuses: tuple[str, ...]
    version: int
    maybe_because: tuple[MaybeBecause, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LackingPeer(Result):
    """A peer that has not announced that it knows extinctions."""

    role: str
    peer: str
    rid: int | None = None
    heard: bool = False


@dataclass(frozen=True, kw_only=True)
class Availability(Result):
    """Whether extinctions may be used, and who stands in the way."""

    available: bool
    lacking: tuple[LackingPeer, ...] = ()


class Extinctions:
    """`/v1/stores/{store}/extinctions`, and what belongs to them."""

    def __init__(self, transport: Transport, jobs: Jobs) -> None:
        self._transport = transport
        self._jobs = jobs

    def discard(
        self, store_id: str, request: ExtinctionRequest, *, idempotency_key: str | None = None
    ) -> Job:
        """Discard records; committed when it answers. The answer is the job that does the rest.

        Raises: RequestInvalid: CONFIRMATION_MISSING, UNKNOWN_DATABASE, FILTER_REFUSED, START_AFTER_END,
            EXTINCTION_FILTER_MISSING, PLAN_DIFFERS. Conflict: EXTINCTION_NOT_AVAILABLE.
        """
        call = Call(
            method="POST",
            path=resource("stores", store_id, "extinctions"),
            json=request.document(),
            creates=True,
            idempotency_key=idempotency_key,
        )
        return job_of(self._transport.request(call))

    def plan(
        self, store_id: str, request: ExtinctionRequest, *, timeout_s: float | None = None
    ) -> ExtinctionPlan:
        """Count what an extinction would reach; nothing is written.

        Raises: PlanFailed: `.job` says why. WaitTimedOut: not ready in time; its job goes on.
        """
        wait = max(0, min(PLAN_WAIT_S, int(PLAN_WAIT_S if timeout_s is None else timeout_s)))
        answer = self._transport.request(
            Call(
                method="POST",
                path=resource("stores", store_id, "extinctions"),
                params={"validate_only": True},
                json=request.document(),
                headers={"Prefer": f"wait={wait}"},
                creates=True,
                timeout_s=wait + PLAN_MARGIN_S,
            )
        )
        if answer.status != 202:
            return decode(ExtinctionPlan, answer.body)
        job = self._jobs.wait(job_of(answer).id, timeout_s=timeout_s)
        if job.state != "SUCCEEDED":
            raise PlanFailed(job)
        return decode(ExtinctionPlan, job.result)

    def list(self, store_id: str) -> Iterator[Extinction]:
        """Yield a store's extinctions, newest first."""
        return pages.items(self._transport, resource("stores", store_id, "extinctions"), Extinction)

    def get(self, store_id: str, extinction_id: str) -> Extinction:
        """Look at an extinction.

        Raises: NotFound.
        """
        path = resource("stores", store_id, "extinctions", extinction_id)
        return decode(Extinction, self._read(path))

    def attest(
        self, store_id: str, extinction_id: str, *, reason: str, idempotency_key: str | None = None
    ) -> Extinction:
        """Attest that the application's extinction filter is installed and says EXTINCT; for JE stores.

        Raises: NotFound. Conflict: FILTER_NOT_INSTALLED, EXTINCTION_NOT_HOLDING, FILTER_UNREADABLE.
        """
        call = Call(
            method="POST",
            path=f"{resource('stores', store_id, 'extinctions', extinction_id)}:attest",
            json={"statement": "FILTER_INSTALLED", "reason": reason},
            creates=True,
            idempotency_key=idempotency_key,
        )
        return decode(Extinction, self._transport.request(call).body)

    def status(
        self, store_id: str, database: str, keys: Sequence[bytes], *, dups: bool = False
    ) -> KeyStatuses:
        """Judge at most KEYS_MAX keys.

        Args:
            database: of a REPLICA store in base64, of a JE store as it is.
            dups: the database has duplicates; the keys are the primary keys, which are its records' data.
        """
        body = {"database": database, "dups": dups, "keys": [text64(key) for key in keys]}
        path = f"{resource('stores', store_id)}/extinction-status:query"
        answer = self._transport.request(Call(method="POST", path=path, json=body, repeatable=True))
        return decode(KeyStatuses, answer.body)

    def filter(self, store_id: str) -> ExtinctionBundle:
        """The whole filter, to be evaluated here; it is as old as its answer."""
        return ExtinctionBundle.parse(self.filter_document(store_id))

    def filter_document(self, store_id: str) -> Mapping[str, Any]:
        """The whole filter as the service writes it, to be kept or handed on."""
        found: Mapping[str, Any] = self._read(resource("stores", store_id, "extinctions", "filter"))
        return found

    def availability(self, store_id: str) -> Availability:
        """Whether all known peers have announced that they know extinctions."""
        return decode(Availability, self._read(resource("stores", store_id, "extinction-availability")))

    def forget_supplier(
        self, store_id: str, supplier: str, *, reason: str, idempotency_key: str | None = None
    ) -> Availability:
        """Forget a supplier that is gone for good; the availability without it. Of REPLICA stores.

        Args:
            supplier: the `peer` of a SUPPLIER in `Availability.lacking`.
        Raises: NotFound: SUPPLIER_NOT_FOUND. Conflict: PEER_IS_CONSUMER, whose agreement is to be removed.
        """
        call = Call(
            method="POST",
            path=f"{resource('stores', store_id, 'extinction-availability')}:forget",
            json={"supplier": supplier, "reason": reason},
            creates=True,
            idempotency_key=idempotency_key,
        )
        return decode(Availability, self._transport.request(call).body)

    def _read(self, path: str) -> Any:
        return self._transport.request(Call(method="GET", path=path, repeatable=True)).body
