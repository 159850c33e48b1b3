"""A reader of event streams that tells what it saw, frame by frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Event:
    """One event: its `id:`, its `event:` and its data."""

    id: int
    kind: str
    data: dict[str, Any]


def stream(http: httpx.Client, job_id: str, *, after: int | None = None) -> Iterator[Event]:
    """Follow the events of a job over one connection."""
    headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": str(after)})
    with http.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line and name:
                fields[name] = value
            elif not line:
                if "data" in fields:
                    yield Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
                fields = {}


def listed(http: httpx.Client, job_id: str, *, page_size: int = 7) -> list[dict[str, Any]]:
    """All events of a job from the paged list."""
    items: list[dict[str, Any]] = []
    token = ""
    while True:
        params = {"page_size": str(page_size), "page_token": token}
        page = http.get(f"/v1/jobs/{job_id}/events", params=params).json()
        items += page["items"]
        token = page["next_page_token"]
        if not token:
            return items
