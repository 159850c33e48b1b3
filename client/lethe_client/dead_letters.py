"""Dead letters: records that a consumer refused."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from lethe_client import pages
from lethe_client.paths import resource
from lethe_client.results import Result
from lethe_client.transport import Transport


@dataclass(frozen=True, kw_only=True)
class DeadLetter(Result):
    """`direction` is SENT (the consumer of the agreement `peer` refused it) or RECEIVED (this replica did).

    `database`, `key` and `payload` are base64 of 4,096 bytes at most; a longer payload is None.
    """

    direction: str
    peer: str
    rid: int
    csn: str
    kind: str = ""
    database: str = ""
    key: str = ""
    payload: str | None = None
    database_bytes: int | None = None
    key_bytes: int | None = None
    payload_bytes: int | None = None
    code: str = ""
    detail: str = ""
    attempts: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    resolved_at: datetime | None = None


class DeadLetters:
    """`/v1/stores/{store}/dead-letters`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, store_id: str, *, open_only: bool = False) -> Iterator[DeadLetter]:
        """Yield refused records by direction, peer and CSN."""
        params = {"open_only": True} if open_only else None
        path = resource("stores", store_id, "dead-letters")
        return pages.items(self._transport, path, DeadLetter, params=params)
