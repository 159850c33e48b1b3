"""What every request carries: an id in its log lines and answer, a bound on its body, one line at its end."""

import re
import time

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import TooLarge, problem
from app.kit.ids import new_id

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
logger = structlog.get_logger("lethe.http")


class RequestScope:
    """ASGI middleware: X-Request-ID, traceparent, the body's bound, the access log."""

    def __init__(self, app: ASGIApp, *, body_max_bytes: int) -> None:
        self.app = app
        self.body_max_bytes = body_max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else new_id("req")
        trace = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
        scope.setdefault("state", {})["request_id"] = request_id
        context = {"request_id": request_id} | ({"trace_id": trace.group(1)} if trace else {})
        with structlog.contextvars.bound_contextvars(**context):
            await self._serve(scope, receive, send, request_id, headers)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, request_id: str, headers: Headers
    ) -> None:
        started = time.perf_counter()
        status = 0
        received = 0

        async def bounded_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.body_max_bytes:
                raise HTTPException(413, f"the body is larger than {self.body_max_bytes} bytes")
            return message

        async def named_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        try:
            declared = headers.get("content-length", "0")
            if declared.isdigit() and int(declared) > self.body_max_bytes:
                error = TooLarge(
                    f"the body is larger than {self.body_max_bytes} bytes", code="BODY_TOO_LARGE"
                )
                await problem(Request(scope), error)(scope, receive, named_send)
            else:
                await self.app(scope, bounded_receive, named_send)
        finally:
            elapsed_ms = round((time.perf_counter() - started) * 1000, 1)
            logger.info(
                "request", method=scope["method"], path=scope["path"], status=status, elapsed_ms=elapsed_ms
            )
