"""Clients that write changes to a REPLICA store, and what they can see of it."""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from spark.formats.changes.batch import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE, encode_arrow, encode_ndjson
from spark.replication.records import local_schema

_numbers = itertools.count(1)


def text64(value: bytes) -> str:
    """Bytes in base64, as bodies have them."""
    return base64.b64encode(value).decode()


def url64(value: bytes) -> str:
    """Bytes in base64url, as paths and queries have them."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def change(key: bytes, value: bytes | None, database: bytes = b"orders") -> dict[str, Any]:
    """One change as JSON."""
    shown = None if value is None else text64(value)
    return {"database": text64(database), "key": text64(key), "value": shown}


def local_batch(changes: Mapping[bytes, bytes | None], database: bytes = b"orders") -> pa.RecordBatch:
    """Changes as columns."""
    columns = {"database": [database] * len(changes), "key": [*changes], "value": [*changes.values()]}
    return pa.RecordBatch.from_pydict(columns, schema=local_schema())


@dataclass(frozen=True)
class WrittenStore:
    """A registered replica and its writers' requests."""

    http: httpx.Client
    id: str
    path: Path | None = None

    @property
    def url(self) -> str:
        """Where its changes go."""
        return f"/v1/stores/{self.id}/changes"

    def put(self, key: bytes, value: bytes | None, *, idempotency: str | None = None) -> httpx.Response:
        """Write one change."""
        return self.post(change(key, value), idempotency=idempotency)

    def post(self, body: Any, *, idempotency: str | None = None) -> httpx.Response:
        """Send a JSON body."""
        return self.http.post(self.url, json=body, headers=_headers(None, idempotency))

    def put_bulk(
        self, changes: Mapping[bytes, bytes | None], *, form: str = "arrow", idempotency: str | None = None
    ) -> httpx.Response:
        """Write many, as an Arrow stream or NDJSON."""
        batch = local_batch(changes)
        content = encode_arrow(batch) if form == "arrow" else encode_ndjson(batch)
        media_type = ARROW_MEDIA_TYPE if form == "arrow" else NDJSON_MEDIA_TYPE
        return self.http.post(self.url, content=content, headers=_headers(media_type, idempotency))

    def entry(self, key: bytes, database: bytes = b"orders", **params: Any) -> httpx.Response:
        """One entry."""
        path = f"/v1/stores/{self.id}/entries/{url64(database)}/{url64(key)}"
        return self.http.get(path, params=params)

    def entries(self, **params: Any) -> dict[bytes, bytes | None]:
        """All entries: key to value, over all pages."""
        return {
            base64.b64decode(item["key"]): _bytes(item["value"])
            for item in self.pages(f"/v1/stores/{self.id}/entries", **params)
        }

    def records(self, **params: Any) -> list[dict[str, Any]]:
        """The whole changelog."""
        return list(self.pages(self.url, **params))

    def pages(self, path: str, **params: Any) -> Iterator[dict[str, Any]]:
        """The items of every page of a list."""
        token = ""
        while True:
            answer = self.http.get(path, params=params | {"page_token": token})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            yield from page["items"]
            token = page["next_page_token"]
            if not token:
                return


def make_written(
    http: httpx.Client, *, folder: Path | None = None, url: str | None = None, rid: int = 1, **fields: Any
) -> WrittenStore:
    """Register a replica on a SQLite file that is not there yet, or at `url`."""
    name = f"writes-{os.getpid()}-{next(_numbers)}"
    path = None if folder is None else folder / f"{name}.db"
    body = {"id": name, "kind": "REPLICA", "rid": rid, "url": url or f"sqlite:///{path}"} | fields
    answer = http.post("/v1/stores", json=body)
    assert answer.status_code == 201, answer.text
    return WrittenStore(http=http, id=name, path=path)


def check_chain(records: list[dict[str, Any]]) -> None:
    """Every record of the (one) replica names the one before it, and CSNs ascend."""
    csns = [record["csn"] for record in records]
    assert csns == sorted(set(csns))
    assert [record["prev"] for record in records] == [None, *csns][: len(csns)]


def _headers(media_type: str | None, idempotency: str | None) -> dict[str, str]:
    headers = {} if media_type is None else {"Content-Type": media_type}
    return headers if idempotency is None else headers | {"Idempotency-Key": idempotency}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
