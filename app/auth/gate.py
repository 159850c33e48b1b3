"""What one caller may take of the service, looked at before anything of a body is read.

A token that was good is known here by the hash of its header until it is refused. Limits: requests of a
token, failures of an address, and bodies that have not arrived as a whole, of a token or (for those without a
known one) of an address. Probes pass: whoever asks whether the service lives is answered.

Refusals are counted for the audit, and where many come from one address (or for one token) their answers
wait a little: nobody else does, for the wait holds neither a thread nor a connection to the metadata. An
address that is sent away for its failures shuts nobody out who holds a good token (`holders`).

Only the event loop's thread touches it.
"""

import asyncio
import hashlib
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.auth.holders import COOKIE, Holders, console_cookie_of, is_of_console, secret_of
from app.auth.oidc.form import is_jwt
from app.auth.refusals import source_of
from app.errors import BodyTooSlow, TooMany, problem
from app.kit.rates import KEYS_MAX
from app.kit.shared_rates import SharedTable, rates_of
from app.settings import Settings

PROBES: Final = frozenset({"/livez", "/readyz"})
UNAUTHENTICATED: Final = 401
REFUSED: Final = frozenset({401, 403})
SLOWED_MAX: Final = 1_000
SLOWED_PER_SOURCE_MAX: Final = 64
REFUSALS_FREE: Final = 50
"""So many of a source are answered at once; then about one a second."""


@dataclass(slots=True)
class _Guest:
    """One request."""

    secret: str | None
    token_id: str | None
    address: str
    bearer: str = ""

    @property
    def share(self) -> str:
        """Whose share of bodies it takes: an unknown token is not a person."""
        return f"address {self.address}" if self.token_id is None else f"token {self.token_id}"


@dataclass(slots=True)
class _Body:
    """What of a body is still to come."""

    share: str
    is_whole: bool = False
    waited_s: float = field(default=0.0)


class Gate:
    """ASGI middleware. `state.token_id` of a request says that its token was good.

    Args:
        table: of the processes that share these limits; None: they are of this process alone.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings, table: SharedTable | None = None) -> None:
        self.app = app
        self._settings = settings
        rates = partial(rates_of, table)
        self._of_tokens = rates(
            "tokens", per_s=settings.token_requests_per_s, burst=settings.token_requests_burst
        )
        self._failures = rates(
            "failures", per_s=settings.address_failures_per_s, burst=settings.address_failures_burst
        )
        self._known: OrderedDict[str, str] = OrderedDict()
        self._bodies: Counter[str] = Counter()
        self._slow = rates("slow", per_s=1.0, burst=REFUSALS_FREE)
        self._slowed: Counter[str] = Counter()
        self._holders = Holders()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        guest = self._guest(scope, headers)
        refusal = self._refusal(guest, has_body=_has_body(headers))
        if refusal is None and guest.token_id is None:
            refusal = await self._sent_away(guest, scope)
        if refusal is not None:
            await problem(Request(scope), refusal)(scope, receive, send)
            return
        await self._serve(scope, receive, send, guest, has_body=_has_body(headers))

    def _guest(self, scope: Scope, headers: Headers) -> _Guest:
        given = headers.get("authorization")
        # Pages go by the cookie, and never look at that header: a new one each time is no new stranger.
        goes_by_cookie = given is None or is_of_console(scope["path"])
        cookie = console_cookie_of(headers) if goes_by_cookie else None
        if cookie is not None:  # a session of the console counts as its token does
            given = f"{COOKIE} {cookie}"
        secret = None if given is None else hashlib.sha256(given.encode("latin-1")).hexdigest()
        client = scope.get("client")
        known = None if secret is None else self._known.get(secret)
        return _Guest(secret, known, source_of(str(client[0])) if client else "", cookie or secret_of(given))

    def _refusal(self, guest: _Guest, *, has_body: bool) -> TooMany | None:
        if guest.token_id is not None:
            wait_s = self._of_tokens.wait_s(guest.token_id)
            if wait_s > 0:
                per_s = self._settings.token_requests_per_s
                return _later(f"this token asks more often than {per_s:g} times a second", wait_s)
            self._of_tokens.take(guest.token_id)
        most = self._settings.bodies_per_token_max
        if guest.token_id is None:
            most = self._settings.bodies_per_address_max
        if has_body and self._bodies[guest.share] >= most:
            return _later(f"{most} bodies have begun and not ended", 1.0)
        return None

    async def _sent_away(self, guest: _Guest, scope: Scope) -> TooMany | None:
        """Of an address with too many failures only who holds a token is let in."""
        wait_s = self._failures.wait_s(guest.address)
        if wait_s <= 0:
            return None
        is_checked_here = self._settings.oidc.issuer is not None and is_jwt(guest.bearer)
        if is_checked_here or (
            guest.bearer and await self._holders.has(guest.bearer, scope["app"].state.database)
        ):
            return None
        refusal = _later("too many requests of this address were not authenticated", wait_s)
        self._count(guest, scope, refusal.code)
        await self._hold(guest)
        return refusal

    def _count(self, guest: _Guest, scope: Scope, code: str) -> None:
        state, route = scope.get("state", {}), scope.get("route")
        path = getattr(route, "path", None)
        scope["app"].state.refusals.note(
            guest.address,
            token_id=state.get("token_id"),
            token_name=state.get("token_name"),
            code=code,
            operation=None if path is None else f"{scope['method']} {path}",
        )

    async def _hold(self, guest: _Guest) -> None:
        """Let a refusal wait, where many came before it and not too many wait."""
        who = guest.share
        self._slow.take(who)
        delay_s = min(self._settings.refusal_delay_max_s, self._slow.wait_s(who))
        if delay_s <= 0 or self._slowed[who] >= SLOWED_PER_SOURCE_MAX or self._slowed.total() >= SLOWED_MAX:
            return
        self._slowed[who] += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._slowed[who] -= 1
            if not self._slowed[who]:
                del self._slowed[who]

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, guest: _Guest, *, has_body: bool
    ) -> None:
        body = _Body(guest.share, is_whole=not has_body)
        status = 0
        self._bodies[body.share] += has_body

        async def timed_receive() -> Message:
            if body.is_whole:
                return await receive()
            message = await self._receive_in_time(receive, body)
            if not message.get("more_body", False):
                self._end(body)
            return message

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._note(guest, scope, status)
                if status in REFUSED:
                    self._count(guest, scope, scope.get("state", {}).get("problem_code", str(status)))
                    await self._hold(guest)
            await send(message)

        try:
            await self.app(scope, timed_receive, noting_send)
        finally:
            self._end(body)

    async def _receive_in_time(self, receive: Receive, body: _Body) -> Message:
        loop = asyncio.get_running_loop()
        began = loop.time()
        left_s = self._settings.request_body_timeout_s - body.waited_s
        most_s = min(self._settings.request_body_chunk_timeout_s, left_s)
        try:
            async with asyncio.timeout(max(0.0, most_s)):
                message = await receive()
        except TimeoutError:
            detail = f"nothing of the body came for {most_s:.0f} s, or all of it took too long"
            raise BodyTooSlow(detail) from None
        body.waited_s += loop.time() - began
        return message

    def _end(self, body: _Body) -> None:
        if not body.is_whole:
            body.is_whole = True
            self._bodies[body.share] -= 1
            if not self._bodies[body.share]:
                del self._bodies[body.share]

    def _note(self, guest: _Guest, scope: Scope, status: int) -> None:
        if status == UNAUTHENTICATED:
            self._failures.take(guest.address)
            if guest.secret is not None:
                self._known.pop(guest.secret, None)
            return
        token_id = scope.get("state", {}).get("token_id")
        if guest.secret is not None and token_id is not None:
            self._known[guest.secret] = token_id
            self._known.move_to_end(guest.secret)
            while len(self._known) > KEYS_MAX:
                self._known.popitem(last=False)


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _later(detail: str, wait_s: float) -> TooMany:
    return TooMany(detail, code="TOO_MANY_REQUESTS", headers={"Retry-After": str(max(1, math.ceil(wait_s)))})
