"""One attempt: a signed POST to a receiver that may be slow, lie, or lead elsewhere.

Rules:
- what is connected to is an address that was looked at (app.outgoing.hosts); no redirect is followed, no
  proxy of the environment used;
- the whole attempt has one deadline, however its bytes trickle; of an answer no more is read once
  ANSWER_MAX_BYTES have come, and nothing of it is kept but its status;
- the receiver's words are in no message.
"""

import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Final

import httpx

from app.outgoing.hosts import JudgedTransport, place_of_url
from app.outgoing.transport import CONNECT_TIMEOUT_S, Deadline, DeadlineTransport, is_untrusted
from spark.targets.errors import TargetError, TargetHostNotAllowed, TargetUnreachable
from spark.targets.hosts import HostList, looked_up

ANSWER_MAX_BYTES: Final = 4_096
MEDIA_TYPE: Final = "application/cloudevents+json; charset=utf-8"
USER_AGENT: Final = "lethe-webhooks/1"
ERROR_MAX_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        status: of the answer; None: there was none.
        error: why it failed; None: it is delivered.
        retry_after_s: what the receiver asked for.
    """

    status: int | None = None
    error: str | None = None
    retry_after_s: float | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether the receiver has said that it has it."""
        return self.error is None


def send(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    hosts: tuple[HostList, ...],
    ca_file: str | None,
    timeout_s: float,
    now: datetime,
) -> Outcome:
    """Post a body to a receiver, and tell what came of it; raises nothing that a receiver can cause.

    Args:
        now: for an answer that names a date to come back at.
    """
    deadline = Deadline()
    try:
        verify = _authority(ca_file)
    except (OSError, ssl.SSLError) as error:
        return _failed(f"the CA file cannot be used: {getattr(error, 'strerror', None) or 'it is no PEM'}")
    way = DeadlineTransport(verify=verify, connections_max=1, deadline=deadline)
    with (
        httpx.Client(
            transport=JudgedTransport(way, hosts, look_up=partial(_looked_up, timeout_s=timeout_s)),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
            trust_env=False,
            follow_redirects=False,
        ) as http,
        deadline.within(timeout_s),
    ):
        sent = {"Content-Type": MEDIA_TYPE, "User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
        try:
            return _post(http, url, body, sent | dict(headers), now)
        except TargetHostNotAllowed:  # its own words name addresses of this network
            host, port = place_of_url(url)
            return _failed(f"{host}, port {port}, is none of the allowed hosts")
        except TargetError as error:
            return _failed(error.detail)
        except httpx.TimeoutException:
            return _failed(f"no whole answer within {timeout_s:g} s")
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            return _failed(_words_of(error))


def _looked_up(host: str, port: int, *, timeout_s: float) -> list[str]:
    """The addresses of a host; a resolver knows no deadline, so that another thread waits for it.

    Raises: TargetUnreachable.
    """
    found: Future[list[str]] = Future()

    def ask() -> None:
        try:
            found.set_result(looked_up(host, port))
        except TargetError as error:
            found.set_exception(error)

    threading.Thread(target=ask, name="lethe-webhook-lookup", daemon=True).start()
    try:
        return found.result(timeout_s)
    except TimeoutError as error:
        raise TargetUnreachable(f"the host {host!r} was not looked up within {timeout_s:g} s") from error


def _post(http: httpx.Client, url: str, body: bytes, headers: Mapping[str, str], now: datetime) -> Outcome:
    with http.stream("POST", url, content=body, headers=dict(headers)) as answer:
        with suppress(httpx.HTTPError, httpx.StreamError):  # its status has come, and is all that counts
            _drain(answer)
        if answer.is_success:
            return Outcome(answer.status_code)
        detail = f"the receiver answered {answer.status_code}"
        if answer.is_redirect:
            detail += "; redirects are not followed: give the webhook the URL that it leads to"
        return Outcome(answer.status_code, detail, _retry_after_s(answer.headers.get("retry-after"), now))


def _drain(answer: httpx.Response) -> None:
    """Read a short answer to its end, so that its sender is not cut off; of a long one only so much."""
    taken = 0
    for piece in answer.iter_raw(ANSWER_MAX_BYTES):
        taken += len(piece)
        if taken >= ANSWER_MAX_BYTES:
            return


def _failed(detail: str) -> Outcome:
    return Outcome(error=detail[:ERROR_MAX_CHARS])


def _words_of(error: Exception) -> str:
    if is_untrusted(error):
        return "the receiver's certificate is none that is trusted here (`ca_file` names another authority)"
    if isinstance(error, httpx.ConnectError):
        return "the receiver cannot be connected to"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
        return "the receiver ended the connection, or its answer is no HTTP"
    return f"the receiver cannot be called ({type(error).__name__})"


def _retry_after_s(value: str | None, now: datetime) -> float | None:
    """Seconds, as a number or until a date; None: neither."""
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        until = parsedate_to_datetime(value)
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError, OverflowError):  # a zone of millions of hours is no date
        return None


def _authority(ca_file: str | None) -> ssl.SSLContext:
    # A file may be replaced by the next one at any time; this machine's own authorities are read once.
    return _machine() if ca_file is None else ssl.create_default_context(cafile=ca_file)


@lru_cache(maxsize=1)
def _machine() -> ssl.SSLContext:
    return ssl.create_default_context()
