"""Made by `make client` from lethe_client/transport.py: change that, not this."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx

from lethe_client.errors import ConfigurationInvalid, TransportFailed, UnexpectedAnswer
from lethe_client.retries import NEVER_SENT, RetryPolicy, retry_after_s, worth_repeating
from lethe_client.transport import (
    ANSWER_MAX_BYTES,
    PATIENT_ATTEMPTS_MAX,
    USER_AGENT,
    Answer,
    Call,
    _answer,
    _refuse_compressed,
    _refused,
    address_of,
    trusted,
)


class AsyncTransport:
    """The connection pool, the token and the retries of one client."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout_s: float,
        retries: RetryPolicy,
        verify: Any = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        parsed = address_of(url)
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            if not token.isascii() or not token.isprintable() or (not token.strip()):
                raise ConfigurationInvalid("the token is empty or holds characters that no token has")
            headers["Authorization"] = f"Bearer {token.strip()}"
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self.retries = retries
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=timeout_s,
            verify=trusted(verify, scheme=parsed.scheme),
            transport=transport,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def request(self, call: Call) -> Answer:
        """Send until there is an answer worth giving to the caller.

        Raises:
            ProblemError: Lethe refused.
            TransportFailed: no answer, and no attempt left or none that would be safe.
            UnexpectedAnswer: success, but no JSON.
        """
        request = self._build(call)
        repeatable = call.repeatable or "idempotency-key" in request.headers
        started = self.retries.monotonic()
        attempts = PATIENT_ATTEMPTS_MAX if call.patient else self.retries.attempts
        for attempt in range(1, attempts + 1):
            left_s = self.retries.total_s - (self.retries.monotonic() - started)
            try:
                response = await self._whole(request)
            except httpx.TransportError as error:
                never_sent = isinstance(error, NEVER_SENT)
                delay_s = self.retries.delay_s(attempt)
                if not (never_sent or repeatable) or attempt == attempts or delay_s > left_s:
                    raise self._failed(error, request, maybe_done=not never_sent) from error
            else:
                refused = _refused(response)
                delay_s = self.retries.delay_s(attempt, retry_after_s=retry_after_s(response) or 0.0)
                if (
                    not worth_repeating(response, repeatable=repeatable, refused=refused)
                    or attempt == attempts
                    or delay_s > left_s
                ):
                    return _answer(response)
            await self.retries.asleep(delay_s)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[httpx.Response]:
        """Open a streaming answer, once; the caller reconnects.

        Raises: ProblemError, TransportFailed, UnexpectedAnswer: as for request; reading raises httpx's.
        """
        request = self._build(call)
        try:
            response = await self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise self._failed(error, request, maybe_done=False) from error
        try:
            if not response.is_success:
                try:
                    _answer(await _read(response))
                except httpx.TransportError as error:
                    raise self._failed(error, request, maybe_done=False) from error
            _refuse_compressed(response)
            yield response
        finally:
            await response.aclose()

    async def _whole(self, request: httpx.Request) -> httpx.Response:
        """Send, and read the answer within its bound.

        Raises: httpx.TransportError. UnexpectedAnswer: it is too large, or compressed.
        """
        response = await self._http.send(request, stream=True)
        try:
            return await _read(response)
        finally:
            await response.aclose()

    def _failed(
        self, error: httpx.TransportError, request: httpx.Request, *, maybe_done: bool
    ) -> TransportFailed:
        detail = f"{self.url}: {error or type(error).__name__}"
        request_id = request.headers["x-request-id"]
        return TransportFailed(detail, maybe_done=maybe_done, request_id=request_id, url=self.url)

    def _build(self, call: Call) -> httpx.Request:
        headers = {"X-Request-ID": uuid.uuid4().hex, **call.headers}
        if call.creates:
            headers["Idempotency-Key"] = call.idempotency_key or uuid.uuid4().hex
        params = {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in call.params.items()
            if value is not None
        }
        timeout_s = self.timeout_s if call.timeout_s is None else call.timeout_s
        return self._http.build_request(
            call.method,
            call.path,
            params=params or None,
            json=call.json,
            content=call.content,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, self.timeout_s)),
        )


async def _read(response: httpx.Response) -> httpx.Response:
    """The answer with its body, which came over the wire as it is."""
    _refuse_compressed(response)
    parts = bytearray()
    async for part in response.aiter_bytes():
        parts += part
        if len(parts) > ANSWER_MAX_BYTES:
            raise UnexpectedAnswer(f"{response.request.url} answered more than {ANSWER_MAX_BYTES} bytes")
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        content=bytes(parts),
        request=response.request,
        extensions=response.extensions,
    )
