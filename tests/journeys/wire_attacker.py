"""Somebody with a peer's token, a key of his own and no scruples: he says what no supplier would say."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.kit.ids import new_id
from app.replication.peer.answers import Acquired, PeerRefused, PeerReplica
from app.replication.peer.client import ConsumerAddress, PeerClient
from spark.formats.changes.batch import encode_arrow
from spark.formats.csn import Csn
from spark.replication.proofs.identity import head_message, introduction
from spark.replication.proofs.proved_batches import encode_with
from spark.replication.proofs.values import BatchProof, Head, History, RidProof
from tests.journeys.replicas import GENERATION
from tests.journeys.wire_sites import Node

DAY_S = 86_400
BUSY_MAX_S = 15.0
_rids = itertools.count(9)


class Attacker:
    """One of them, at one replica.

    Args:
        rid: that he says is his; None: one that nobody has said yet.
        port: of a wire to the victim; None: there is none between them.
    """

    def __init__(self, victim: Node, *, rid: int | None = None, port: int | None = None) -> None:
        body = {"name": "attacker", "role": "peer", "stores": [victim.store]}
        token = str(victim.done("POST", "/v1/tokens", 201, json=body)["token"])
        self.victim, self.token = victim, token
        self.rid = next(_rids) if rid is None else rid
        url = f"http://127.0.0.1:{port or victim.service.port}"
        self.client = PeerClient(ConsumerAddress(url, victim.store, token))
        self._key = Ed25519PrivateKey.generate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    @property
    def public_key(self) -> bytes:
        """His own."""
        return self._key.public_key().public_bytes_raw()

    def look(self) -> PeerReplica:
        """What the victim tells any peer."""
        return self.client.ruv()

    def echo(self, seen: PeerReplica) -> History:
        """The victim's own history, as if it were his."""
        assert seen.history is not None
        heads = seen.history.heads
        return History(self.public_key, heads, {}, {rid: replace(head) for rid, head in heads.items()})

    def signed(self, rid: int, csn: Csn, chain: bytes) -> Head:
        """A head of another replica, with a signature of his."""
        return Head(csn, chain, self._key.sign(head_message(rid, csn, chain)))

    def acquire(
        self,
        *,
        ruv: Mapping[int, Csn],
        history: History,
        mode: str = "INCREMENTAL",
        csn_now: Csn | None = None,
        generation: str = GENERATION,
        session_id: str | None = None,
        **fields: Any,
    ) -> tuple[str, Acquired]:
        """Ask for the lease; the session and what was granted.

        Raises: PeerRefused.
        """
        name, now = session_id or new_id("rps"), csn_now or self.csn()
        said = introduction(self.rid, store=self.victim.store, session_id=name, csn_now=str(now))
        supplier = {
            "store": "attacker",
            "rid": self.rid,
            "generation": generation,
            "ruv": {str(rid): str(csn) for rid, csn in ruv.items()},
            "csn_now": str(now),
            "capabilities": ["CHANGE", "KEEPALIVE", "TOTAL", "ARROW_ZSTD", "EXTINCTION", "HISTORY"],
            "history": history.document(),
            "signature": self._key.sign(said).hex(),
        }
        body = {"protocol": 1, "session_id": name, "mode": mode, "supplier": supplier, "lease": "PT60S"}
        deadline = time.monotonic() + BUSY_MAX_S
        while True:
            try:
                return name, self.client.acquire(body | fields)
            except PeerRefused as error:
                if error.code != "REPLICA_BUSY" or time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def refused(self, **fields: Any) -> str:
        """The code with which an acquire is refused."""
        try:
            name, granted = self.acquire(**fields)
        except PeerRefused as error:
            return error.code
        self.release(name, granted.epoch)
        return "GRANTED"

    def release(self, name: str, epoch: int) -> None:
        """Give the lease back."""
        with suppress(PeerRefused):
            self.client.release(name, epoch=epoch)

    def csn(self, *, rid: int | None = None, ahead_s: int = 0) -> Csn:
        """Of now, or of a time to come."""
        return Csn.of(int(time.time()) + ahead_s, 0, rid or self.rid)

    def send(
        self, name: str, epoch: int, batch: pa.RecordBatch, proof: BatchProof | None, *, batch_seq: int = 1
    ) -> str:
        """Send a batch; APPLIED, or the code with which it is refused."""
        body = encode_arrow(batch) if proof is None else encode_with(batch, proof)
        try:
            self.client.send(name, epoch=epoch, batch_seq=batch_seq, body=body)
        except PeerRefused as error:
            return error.code
        return "APPLIED"

    def proof(self, rid: int, csn: Csn, chain: bytes) -> BatchProof:
        """That a batch ends at a head which he has signed."""
        return BatchProof({rid: RidProof(None, chain, self.signed(rid, csn, chain))})

    def unfinished(self, count: int) -> list[socket.socket]:
        """Requests whose bodies never end."""
        head = (
            f"POST /v1/replicas/{self.victim.store}/sessions/{new_id('rps')}/batches?epoch=1&batch_seq=1"
            f" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n"
            "Content-Type: application/vnd.apache.arrow.stream\r\nContent-Length: 1000000\r\n\r\n"
        )
        made = []
        for _ in range(count):
            made.append(socket.create_connection(("127.0.0.1", self.victim.service.port), timeout=5))
            made[-1].sendall(head.encode() + b"x" * 1_000)
        return made
