"""Made by `make client` from lethe_client/spark_pool.py: change that, not this."""

from typing import Any

from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.paths import collection
from lethe_client.results import SparkPoolState
from lethe_client.transport import Call


class SparkPool:
    """`/v1/spark-pool`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> SparkPoolState:
        """State, slots, queue and counters."""
        call = Call(method="GET", path=collection("spark-pool"), repeatable=True)
        return decode(SparkPoolState, (await self._transport.request(call)).body)

    async def recycle(
        self, *, force: bool = False, reason: str | None = None, idempotency_key: str | None = None
    ) -> SparkPoolState:
        """Replace the JVM once what runs has ended, or at once with `force`: its units are run again."""
        return await self._order("recycle", {"force": force}, reason, idempotency_key)

    async def drain(self, *, reason: str | None = None, idempotency_key: str | None = None) -> SparkPoolState:
        """Give no more slots until `resume`; what runs goes on."""
        return await self._order("drain", {}, reason, idempotency_key)

    async def resume(
        self, *, reason: str | None = None, idempotency_key: str | None = None
    ) -> SparkPoolState:
        """Take back `drain`."""
        return await self._order("resume", {}, reason, idempotency_key)

    async def _order(
        self, verb: str, body: dict[str, Any], reason: str | None, idempotency_key: str | None
    ) -> SparkPoolState:
        document = body if reason is None else body | {"reason": reason}
        path = f"{collection('spark-pool')}:{verb}"
        call = Call(method="POST", path=path, json=document, creates=True, idempotency_key=idempotency_key)
        return decode(SparkPoolState, (await self._transport.request(call)).body)
