"""Made by `make client` from lethe_client/streaming.py: change that, not this."""

from collections.abc import AsyncIterable, AsyncIterator

from lethe_client.errors import UnexpectedAnswer
from lethe_client.streaming import LINE_MAX_BYTES, Frame


async def lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """Cut bytes into lines at LF or CRLF only: `str.splitlines` would also cut at U+2028 inside of the JSON.

    Raises: UnexpectedAnswer: a line longer than LINE_MAX_BYTES.
    """
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", errors="replace")
        if len(rest) > LINE_MAX_BYTES:
            raise UnexpectedAnswer(f"a line of the stream is longer than {LINE_MAX_BYTES} bytes")


async def frames(stream: AsyncIterable[str]) -> AsyncIterator[Frame]:
    """Cut lines into events; one that the connection's end cuts short is not given out."""
    event_id, event, data = ("", "", list[str]())
    async for line in stream:
        if not line:
            if data:
                yield Frame(id=event_id, event=event or "message", data="\n".join(data))
            event, data = ("", [])
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            event_id = value
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)
