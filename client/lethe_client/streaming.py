"""Server-sent events (WHATWG HTML, 9.2), as far as Lethe sends them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from lethe_client.errors import UnexpectedAnswer

LINE_MAX_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of the stream; `id` is empty where the server sent none."""

    id: str
    event: str
    data: str

    def document(self) -> dict[str, Any]:
        """Read the data as a JSON object.

        Raises: UnexpectedAnswer: it is none.
        """
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise UnexpectedAnswer(f"an event without a JSON object: {self.data!r:.80}")
        return value


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Cut bytes into lines at LF or CRLF only: `str.splitlines` would also cut at U+2028 inside of the JSON.

    Raises: UnexpectedAnswer: a line longer than LINE_MAX_BYTES.
    """
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", errors="replace")
        if len(rest) > LINE_MAX_BYTES:
            raise UnexpectedAnswer(f"a line of the stream is longer than {LINE_MAX_BYTES} bytes")


def frames(stream: Iterable[str]) -> Iterator[Frame]:
    """Cut lines into events; one that the connection's end cuts short is not given out."""
    event_id, event, data = "", "", list[str]()
    for line in stream:
        if not line:
            if data:
                yield Frame(id=event_id, event=event or "message", data="\n".join(data))
            event, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            event_id = value
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)
