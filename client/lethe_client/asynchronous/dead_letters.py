"""Made by `make client` from lethe_client/dead_letters.py: change that, not this."""

from collections.abc import AsyncIterator

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.dead_letters import DeadLetter
from lethe_client.paths import resource


class DeadLetters:
    """`/v1/stores/{store}/dead-letters`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, store_id: str, *, open_only: bool = False) -> AsyncIterator[DeadLetter]:
        """Yield refused records by direction, peer and CSN."""
        params = {"open_only": True} if open_only else None
        path = resource("stores", store_id, "dead-letters")
        return pages.items(self._transport, path, DeadLetter, params=params)
