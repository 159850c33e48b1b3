"""The API of this very process, asked with the rights of whoever is signed in.

Rules:
- a page reads and changes nothing but by the operations of the API: their scopes, borders of stores, bounds,
  audit rows and problems are the console's too, and there is no second place that could forget one;
- a call does not leave the process, and carries no token: the Caller stands in the request's scope.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import Request
from starlette.types import Message

from app.auth.access import REASON, SIGNED_IN
from app.auth.console_sessions import SignedIn
from app.auth.service import Caller
from app.errors import ServiceError

Query = Mapping[str, str | int | Sequence[str] | None]
DROPPED: Final = ("route", "router", "endpoint", "path_params")
PROBLEM_FIELDS: Final = frozenset(
    {"type", "title", "status", "detail", "instance", "code", "retryable", "help", "errors"}
)


class Refused(ServiceError):
    """The API has refused what a page asked of it."""


def _refused(status: int, problem: Mapping[str, Any], headers: Mapping[str, str]) -> Refused:
    """The problem that the API has answered, as the page's own."""
    code = problem.get("code", "INTERNAL")
    extra = {name: value for name, value in problem.items() if name not in PROBLEM_FIELDS}
    kept = {name: value for name, value in headers.items() if name == "retry-after"}
    error = Refused(str(problem.get("detail", "")), code=code, headers=kept, extra=extra)
    error.status, error.retryable = status, bool(problem.get("retryable", False))
    error.errors = list(problem.get("errors", ()))
    return error


class Api:
    """Calls of one request of the console."""

    def __init__(self, request: Request, signed_in: SignedIn) -> None:
        self._request = request
        self._signed_in = signed_in

    @property
    def caller(self) -> Caller:
        """Whose rights the calls have."""
        return self._signed_in.caller

    async def get(self, *path: str, **query: str | int | Sequence[str] | None) -> Any:
        """Read; the parts of the path are quoted, and what is None is left out of the query.

        Raises: Refused.
        """
        return await self.call("GET", *path, query=query)

    async def find(self, *path: str, **query: str | int | Sequence[str] | None) -> Any:
        """Read what may not be there, or may not be seen: None instead of a refusal.

        Raises: Refused: for any other reason.
        """
        try:
            return await self.get(*path, **query)
        except Refused as error:
            if error.status in (403, 404):
                return None
            raise

    async def call(
        self,
        method: str,
        *path: str,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        reason: str | None = None,
    ) -> Any:
        """Ask for any operation; returns its JSON.

        Args:
            path: below /v1, in parts: ("jobs", job_id + ":pause").
            reason: for the audit; not every operation takes one in its body.
        Raises: Refused.
        """
        sent = b"" if body is None else json.dumps(body).encode()
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        scope = self._scope(method, "/v1/" + "/".join(path), asked, dict(headers or {}), sent)
        scope[REASON] = reason
        answer = _Answer(sent)
        await self._request.app.router(scope, answer.receive, answer.send)
        found = json.loads(answer.body) if answer.body else None
        if answer.status >= 400:
            raise _refused(answer.status, found or {}, answer.headers)
        return found

    def _scope(
        self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes
    ) -> dict[str, Any]:
        named = {"host": self._request.headers.get("host", ""), "accept": "application/json", **headers}
        if body:
            named |= {"content-type": "application/json", "content-length": str(len(body))}
        scope = {name: value for name, value in self._request.scope.items() if name not in DROPPED}
        return scope | {
            SIGNED_IN: self._signed_in.caller,
            "method": method,
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": urlencode(query, doseq=True).encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()],
            "state": dict(self._request.scope.get("state", {})),
        }


class _Answer:
    """The two ends of a call: its body goes in, what is answered comes out."""

    def __init__(self, body: bytes) -> None:
        self._given: bytes | None = body
        self.status = 500
        self.headers: dict[str, str] = {}
        self.body = b""

    async def receive(self) -> Message:
        if self._given is None:
            await asyncio.Event().wait()  # whoever listens for a client that goes away: it does not
        given, self._given = self._given, None
        return {"type": "http.request", "body": given, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
