"""Digests over what travels between replicas: `Content-Digest: sha-256=:...:` of every request and answer.

A bit that flips on the way, where no TLS finds it, is found before anything is decoded, and the same request
is sent again. A client of one's own may leave the digest of its requests out.
What is asked for has a digest too (`Lethe-Target-Digest`, over method, path and query): entries of a copy
that arrived under another batch's number would push that batch out.
Source: RFC 9530.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import Unprocessable
from app.kit.http.routing import LateRoute

HEADER: Final = "content-digest"
TARGET_HEADER: Final = "lethe-target-digest"
PATHS: Final = "/v1/replicas/"
_SHA_256: Final = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]+):")


class BodyDamaged(Unprocessable):
    """The request is not the one that was sent: nothing was done with it, and it may be sent again."""

    def __init__(self, what: str = "body", header: str = "Content-Digest") -> None:
        super().__init__(f"the {what} does not match its {header}", headers={"Retry-After": "0"})
        self.retryable = True


def digest_of(body: bytes) -> str:
    """The value of the header for a body."""
    return f"sha-256=:{b64encode(sha256(body).digest()).decode()}:"


def matches(header: str | None, body: bytes) -> bool:
    """Whether a body is what its header says; without a header, or one of SHA-256, nothing is said."""
    found = None if header is None else _SHA_256.search(header)
    return found is None or f"sha-256=:{found.group(1)}:" == digest_of(body)


def require_digest(header: str | None, body: bytes) -> None:
    """Refuse a body that is not what its header says.

    Raises: BodyDamaged.
    """
    if not matches(header, body):
        raise BodyDamaged


def target_digest(method: str, target: str) -> str:
    """The value of the header for what is asked for.

    Args:
        target: path and query; what a proxy may put or take away before PATHS does not count.
    """
    return digest_of(f"{method} {target[max(0, target.find(PATHS)) :]}".encode())


class DigestedRoute(LateRoute):
    """A route that looks at what is asked for, and at a JSON body before it is read as one.

    Batches are looked at where they are read.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI asks for it."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            asked, header = request.headers.get(TARGET_HEADER), request.headers.get(HEADER)
            if asked is not None and asked != target_digest(request.method, _target_of(request)):
                raise BodyDamaged("request's target", "Lethe-Target-Digest")
            if header is not None and not request.url.path.endswith("/batches"):
                require_digest(header, await request.body())
            return await handle(request)

        return checked


def _target_of(request: Request) -> str:
    path, query = request.scope["raw_path"], request.scope["query_string"]
    return b"?".join((path, query) if query else (path,)).decode("latin-1")


class AnswerDigests:
    """Puts the digest on every answer below /v1/replicas/; they are small, and wait for their end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or not scope["path"].startswith(PATHS):
            await self._app(scope, receive, send)
            return
        started: list[Message] = []
        parts: list[bytes] = []

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
            elif message["type"] == "http.response.body" and started:
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    body = b"".join(parts)
                    header = (HEADER.encode(), digest_of(body).encode())
                    await send({**started[0], "headers": [*started[0]["headers"], header]})
                    await send({"type": "http.response.body", "body": body})
            else:
                await send(message)

        await self._app(scope, receive, keep)
