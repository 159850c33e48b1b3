"""What every request carries: an id in its log lines and answer, a bound on its body, one line at its end."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import BodyTooLarge, TooLarge, problem
from app.kit.ids import new_id
from app.kit.request_figures import RequestFigures

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
logger = structlog.get_logger("lethe.http")


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """How large a body may be on the paths that match, and what a larger one is called.

    Attributes:
        is_refused_at_once: by its declared length. Else whoever reads it refuses it, and says so in a page.
    """

    path: re.Pattern[str]
    max_bytes: int
    code: str = "BODY_TOO_LARGE"
    is_refused_at_once: bool = True


class RequestScope:
    """ASGI middleware: X-Request-ID, traceparent, the body's bound, the access log.

    Args:
        figures: where requests are counted.
        is_told: whether each request has its line; the process that it came to has written one else.
        body_max_bytes: of every path that no limit of `body_limits` names; the first that matches counts.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        body_max_bytes: int,
        body_limits: Sequence[BodyLimit] = (),
        figures: RequestFigures | None = None,
        is_told: bool = True,
    ) -> None:
        self.app = app
        self._is_told = is_told
        self.figures = figures or RequestFigures()
        self.body_limits = (*body_limits, BodyLimit(re.compile(".*", re.DOTALL), body_max_bytes))

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
        limit = next(each for each in self.body_limits if each.path.fullmatch(scope["path"]))
        too_large = f"the body is larger than {limit.max_bytes} bytes"
        status = 0
        received = 0

        async def bounded_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit.max_bytes:
                raise BodyTooLarge(too_large, code=limit.code)
            return message

        async def named_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        try:
            declared = headers.get("content-length", "0")
            is_known = limit.is_refused_at_once and declared.isdigit()
            if is_known and int(declared) > limit.max_bytes:
                error = TooLarge(too_large, code=limit.code)
                await problem(Request(scope), error)(scope, receive, named_send)
            else:
                await self.app(scope, bounded_receive, named_send)
        finally:
            elapsed_s = time.perf_counter() - started
            self.figures.answered(scope, status, elapsed_s)
            if self._is_told:
                _tell(scope, status, elapsed_s)


def _tell(scope: Scope, status: int, elapsed_s: float) -> None:
    elapsed_ms = round(elapsed_s * 1000, 1)
    logger.info("request", method=scope["method"], path=scope["path"], status=status, elapsed_ms=elapsed_ms)
