"""HEAD wherever GET is: the same answer without its body (RFC 9110, 9.3.2)."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        is_over = False

        async def headers_only(message: Message) -> None:
            # A stream would go on for as long as somebody listens: here nobody does.
            nonlocal is_over
            if is_over:
                return
            await send(message if message["type"] == "http.response.start" else {**message, **_END})
            is_over = message["type"] == "http.response.body"

        async def gone_when_over() -> Message:
            return {"type": "http.disconnect"} if is_over else await receive()

        await self.app({**scope, "method": "GET"}, gone_when_over, headers_only)


_END: Message = {"body": b"", "more_body": False}
