"""Streams whose reader takes nothing any more are cut: nobody waits for a reader without end.

What the reader has not taken is not kept for it; it goes on by Last-Event-ID when it comes again.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.kit.http.sse import CONTENT_TYPE, PATHS


class StalledReaders:
    """ASGI middleware, of answers that are event streams alone.

    Args:
        stalled_s: how long a piece of a stream may wait to be taken.
    """

    def __init__(self, app: ASGIApp, *, stalled_s: float) -> None:
        self.app = app
        self._stalled_s = stalled_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not scope["path"].endswith(PATHS):
            await self.app(scope, receive, send)
            return
        cut = asyncio.Event()
        is_stream = False

        async def timed_send(message: Message) -> None:
            nonlocal is_stream
            if message["type"] == "http.response.start":
                is_stream = any(
                    name == b"content-type" and value.startswith(CONTENT_TYPE.encode())
                    for name, value in message["headers"]
                )
            if cut.is_set():
                return
            if not is_stream:
                await send(message)
                return
            try:
                async with asyncio.timeout(self._stalled_s):
                    await send(message)
            except TimeoutError:
                cut.set()

        async def gone_when_cut() -> Message:
            theirs, ours = asyncio.ensure_future(receive()), asyncio.ensure_future(cut.wait())
            try:
                await asyncio.wait({theirs, ours}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ours.cancel()
                if not theirs.done():
                    theirs.cancel()
            return {"type": "http.disconnect"} if cut.is_set() else theirs.result()

        await self.app(scope, gone_when_cut, timed_send)
