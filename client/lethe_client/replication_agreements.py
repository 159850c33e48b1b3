"""Agreements: which consumers a replica brings its changes to, and how it stands with them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.literals import AgreementState
from lethe_client.paths import resource
from lethe_client.results import Result
from lethe_client.transport import Answer, Call, Transport


@dataclass(frozen=True, kw_only=True)
class AgreementConsumer(Result):
    """Where the changes go; `rid` is what its last answer told."""

    url: str
    store: str
    ca_file: str | None = None
    rid: int | None = None


@dataclass(frozen=True, kw_only=True)
class UnsentChange(Result):
    csn: str
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class LastUpdate(Result):
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class AgreementStatus(Result):
    """What the consumer has acknowledged, and 389's words for it; `lag_changes` None: it is not known now."""

    lag_changes: int | None = None
    lag: timedelta | None = None
    oldest_unsent: UnsentChange | None = None
    purge_headroom: timedelta | None = None
    needs_total: bool | None = None
    acknowledged: Mapping[str, Any] = field(default_factory=dict)
    changes_sent: str = ""
    last_update: LastUpdate = field(default_factory=LastUpdate)
    last_update_status: str = ""
    last_update_status_json: Mapping[str, Any] = field(default_factory=dict)
    update_in_progress: bool = False
    target_code: str | None = None


@dataclass(frozen=True, kw_only=True)
class Agreement(Result):
    """A consumer of a replica; `status` is None in lists, `etag` is what change and remove want."""

    id: str
    store: str
    state: AgreementState
    consumer: AgreementConsumer
    strategy: str = "WINDOW"
    interval: timedelta | None = None
    max_changes: int | None = None
    max_duration: timedelta | None = None
    batch_rows: int = 0
    batch_bytes: int = 0
    in_flight: int = 0
    keys: tuple[Mapping[str, Any], ...] | None = None
    last_session_id: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    status: AgreementStatus | None = None
    etag: str = field(default="", repr=False, compare=False)


class Agreements:
    """`/v1/stores/{store}/agreements`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        store_id: str,
        *,
        url: str,
        consumer_store: str,
        token: str,
        ca_file: str | None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Agreement:
        """Agree to bring a consumer the changes of a store: an admin's word.

        Args:
            token: `secret:NAME`, registered at the service that supplies for this store and host.
            options: strategy, interval (ISO 8601), max_changes, max_duration, batch_rows, batch_bytes,
                in_flight; keys: which keys are sent, a list of {database, prefix} in base64.
        """
        consumer = {"url": url, "store": consumer_store, "token": token, "ca_file": ca_file}
        body = {"consumer": _said(consumer)} | _said(options)
        call = Call(
            method="POST",
            path=resource("stores", store_id, "agreements"),
            json=body,
            creates=True,
            idempotency_key=idempotency_key,
        )
        return _agreement(self._transport.request(call))

    def list(self, store_id: str) -> Iterator[Agreement]:
        """Yield the agreements of a store, without their status."""
        return pages.items(self._transport, resource("stores", store_id, "agreements"), Agreement)

    def get(self, store_id: str, agreement_id: str) -> Agreement:
        """Look at one, with its status."""
        call = Call(method="GET", path=_path(store_id, agreement_id), repeatable=True)
        return _agreement(self._transport.request(call))

    def change(self, store_id: str, agreement_id: str, *, etag: str, **changes: Any) -> Agreement:
        """Change what an admin chose; None clears what may be empty.

        Raises: PreconditionFailed: it has changed since it was read.
        """
        call = Call(
            method="PATCH",
            path=_path(store_id, agreement_id),
            json=changes,
            headers={"If-Match": etag},
            creates=True,
        )
        return _agreement(self._transport.request(call))

    def remove(self, store_id: str, agreement_id: str, *, etag: str) -> None:
        """Take one away; trimming minds its consumer for 7 days more."""
        path = _path(store_id, agreement_id)
        self._transport.request(Call(method="DELETE", path=path, headers={"If-Match": etag}, creates=True))


def _path(store_id: str, agreement_id: str) -> str:
    return resource("stores", store_id, "agreements", agreement_id)


def _agreement(answer: Answer) -> Agreement:
    return replace(decode(Agreement, answer.body), etag=answer.etag)


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
