"""A consumer as its supplier calls it: the wire protocol between services, over one pool of connections.

Rules:
- the token stands in no message and in no URL;
- what is connected to is an address that was looked at (app.outgoing.hosts);
- redirects and proxies of the environment are not followed: only the host that an admin has named is called;
- no answer is read further than ANSWER_MAX_BYTES, none is taken compressed, and no request outlasts its
  deadline, however its bytes trickle; what is not understood is PeerAnswerInvalid;
- `cut()` ends every request that is under way, from any thread; whether the consumer has done what they asked
  for is not known then.
"""

import math
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from app.outgoing.hosts import JudgedTransport
from app.outgoing.transport import CONNECT_TIMEOUT_S, Deadline, DeadlineTransport, is_untrusted
from app.replication.peer.answers import (
    Acknowledged,
    Acquired,
    PeerAnswerDamaged,
    PeerAnswerInvalid,
    PeerCertificateInvalid,
    PeerError,
    PeerHostRefused,
    PeerRefused,
    PeerReplica,
    PeerTooSlow,
    PeerUnanswered,
    read_acknowledged,
    read_acquired,
    read_replica,
    read_ruv,
    reading,
    shown_ruv,
)
from app.replication.peer.content_digest import HEADER, TARGET_HEADER, digest_of, matches, target_digest
from app.replication.peer.json_answers import parse, read_bounded
from spark.formats.csn import Csn
from spark.targets.errors import TargetError, TargetHostNotAllowed

PROTOCOL: Final = 1
ANSWER_MAX_BYTES: Final = 8 * 1024 * 1024
SHORT_ANSWER_MAX_BYTES: Final = 64 * 1024
"""Of an answer without a vector."""
ANSWER_TIMEOUT_S: Final = 30.0
"""The consumer parks a batch up to 5 s for its predecessors, and then has to write it."""
DEADLINE_FACTOR: Final = 1.5
"""A whole request may last longer than one wait for its next byte."""
BODY_BYTES_PER_S: Final = 65_536
"""A large batch over a slow line has its time too."""
DEADLINE_LEAST_S: Final = 5.0
"""A request that is made at the end of a session's time has this long."""
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
AT_MAX: Final = 200
USER_AGENT: Final = "lethe-supplier/1"


@dataclass(frozen=True, slots=True)
class ConsumerAddress:
    """Where a consumer is, and how this service shows who it is.

    Attributes:
        hosts: lists of hosts (spark.targets.hosts), each of which must allow every connection.
    """

    url: str
    store: str
    token: str = field(repr=False)
    ca_file: str | None = None
    hosts: tuple[tuple[str, ...], ...] = ()


class PeerClient:
    """One consumer; any number of threads.

    Attributes:
        within_s: how long what the requests are for may last still; each has DEADLINE_LEAST_S all the same.
    Raises: PeerAnswerInvalid: the CA file is none.
    """

    def __init__(
        self,
        address: ConsumerAddress,
        *,
        connections_max: int = 2,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = address
        self._guard = threading.Lock()
        self._streams: list[Any] = []
        self._is_cut = False
        self._answer_timeout_s = answer_timeout_s
        self._deadline = Deadline()
        self.within_s: Callable[[], float] = lambda: math.inf
        if transport is None:
            verify = _authority(address.ca_file)
            way = DeadlineTransport(verify=verify, connections_max=connections_max, deadline=self._deadline)
            transport = JudgedTransport(way, address.hosts)
        self._http = httpx.Client(
            base_url=address.url.rstrip("/"),
            headers={
                "Authorization": f"Bearer {address.token}",
                "User-Agent": USER_AGENT,
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
            timeout=httpx.Timeout(answer_timeout_s, connect=CONNECT_TIMEOUT_S),
            trust_env=False,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def cut(self) -> None:
        """End every request under way, and let no new one begin. Any thread."""
        with self._guard:
            self._is_cut = True
            streams = list(self._streams)
        for stream in streams:
            found = stream.get_extra_info("socket")
            if isinstance(found, socket.socket):
                try:
                    found.shutdown(socket.SHUT_RDWR)
                except OSError:  # closed already
                    continue

    # -- the protocol

    def acquire(self, body: Mapping[str, Any]) -> Acquired:
        """Ask for the consumer's lease.

        Raises: PeerError.
        """
        answer = self._call("POST", "sessions", json_body=body)
        return read_acquired(answer)

    def send(self, session_id: str, *, epoch: int, batch_seq: int, body: bytes) -> Acknowledged:
        """Send one batch, encoded.

        Raises: PeerError.
        """
        answer = self._call(
            "POST",
            f"sessions/{quote(session_id, safe='')}/batches",
            params={"epoch": epoch, "batch_seq": batch_seq},
            content=body,
        )
        acknowledged = read_acknowledged(answer)
        if acknowledged.batch_seq != batch_seq:
            raise PeerAnswerDamaged(f"an answer to batch {acknowledged.batch_seq}, not to {batch_seq}")
        return acknowledged

    def renew(self, session_id: str, *, epoch: int, lease: str) -> datetime:
        """Keep the lease; until when it is ours then.

        Raises: PeerError.
        """
        body = {"epoch": epoch, "lease": lease}
        path = f"sessions/{quote(session_id, safe='')}/lease"
        answer = self._call("POST", path, json_body=body, bytes_max=SHORT_ANSWER_MAX_BYTES)
        with reading("the answer to a renewal"):
            return datetime.fromisoformat(answer["expires_at"])

    def complete_total(
        self,
        session_id: str,
        *,
        epoch: int,
        batch_seq: int,
        ruv: Mapping[int, str],
        generation: str,
        buried: str | None = None,
    ) -> Mapping[int, Csn]:
        """Tell the consumer that all entries were sent, and the vectors that belong to them.

        Args:
            batch_seq: the last batch of this epoch that was answered.
            buried: up to where tombstones were purged here; None: a version that knows no bound may be told.
        Raises: PeerError.
        """
        body = {"epoch": epoch, "batch_seq": batch_seq, "ruv": shown_ruv(ruv), "generation": generation}
        if buried is not None:
            body["buried"] = buried
        path = f"sessions/{quote(session_id, safe='')}:complete-total"
        answer = self._call("POST", path, json_body=body)
        with reading("the answer to complete-total"):
            return read_ruv(answer["ruv"])

    def release(
        self, session_id: str, *, epoch: int, complete: bool = False, batch_seq: int = 0
    ) -> Mapping[str, Any]:
        """Give the lease back; again and again the same answer.

        Args:
            batch_seq: with `complete` the last batch of this epoch that was answered.
        Raises: PeerError.
        """
        params: dict[str, Any] = {"epoch": epoch, "complete": "true" if complete else "false"}
        if complete:
            params["batch_seq"] = batch_seq
        return self._call("DELETE", f"sessions/{quote(session_id, safe='')}", params=params)

    def ruv(self, *, at: Collection[Csn] = ()) -> PeerReplica:
        """Ask for the consumer's vectors, without a session.

        Args:
            at: CSNs whose place in its history is wanted; AT_MAX of them are asked for.
        Raises: PeerError.
        """
        answer = self._call("GET", "ruv", params={"at": [str(csn) for csn in at][:AT_MAX]} if at else None)
        with reading("the answer to ruv"):
            return read_replica(answer)

    def digests(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask for counts and checksums; the answer as it is.

        Raises: PeerError.
        """
        return self._call("POST", "digests", json_body=body)

    # -- one request

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json_body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        bytes_max: int = ANSWER_MAX_BYTES,
    ) -> Mapping[str, Any]:
        with self._guard:
            if self._is_cut:
                raise PeerUnanswered("the connections were cut")
        request = self._http.build_request(
            method,
            f"/v1/replicas/{quote(self.address.store, safe='')}/{path}",
            params=params,
            json=json_body,
            content=content,
            headers={"Content-Type": ARROW_STREAM} if content is not None else None,
            extensions={"trace": self._trace},
        )
        request.headers[TARGET_HEADER] = target_digest(method, request.url.raw_path.decode("ascii"))
        if request.content:
            request.headers[HEADER] = digest_of(request.content)
        seconds = self._seconds(0 if content is None else len(content))
        with self._deadline.within(seconds):
            try:
                response = self._http.send(request, stream=True)
                try:
                    text = read_bounded(response, bytes_max=bytes_max)
                finally:
                    response.close()
            except TargetHostNotAllowed as error:
                raise PeerHostRefused(error.detail) from error
            except TargetError as error:
                raise PeerUnanswered(f"{self.address.url}: {error.detail}") from error
            except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError) as error:
                raise self._unanswered(error, seconds) from error
        if not matches(response.headers.get(HEADER), text):
            raise PeerAnswerDamaged(f"{self.address.url}: the answer does not match its Content-Digest")
        return _document(response, text)

    def _seconds(self, body_bytes: int) -> float:
        """How long one request may last, from its first byte to the last of its answer."""
        whole_s = DEADLINE_FACTOR * self._answer_timeout_s + body_bytes / BODY_BYTES_PER_S
        return max(DEADLINE_LEAST_S, min(whole_s, self.within_s()))

    def _unanswered(self, error: Exception, seconds: float) -> PeerError:
        if is_untrusted(error):
            return PeerCertificateInvalid(f"{self.address.url}: {error}")
        if self._deadline.is_over:
            return PeerTooSlow(f"{self.address.url}: no whole answer within {seconds:.0f} s")
        return PeerUnanswered(f"{self.address.url}: {error or type(error).__name__}")

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Know the sockets, so that `cut` can end what waits on them."""
        made = ("connection.connect_tcp.complete", "connection.start_tls.complete")
        if event in made and info.get("return_value") is not None:
            with self._guard:
                # A connection that was given up is closed; few are made, so the list stays short.
                open_ones = [each for each in self._streams if _is_open(each)]
                self._streams = [*open_ones, info["return_value"]]


def _is_open(stream: Any) -> bool:
    found = stream.get_extra_info("socket")
    return isinstance(found, socket.socket) and found.fileno() != -1


@lru_cache(maxsize=1)
def _machine() -> ssl.SSLContext:
    """The authorities of this machine, read once: it takes longer than many requests."""
    return httpx.create_ssl_context(trust_env=False)


def _authority(ca_file: str | None) -> ssl.SSLContext:
    if ca_file is None:
        return _machine()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise PeerAnswerInvalid(f"the CA file {ca_file} cannot be used: {error}") from error


def _document(response: httpx.Response, text: bytes) -> Mapping[str, Any]:
    document = parse(text)
    status = response.status_code
    if 200 <= status < 300 and isinstance(document, dict):
        return document
    if status >= 400:
        facts = document if isinstance(document, dict) else {}
        raise PeerRefused(
            status,
            str(facts.get("code") or f"HTTP_{status}"),
            str(facts.get("detail") or response.reason_phrase),
            retry_after_s=_retry_after_s(response),
            facts=facts,
        )
    raise PeerAnswerInvalid(f"{status} without a JSON object: is this a Lethe service?")


def _retry_after_s(response: httpx.Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
