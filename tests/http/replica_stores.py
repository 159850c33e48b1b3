"""Stores of kind REPLICA for tests, and the requests of a supplier to them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from spark.formats.changes.batch import ARROW_MEDIA_TYPE, encode_arrow
from spark.formats.csn import Csn

_numbers = itertools.count(1)


@dataclass(frozen=True)
class ConsumerStore:
    """A registered replica, and a supplier's requests to it."""

    http: httpx.Client
    id: str
    path: Path | None

    @property
    def url(self) -> str:
        """Its place in the peer protocol."""
        return f"/v1/replicas/{self.id}"

    def acquire(self, **fields: Any) -> httpx.Response:
        """Ask for the lease."""
        return self.http.post(f"{self.url}/sessions", json=acquire_body(**fields))

    def send(
        self,
        session_id: str,
        body: bytes | pa.RecordBatch,
        *,
        epoch: int,
        seq: int,
        media_type: str = ARROW_MEDIA_TYPE,
    ) -> httpx.Response:
        """Send one batch."""
        content = encode_arrow(body) if isinstance(body, pa.RecordBatch) else body
        return self.http.post(
            f"{self.url}/sessions/{session_id}/batches",
            params={"epoch": epoch, "batch_seq": seq},
            content=content,
            headers={"Content-Type": media_type},
        )

    def release(self, session_id: str, *, epoch: int, complete: bool = False) -> httpx.Response:
        """Give the lease back."""
        params = {"epoch": epoch, "complete": str(complete).lower()}
        return self.http.delete(f"{self.url}/sessions/{session_id}", params=params)

    def complete_total(
        self, session_id: str, *, epoch: int, ruv: Mapping[int, str], generation: str, batch_seq: int = 0
    ) -> httpx.Response:
        """End the copy."""
        body = {"epoch": epoch, "batch_seq": batch_seq, "ruv": shown(ruv), "generation": generation}
        return self.http.post(f"{self.url}/sessions/{session_id}:complete-total", json=body)

    def ruv(self) -> dict[str, Any]:
        """Its vectors."""
        answer = self.http.get(f"{self.url}/ruv")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def make_replica(
    http: httpx.Client, *, rid: int, folder: Path | None = None, url: str | None = None, **fields: Any
) -> ConsumerStore:
    """Register a replica on a new SQLite file in `folder`, or at `url`."""
    name = f"replica-{os.getpid()}-{next(_numbers)}"
    path = None if folder is None else folder / f"{name}.db"
    body = {"id": name, "kind": "REPLICA", "rid": rid, "url": url or f"sqlite:///{path}"} | fields
    answer = http.post("/v1/stores", json=body)
    assert answer.status_code == 201, answer.text
    return ConsumerStore(http=http, id=name, path=path)


def grant_discard(store: Any, *, supplier_rid: int, **fields: Any) -> dict[str, Any]:
    """An admin's word, at the consumer, that a supplier may discard once what only it has."""
    body = {"supplier_rid": supplier_rid, "reason": "a test"} | fields
    answer = store.http.post(f"/v1/stores/{store.id}/discard-grants", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def shown(ruv: Mapping[int, str]) -> dict[str, str]:
    """A vector as JSON has it."""
    return {str(rid): str(text) for rid, text in ruv.items()}


def acquire_body(
    session_id: str,
    *,
    generation: str | None,
    csn_now: Csn,
    mode: str = "INCREMENTAL",
    rid: int = 1,
    ruv: Mapping[int, str] | None = None,
    protocol: int = 1,
    lease: str = "PT60S",
    capabilities: Sequence[str] = ("CHANGE", "KEEPALIVE"),
    **fields: Any,
) -> dict[str, Any]:
    """The body of an acquire."""
    return {
        "protocol": protocol,
        "session_id": session_id,
        "mode": mode,
        "supplier": {
            "store": f"supplier-{rid}",
            "rid": rid,
            "generation": generation,
            "ruv": shown(ruv or {}),
            "csn_now": str(csn_now),
            "capabilities": list(capabilities),
        },
        "lease": lease,
        **fields,
    }
