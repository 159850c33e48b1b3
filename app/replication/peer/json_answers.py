"""JSON of a peer, read within bounds: bytes of its text, values in it, and how deep they stand."""

import json
from collections.abc import Iterator
from typing import Any, Final

import httpx

from app.replication.peer.answers import PeerAnswerInvalid

VALUES_MAX: Final = 500_000
"""A RUV of every RID there is, three times over; a value takes about 100 bytes of memory."""
DEPTH_MAX: Final = 32


def read_bounded(response: httpx.Response, *, bytes_max: int) -> bytes:
    """The body of an answer, as it came over the wire.

    Raises: PeerAnswerInvalid: it is longer, or compressed: nothing was asked for that grows when it is read.
    """
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise PeerAnswerInvalid(f"an answer in {coding[:40]}, where none was asked for")
    parts = bytearray()
    for part in response.iter_bytes():
        parts += part
        if len(parts) > bytes_max:
            raise PeerAnswerInvalid(f"an answer of more than {bytes_max} bytes")
    return bytes(parts)


def parse(text: bytes) -> Any:
    """A document; None where it is none.

    Raises: PeerAnswerInvalid: it holds too much, or stands too deep.
    """
    if text.count(b",") + text.count(b"[") + text.count(b"{") > VALUES_MAX:
        raise PeerAnswerInvalid(f"an answer of more than {VALUES_MAX} values")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    level = [document]
    for _ in range(DEPTH_MAX):
        level = [child for each in level for child in _containers(each)]
        if not level:
            return document
    raise PeerAnswerInvalid(f"an answer more than {DEPTH_MAX} levels deep")


def _containers(value: Any) -> Iterator[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (child for child in children if isinstance(child, dict | list))
