"""Signing keys: the public ones that certificates are checked with."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.results import Result
from lethe_client.transport import Call, Transport

NAME = "signing-keys"


@dataclass(frozen=True, kw_only=True)
class SigningKey(Result):
    """A public key in base64; `id` is its fingerprint. A retired one signs no more, what it signed holds."""

    id: str
    public_key: str
    algorithm: str = "Ed25519"
    instance: str = ""
    created_at: datetime | None = None
    retired_at: datetime | None = None


class SigningKeys:
    """`/v1/signing-keys`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[SigningKey]:
        return pages.items(self._transport, collection(NAME), SigningKey)

    def get(self, key_id: str) -> SigningKey:
        call = Call(method="GET", path=resource(NAME, key_id), repeatable=True)
        return decode(SigningKey, self._transport.request(call).body)

    def rotate(self, *, idempotency_key: str | None = None) -> SigningKey:
        """Let the service sign with a new key from now on; returns it."""
        path = f"{collection(NAME)}:rotate"
        call = Call(method="POST", path=path, creates=True, idempotency_key=idempotency_key)
        return decode(SigningKey, self._transport.request(call).body)
