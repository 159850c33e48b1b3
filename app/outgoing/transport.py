"""Outgoing connections on which a whole request has a deadline, however its bytes trickle.

httpx bounds each read and each write by itself: a peer that sends a byte now and then holds a request for
ever. Here every operation on a socket gets what is left of the time of the request that its thread makes.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

CONNECT_TIMEOUT_S = 5.0


class Deadline(threading.local):
    """Until when the request of this thread may last."""

    until_s: float | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Bound everything that this thread does on these connections in the block."""
        self.until_s = time.monotonic() + seconds
        try:
            yield
        finally:
            self.until_s = None

    @property
    def is_over(self) -> bool:
        """Whether the time of this thread's request has run out."""
        return self.until_s is not None and time.monotonic() >= self.until_s

    def left_s(self, timeout: float | None, error: type[httpcore.TimeoutException]) -> float | None:
        """What one operation may take.

        Raises: error: nothing is left.
        """
        if self.until_s is None:
            return timeout
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise error("the time of the whole request is over")
        return left_s if timeout is None else min(left_s, timeout)


class DeadlineTransport(httpx.HTTPTransport):
    """httpx's own, over sockets that know the deadline; neither proxies nor the environment are looked at."""

    def __init__(self, *, verify: ssl.SSLContext | bool, connections_max: int, deadline: Deadline) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._pool.close()
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(verify=verify, trust_env=False),
            max_connections=connections_max,
            max_keepalive_connections=connections_max,
            keepalive_expiry=CONNECT_TIMEOUT_S,
            network_backend=_Backend(deadline),
        )


class _Backend(httpcore.NetworkBackend):
    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection of which no operation outlasts the deadline."""
        left_s = self._deadline.left_s(timeout, httpcore.ConnectTimeout)
        stream = self._sockets.connect_tcp(host, port, left_s, local_address, socket_options)
        return _Stream(stream, self._deadline)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, within what is left."""
        return self._inner.read(max_bytes, self._deadline.left_s(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """All of it, within what is left: of a peer that takes a byte at a time too."""
        sock: socket.socket = self._inner.get_extra_info("socket")
        rest = memoryview(buffer)
        while rest:
            sock.settimeout(self._deadline.left_s(timeout, httpcore.WriteTimeout))
            try:
                rest = rest[sock.send(rest) :]
            except TimeoutError as error:
                raise httpcore.WriteTimeout(error) from error
            except OSError as error:
                raise httpcore.WriteError(error) from error

    def close(self) -> None:
        """End it."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """The same connection, under TLS."""
        left_s = self._deadline.left_s(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left_s), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """As httpcore asks for it."""
        return self._inner.get_extra_info(info)


def is_untrusted(error: BaseException) -> bool:
    """Whether a connection was refused here, because the peer's certificate is none that is trusted."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
