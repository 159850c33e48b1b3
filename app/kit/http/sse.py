"""Server-sent events as bytes (WHATWG HTML, 9.2)."""

import json
from typing import Any

CONTENT_TYPE = "text/event-stream"
KEEPALIVE = b": keep-alive\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
PATHS = ("/events", "/changes/feed")
"""How the paths end that answer with streams."""


def format_event(*, sequence: int, kind: str, data: Any) -> bytes:
    """One event: `id:` is the sequence that Last-Event-ID brings back."""
    return named_event(str(sequence), kind, json.dumps(data, separators=(",", ":"), ensure_ascii=False))


def named_event(name: str, kind: str, text: str) -> bytes:
    """One event whose `id:` is any text of one line; its data is JSON of one line."""
    assert "\n" not in kind
    assert "\n" not in text
    return f"id: {name}\nevent: {kind}\ndata: {text}\n\n".encode()
