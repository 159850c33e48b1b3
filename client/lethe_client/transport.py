"""One request to Lethe: headers, sending with retries, and the answer or its error.

Rules:
- one call has one X-Request-ID and at most one Idempotency-Key, the same over all of its sendings;
- no answer is read further than ANSWER_MAX_BYTES, and none is taken compressed: what comes is what it weighs;
- the token travels only in the Authorization header, never in a URL or a message, and never to another host.
"""

import ssl
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import getproxies

import httpx

from lethe_client.errors import ConfigurationInvalid, ProblemError, TransportFailed, UnexpectedAnswer, problem
from lethe_client.retries import NEVER_SENT, RetryPolicy, retry_after_s, worth_repeating
from lethe_client.version import __version__

PORT_MAX: Final = 65_535
ANSWER_MAX_CHARS: Final = 200
ANSWER_MAX_BYTES: Final = 1024 * 1024 * 1024
"""A page of 500 entries of a MiB each, in base64, is the largest answer that Lethe gives."""
PATIENT_ATTEMPTS_MAX: Final = 1_000
USER_AGENT: Final = f"lethe-client/{__version__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request before it has an Idempotency-Key; `content` is a body that is not JSON.

    `patient` keeps on for all of the policy's time, so that a wait outlives a restart of the service;
    `creates` asks for a key, which makes a POST repeatable; `repeatable` is said of requests that may be sent
    twice without one.
    """

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    patient: bool = False
    creates: bool = False
    idempotency_key: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A successful answer; `body` is None for 204 and 304, `content` the body's bytes."""

    status: int
    body: Any
    headers: httpx.Headers
    content: bytes = b""

    @property
    def etag(self) -> str:
        return str(self.headers.get("etag", ""))


def trusted(verify: Any, *, scheme: str) -> Any:
    """What httpx is to trust: over plain HTTP nobody. To read all authorities takes longer than a request."""
    if verify is not True or scheme == "https" or getproxies():
        return verify
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def not_usable(url: str) -> str:
    """Say what is wrong with a URL of no scheme that is spoken here."""
    meant = f"; write http://{url} or https://{url}" if url and "://" not in url else ""
    return f"not an http or https URL: {url}{meant}"


def address_of(url: str) -> httpx.URL:
    """The address of a service.

    Raises: ConfigurationInvalid: nothing can be asked there; a password in it is not shown.
    """
    if "@" in url.partition("://")[2].partition("/")[0]:
        # httpx would send them in the place of the token, and every error would show them.
        raise ConfigurationInvalid(
            "the address of the service has a user or a password; leave them out: Lethe takes a token alone"
        )
    try:
        parsed = httpx.URL(url)
        parsed.raw_host.decode("ascii").encode("idna")
    except httpx.InvalidURL as error:
        raise ConfigurationInvalid(f"not a URL: {error}") from None
    except UnicodeError:
        raise ConfigurationInvalid(f"no host can have the name in {url}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigurationInvalid(not_usable(url))
    if (parsed.port or 0) > PORT_MAX:
        raise ConfigurationInvalid(f"a port is at most {PORT_MAX}: {url}")
    if parsed.query:
        raise ConfigurationInvalid("the address of the service has a query; give it as far as its path")
    return parsed


class Transport:
    """The connection pool, the token and the retries of one client."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout_s: float,
        retries: RetryPolicy,
        verify: Any = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        parsed = address_of(url)
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            if not token.isascii() or not token.isprintable() or not token.strip():
                raise ConfigurationInvalid("the token is empty or holds characters that no token has")
            headers["Authorization"] = f"Bearer {token.strip()}"
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self.retries = retries
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=timeout_s,
            verify=trusted(verify, scheme=parsed.scheme),
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def request(self, call: Call) -> Answer:
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
                response = self._whole(request)
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
            self.retries.sleep(delay_s)
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def stream(self, call: Call) -> Iterator[httpx.Response]:
        """Open a streaming answer, once; the caller reconnects.

        Raises: ProblemError, TransportFailed, UnexpectedAnswer: as for request; reading raises httpx's.
        """
        request = self._build(call)
        try:
            response = self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise self._failed(error, request, maybe_done=False) from error
        try:
            if not response.is_success:
                try:
                    _answer(_read(response))
                except httpx.TransportError as error:
                    raise self._failed(error, request, maybe_done=False) from error
            _refuse_compressed(response)
            yield response
        finally:
            response.close()

    def _whole(self, request: httpx.Request) -> httpx.Response:
        """Send, and read the answer within its bound.

        Raises: httpx.TransportError. UnexpectedAnswer: it is too large, or compressed.
        """
        response = self._http.send(request, stream=True)
        try:
            return _read(response)
        finally:
            response.close()

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


def _read(response: httpx.Response) -> httpx.Response:
    """The answer with its body, which came over the wire as it is."""
    _refuse_compressed(response)
    parts = bytearray()
    for part in response.iter_bytes():
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


def _refuse_compressed(response: httpx.Response) -> None:
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise UnexpectedAnswer(f"{response.request.url} answered in {coding:.40}, which was not asked for")


def _document(response: httpx.Response) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None


def _refused(response: httpx.Response) -> bool:
    """Tell whether the problem itself says that trying again is of no use."""
    if response.is_success:
        return False
    document = _document(response)
    return isinstance(document, dict) and document.get("retryable") is False


def _request_id(response: httpx.Response) -> str:
    return str(response.headers.get("x-request-id") or response.request.headers["x-request-id"])


def _answer(response: httpx.Response) -> Answer:
    if response.status_code in (204, 304):
        return Answer(status=response.status_code, body=None, headers=response.headers)
    document = _document(response)
    if response.is_success and document is not None:
        return Answer(
            status=response.status_code, body=document, headers=response.headers, content=response.content
        )
    if response.status_code >= 400:
        raise _problem(response, document)
    raise UnexpectedAnswer(
        f"{response.request.url} answered {response.status_code} with "
        f"{response.headers.get('content-type', 'no content type')}: is this a Lethe service?"
    )


def _problem(response: httpx.Response, document: Any) -> ProblemError:
    """Make the error; an answer without a problem document (a proxy's) gets one from its status."""
    if not isinstance(document, dict):
        retryable = response.status_code in (429, 502, 503, 504)
        text = " ".join(response.text.split())[:ANSWER_MAX_CHARS]
        document = {"status": response.status_code, "title": response.reason_phrase, "retryable": retryable}
        document["detail"] = text or response.reason_phrase or f"status {response.status_code}"
    url = str(response.request.url.copy_with(query=None, fragment=None, userinfo=b""))
    return problem(response.status_code, document, request_id=_request_id(response), url=url)
