"""Made by `make client` from lethe_client/parameters.py: change that, not this."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.parameters import _path
from lethe_client.results import Parameter
from lethe_client.transport import Answer, Call


class Parameters:
    """`/v1/parameters` and `/v1/stores/{store}/parameters`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, store: str | None = None) -> AsyncIterator[Parameter]:
        async for parameter in pages.items(self._transport, _path(store), Parameter, page_size=None):
            yield replace(parameter, store=store)

    async def get(self, name: str, *, store: str | None = None) -> Parameter:
        """Read a parameter by its name or an alias, with the value in effect."""
        call = Call(method="GET", path=_path(store, name), repeatable=True)
        return self._parameter(await self._transport.request(call), store=store)

    async def set(self, parameter: Parameter, value: Any) -> Parameter:
        """Give the parameter, as it was read, a value in its own scope.

        Raises: PreconditionFailed: somebody changed it since.
        """
        answer = await self._change(parameter, method="PUT", json={"value": value})
        return self._parameter(answer, store=parameter.store)

    async def unset(self, parameter: Parameter) -> None:
        """Take the value of the parameter's own scope away; what is beneath it takes effect."""
        await self._change(parameter, method="DELETE")

    async def _change(self, parameter: Parameter, *, method: str, json: Any = None) -> Answer:
        current = parameter if parameter.etag else await self.get(parameter.name, store=parameter.store)
        path = _path(parameter.store, parameter.name)
        headers = {"If-Match": current.etag} if current.etag else {}
        return await self._transport.request(Call(method=method, path=path, json=json, headers=headers))

    @staticmethod
    def _parameter(answer: Answer, *, store: str | None) -> Parameter:
        return replace(decode(Parameter, answer.body), store=store, etag=answer.etag)
