"""The answer of a feed: whoever does not take it is cut off, for it keeps the node's log from being emptied.

The server's limit for idle transactions does not see a COPY that waits for its reader.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Send

SLICE_BYTES: Final = 65_536
"""So much at once: whoever takes some of it goes on."""
logger = structlog.get_logger("lethe.slony_feed")


class FeedAnswer(StreamingResponse):
    """A stream that ends where a slice of it is not taken in time.

    Args:
        pieces: closed at the end, however that comes.
        stalled_s: how long a slice may wait to be taken.
    """

    def __init__(self, pieces: AsyncGenerator[bytes, None], *, media_type: str, stalled_s: float) -> None:
        super().__init__(pieces, media_type=media_type)
        self._pieces = pieces
        self._stalled_s = stalled_s

    async def stream_response(self, send: Send) -> None:
        """Send it; without its last message where it was cut off."""
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            async for piece in self._pieces:
                for at in range(0, len(piece), SLICE_BYTES):
                    async with asyncio.timeout(self._stalled_s):
                        part = piece[at : at + SLICE_BYTES]
                        await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            logger.warning("a feed was cut off: its reader stalls", stalled_s=self._stalled_s)
        finally:
            await self._pieces.aclose()
