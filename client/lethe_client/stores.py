"""Stores: register targets, look at them, change them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from lethe_client import pages
from lethe_client.backlogs import Backlog
from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.results import CheckReport, Recovery, Store
from lethe_client.transport import Answer, Call, Transport

# A check connects, with timeouts of its own for each step.
CHECK_TIMEOUT_S: Final = 120.0


def _store(answer: Answer) -> Store:
    return replace(decode(Store, answer.body), etag=answer.etag)


class Stores:
    """`/v1/stores`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        store_id: str,
        url: str,
        *,
        kind: str = "SYMMETRICDS",
        password: str | None = None,
        schema: str | None = None,
        table_prefix: str | None = None,
        time_zone: str | None = None,
        labels: Mapping[str, str] | None = None,
        runs_on: Sequence[str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
        rid: int | None = None,
        generation: str | None = None,
        cluster: str | None = None,
        idempotency_key: str | None = None,
    ) -> Store:
        """Register a target; what is None is left to the service's default.

        Args:
            url: SQLAlchemy form, without a password; for kind JE the path of the environment's directory.
            environment: what only its kind has: mode, backups and so on of JE; bind_dn and suffix of DS389.
            password: `secret:NAME`, of a secret that is registered for this store and its host.
            rid, generation: of kind REPLICA: its id, and what it begins with where it is empty.
            cluster: of kind SLONY: the cluster's name.
            limits: max_rows, max_fraction, max_parallel_jobs.
        """
        optional: dict[str, Any] = {
            "password": password,
            "schema": schema,
            "table_prefix": table_prefix,
            "time_zone": time_zone,
            "labels": labels,
            "runs_on": runs_on,
            "parameters": parameters,
            "limits": limits,
            "rid": rid,
            "generation": generation,
            "cluster": cluster,
        }
        optional |= environment or {}
        body: dict[str, Any] = {"id": store_id, "kind": kind, "path" if kind == "JE" else "url": url}
        body.update({name: value for name, value in optional.items() if value is not None})
        path = collection("stores")
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=idempotency_key)
        return _store(self._transport.request(call))

    def get(self, store_id: str) -> Store:
        path = resource("stores", store_id)
        return _store(self._transport.request(Call(method="GET", path=path, repeatable=True)))

    def list(self) -> Iterator[Store]:
        return pages.items(self._transport, collection("stores"), Store)

    def update(self, store: Store, changes: Mapping[str, Any]) -> Store:
        """Change the store as it was read.

        Raises: PreconditionFailed: somebody changed it since.
        """
        headers = {"If-Match": self._etag(store)}
        call = Call(method="PATCH", path=resource("stores", store.id), json=dict(changes), headers=headers)
        return _store(self._transport.request(call))

    def delete(self, store: Store, *, forget_extinctions: bool = False) -> None:
        """Forget the registration as it was read; the target is not touched.

        Args:
            forget_extinctions: of an environment, by an admin: its extinctions go too, which are kept in the
                service alone; their keys count as alive from then on.
        Raises: PreconditionFailed: somebody changed it since. Conflict: EXTINCTIONS_KEPT.
        """
        call = Call(
            method="DELETE",
            path=resource("stores", store.id),
            params={"forget_extinctions": True} if forget_extinctions else {},
            headers={"If-Match": self._etag(store)},
        )
        self._transport.request(call)

    def check(self, store_id: str) -> CheckReport:
        """Connect and report what is there and what Lethe may do; changes nothing."""
        path = resource("stores", store_id, verb="check")
        call = Call(method="POST", path=path, repeatable=True, timeout_s=CHECK_TIMEOUT_S)
        return decode(CheckReport, self._transport.request(call).body)

    def backlog(
        self,
        store_id: str,
        *,
        node: str | None = None,
        channel: str | None = None,
        since: datetime | None = None,
    ) -> Backlog:
        """Tell what waits to be delivered by SymmetricDS, and whether it grows; no target is asked.

        Args:
            since: from when on looks are listed; None: those of the last day.
        """
        asked = {"node": node, "channel": channel, "since": since.isoformat() if since else None}
        params = {name: value for name, value in asked.items() if value is not None}
        path = resource("stores", store_id, "backlog")
        call = Call(method="GET", path=path, params=params, repeatable=True)
        return decode(Backlog, self._transport.request(call).body)

    def suspend(
        self,
        store_id: str,
        *,
        reason: str,
        duration: str | None = None,
        idempotency_key: str | None = None,
    ) -> Store:
        """Let nothing write to the store, for an ISO 8601 duration or until resume."""
        body = {"reason": reason} if duration is None else {"reason": reason, "duration": duration}
        return _store(self._act(store_id, "suspend", body, key=idempotency_key))

    def resume(self, store_id: str, *, idempotency_key: str | None = None) -> Store:
        return _store(self._act(store_id, "resume", {}, key=idempotency_key))

    def recover(self, store_id: str, *, idempotency_key: str | None = None) -> Recovery:
        """Raise our epoch above the target's, after the metadata was restored from a copy (EPOCH_AHEAD)."""
        return decode(Recovery, self._act(store_id, "recover", {}, key=idempotency_key).body)

    def _act(self, store_id: str, verb: str, body: Mapping[str, Any], *, key: str | None) -> Answer:
        path = resource("stores", store_id, verb=verb)
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=key)
        return self._transport.request(call)

    def _etag(self, store: Store) -> str:
        """The ETag that came with the store; one out of a list has none and is read again, compared first."""
        if store.etag:
            return store.etag
        current = self.get(store.id)
        return current.etag if current == store else '"changed-since-it-was-listed"'
