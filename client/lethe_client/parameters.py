"""Parameters: the seeds' names, for all stores or for one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lethe_client import pages
from lethe_client.decoding import decode
from lethe_client.paths import collection, resource
from lethe_client.results import Parameter
from lethe_client.transport import Answer, Call, Transport


def _path(store: str | None, name: str | None = None) -> str:
    if store is None:
        return collection("parameters") if name is None else resource("parameters", name)
    return resource("stores", store, *(("parameters",) if name is None else ("parameters", name)))


class Parameters:
    """`/v1/parameters` and `/v1/stores/{store}/parameters`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, store: str | None = None) -> Iterator[Parameter]:
        for parameter in pages.items(self._transport, _path(store), Parameter, page_size=None):
            yield replace(parameter, store=store)

    def get(self, name: str, *, store: str | None = None) -> Parameter:
        """Read a parameter by its name or an alias, with the value in effect."""
        call = Call(method="GET", path=_path(store, name), repeatable=True)
        return self._parameter(self._transport.request(call), store=store)

    def set(self, parameter: Parameter, value: Any) -> Parameter:
        """Give the parameter, as it was read, a value in its own scope.

        Raises: PreconditionFailed: somebody changed it since.
        """
        answer = self._change(parameter, method="PUT", json={"value": value})
        return self._parameter(answer, store=parameter.store)

    def unset(self, parameter: Parameter) -> None:
        """Take the value of the parameter's own scope away; what is beneath it takes effect."""
        self._change(parameter, method="DELETE")

    def _change(self, parameter: Parameter, *, method: str, json: Any = None) -> Answer:
        current = parameter if parameter.etag else self.get(parameter.name, store=parameter.store)
        path = _path(parameter.store, parameter.name)
        headers = {"If-Match": current.etag} if current.etag else {}
        return self._transport.request(Call(method=method, path=path, json=json, headers=headers))

    @staticmethod
    def _parameter(answer: Answer, *, store: str | None) -> Parameter:
        return replace(decode(Parameter, answer.body), store=store, etag=answer.etag)
