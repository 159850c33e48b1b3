"""Requests that one process of a service hands to the first one, which alone knows the answer.

Rules:
- what is handed over is what the process that runs the jobs knows: whether the service is ready, its figures,
  its Spark pool; all else is answered where it came in;
- the first process judges the caller: token, limits and refusals are its own. It is told whose request it is;
- the way is a socket in the data directory, which nobody else may enter.
"""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import Unavailable, problem
from app.kit.http.first import FirstDoor

READY: Final = "/readyz"
EXACT: Final = frozenset({READY, "/metrics"})
POOL: Final = "/v1/spark-pool"
TIMEOUT_S: Final = 30.0
CONNECT_S: Final = 2.0
AT_ONCE_MAX: Final = 32
# Of one connection, or said anew here.
LEFT_OUT: Final = frozenset(
    {
        b"connection",
        b"date",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"expect",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-request-id",
    }
)


class FirstProcessAway(Unavailable):
    """The process of the service that runs the jobs does not answer."""


def is_of_first(path: str) -> bool:
    """Whether the first process answers requests for a path."""
    return path in EXACT or path == POOL or path.startswith((f"{POOL}:", f"{POOL}/"))


class HandOver:
    """ASGI middleware of the processes that answer the API."""

    def __init__(self, app: ASGIApp, *, door: FirstDoor) -> None:
        self.app = app
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=door.path),
            timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=AT_ONCE_MAX, max_keepalive_connections=2),
            trust_env=False,
            headers={},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or have it served."""
        is_handed = scope["type"] == "http" and is_of_first(scope["path"])
        if not is_handed or (scope["path"] == READY and scope["app"].state.readiness.stopping):
            await self.app(scope, receive, send)
            return
        scope["route"] = SimpleNamespace(path=_named(scope["path"]))
        body = await _body_of(receive)
        if body is None:
            return
        try:
            answer = await self._client.send(self._request(scope, body))
        except httpx.HTTPError:
            await _away(scope)(scope, receive, send)
            return
        headers = list(_kept(answer.headers.raw))
        headers.append((b"content-length", str(len(answer.content)).encode()))
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": answer.content})

    def _request(self, scope: Scope, body: bytes) -> httpx.Request:
        query: bytes = scope["query_string"]
        place = scope.get("raw_path") or scope["path"].encode()
        url = httpx.URL("http://first").copy_with(raw_path=place + (b"?" + query if query else b""))
        headers = [*_kept(scope["headers"]), (b"x-forwarded-proto", str(scope["scheme"]).encode())]
        headers.append((b"x-request-id", str(scope["state"]["request_id"]).encode()))
        if scope.get("client"):
            headers.append((b"x-forwarded-for", str(scope["client"][0]).encode()))
        return self._client.build_request(scope["method"], url, headers=headers, content=body)


def _named(path: str) -> str:
    """What the request counts as: the paths of strangers make no figures of their own."""
    known = {*EXACT, POOL, *(f"{POOL}:{verb}" for verb in ("recycle", "drain", "resume"))}
    return path if path in known else "(none)"


def _kept(headers: Iterable[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in LEFT_OUT]


async def _body_of(receive: Receive) -> bytes | None:
    """All of a body; None: its client has left. Its bound is kept by those around."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _away(scope: Scope) -> Any:
    if scope["path"] == READY:
        return JSONResponse({"status": "starting"}, status_code=503)
    detail = "the process of this service that runs its jobs does not answer"
    return problem(Request(scope), FirstProcessAway(detail, headers={"Retry-After": "2"}))
