"""Server-sent events as bytes (WHATWG HTML, 9.2)."""

import json
from typing import Any

CONTENT_TYPE = "text/event-stream"
KEEPALIVE = b": keep-alive\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def format_event(*, sequence: int, kind: str, data: Any) -> bytes:
    """One event: `id:` is the sequence that Last-Event-ID brings back."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    assert "\n" not in kind
    return f"id: {sequence}\nevent: {kind}\ndata: {text}\n\n".encode()
