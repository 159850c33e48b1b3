"""Requests go to an address that was looked up, looked at, and then connected to."""

from typing import Final
from urllib.parse import urlsplit

import httpx

from spark.targets.hosts import HostList, Lookup, allowed_addresses, looked_up

PORTS: Final = {"http": 80, "https": 443}


def place_of_url(url: str) -> tuple[str, int]:
    """Host and port that a URL names."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, 443)


class JudgedTransport(httpx.BaseTransport):
    """Sends requests to allowed addresses of their host; TLS and the Host header go by its name.

    Raises: TargetHostNotAllowed: it has none, now. TargetUnreachable: it cannot be looked up.
    """

    def __init__(
        self, way: httpx.BaseTransport, hosts: tuple[HostList, ...], *, look_up: Lookup = looked_up
    ) -> None:
        self._way = way
        self._hosts = hosts
        self._look_up = look_up

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it to the first address that can be connected to."""
        host, url = request.url.host, request.url
        port = url.port or PORTS[url.scheme]
        fault: httpx.TransportError = httpx.ConnectError(f"{host} has no address", request=request)
        for address in allowed_addresses(self._hosts, host, port, look_up=self._look_up):
            request.url = url.copy_with(host=address)
            request.extensions = {**request.extensions, "sni_hostname": host}
            try:
                return self._way.handle_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # nothing of it was sent
                fault = error
            finally:
                request.url = url
        raise fault

    def close(self) -> None:
        """Give the connections back."""
        self._way.close()
