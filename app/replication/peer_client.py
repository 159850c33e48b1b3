"""A consumer as its supplier calls it: the wire protocol between services, over one pool of connections.

Invariants:
- the token is read from its reference when the client is made; it stands in no message and in no URL;
- redirects and proxies of the environment are not followed: only the host that an admin has named is called;
- no answer is read further than ANSWER_MAX_BYTES; what is not understood is PeerAnswerInvalid;
- `cut()` ends every request that is under way, from any thread; whether the consumer has done what they asked
  for is not known then.
"""

import json
import socket
import ssl
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from app.replication.content_digest import HEADER, digest_of, matches
from app.replication.peer_answers import (
    Acknowledged,
    Acquired,
    PeerAnswerDamaged,
    PeerAnswerInvalid,
    PeerRefused,
    PeerReplica,
    PeerUnanswered,
    read_acknowledged,
    read_acquired,
    read_replica,
    read_ruv,
    reading,
    shown_ruv,
)
from app.stores.targets import resolve_secret
from spark.formats.csn import Csn

PROTOCOL: Final = 1
ANSWER_MAX_BYTES: Final = 8 * 1024 * 1024
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
"""The consumer parks a batch up to 5 s for its predecessors, and then has to write it."""
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
AT_MAX: Final = 200
USER_AGENT: Final = "lethe-supplier/1"


@dataclass(frozen=True, slots=True)
class ConsumerAddress:
    """Where a consumer is, and how this service shows who it is; the token is a reference."""

    url: str
    store: str
    token: str
    ca_file: str | None = None


class PeerClient:
    """One consumer; any number of threads.

    Raises: SecretUnavailable: the token's reference names nothing. PeerAnswerInvalid: the CA file is none.
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
        token = resolve_secret(address.token)
        self._http = httpx.Client(
            base_url=address.url.rstrip("/"),
            headers={
                "Authorization": f"Bearer {token}",
                "User-Agent": USER_AGENT,
                "Accept": "application/json",
            },
            timeout=httpx.Timeout(answer_timeout_s, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=connections_max, max_keepalive_connections=connections_max),
            verify=_authority(address.ca_file),
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
        answer = self._call("POST", f"sessions/{quote(session_id, safe='')}/lease", json_body=body)
        with reading("the answer to a renewal"):
            return datetime.fromisoformat(answer["expires_at"])

    def complete_total(
        self, session_id: str, *, epoch: int, batch_seq: int, ruv: Mapping[int, str], generation: str
    ) -> Mapping[int, Csn]:
        """Tell the consumer that all entries were sent, and the vectors that belong to them.

        Args:
            batch_seq: the last batch of this epoch that was answered.
        Raises: PeerError.
        """
        body = {"epoch": epoch, "batch_seq": batch_seq, "ruv": shown_ruv(ruv), "generation": generation}
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
        if request.content:
            request.headers[HEADER] = digest_of(request.content)
        try:
            response = self._http.send(request, stream=True)
            try:
                text = _bounded(response)
            finally:
                response.close()
        except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError) as error:
            raise PeerUnanswered(f"{self.address.url}: {error or type(error).__name__}") from error
        if not matches(response.headers.get(HEADER), text):
            raise PeerAnswerDamaged(f"{self.address.url}: the answer does not match its Content-Digest")
        return _document(response, text)

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


def _authority(ca_file: str | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise PeerAnswerInvalid(f"the CA file {ca_file} cannot be used: {error}") from error


def _bounded(response: httpx.Response) -> bytes:
    parts = bytearray()
    for part in response.iter_bytes():
        parts += part
        if len(parts) > ANSWER_MAX_BYTES:
            raise PeerAnswerInvalid(f"an answer of more than {ANSWER_MAX_BYTES} bytes")
    return bytes(parts)


def _document(response: httpx.Response, text: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
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
