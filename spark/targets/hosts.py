"""Where a connection may lead: lists of hosts, judged by the address that is connected to.

Rules:
- a name is looked up once for a connection; what was looked up is judged, and only that is connected to;
- every list of a target has to allow an address;
- a name on a list does not lead to this machine's own addresses or to a link's: those are listed themselves;
- neither does it by an IPv6 address that a translator or a tunnel turns into one of these.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spark.targets.errors import TargetHostNotAllowed, TargetUnreachable

HostList = tuple[str, ...]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Lookup = Callable[[str, int], Iterable[str]]

OWN_SOCKET = "socket"
"""How a list names the driver's own default socket, which has no host."""
_TRANSLATED = tuple(
    ipaddress.IPv6Network(each) for each in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96")
)
"""Whose last 32 bits are an IPv4 address: NAT64, that of one's own network, SIIT, and of before."""
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line of a list: a name, an address, a network or a socket's directory."""

    name: str | None = None
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None = None
    is_range: bool = False
    directory: str | None = None
    port: int | None = None

    def holds(self, address: Address, port: int) -> bool:
        """Whether it is a network, or an address, that an address lies in."""
        if self.network is None or self.port not in (None, port):
            return False
        return address.version == self.network.version and address in self.network

    def names(self, host: str, port: int) -> bool:
        """Whether it is the name of a host."""
        return self.name == host and self.port in (None, port)


def parse_entry(text: str) -> _Entry:
    """Read one line of a list.

    Args:
        text: `db.example`, `db.example:5432`, `10.0.0.5` and `[::1]:5432` for who writes them so,
            `10.0.0.0/8` for names that lead into it too, `/run/postgresql`, or `socket` for the driver's own.
    Raises: ValueError.
    """
    if text.startswith("/"):
        return _Entry(directory=text.rstrip("/") or "/")
    if (network := _network(text)) is not None:
        return _Entry(network=network, is_range="/" in text)
    host, port = _with_port(text)
    if (network := _network(host.removeprefix("[").removesuffix("]"))) is not None:
        return _Entry(network=network, is_range="/" in host, port=port)
    name = normal_name(host)
    if _NAME.fullmatch(name) is None:
        raise ValueError("a host, host:port, an address, a network or the directory of a socket")
    return _Entry(name=name, port=port)


def normal_name(host: str) -> str:
    """A host as lists compare it: small letters, without the dot of the root."""
    return host.strip("[]").lower().rstrip(".")


def is_local_name(host: str) -> bool:
    """Whether a name says by itself that it is this machine."""
    return host == "localhost" or host.endswith(".localhost")


def may_connect(lists: Sequence[HostList], host: str, port: int) -> bool:
    """Whether a URL's host could be allowed, before it is looked up."""
    found, name = _literal(host), normal_name(host)
    if found is not None:
        return _is_allowed(lists, name, port, found, is_literal=True)
    return all(
        any(
            each.names(name, port) or (each.is_range and each.port in (None, port))
            for each in _entries(listed)
        )
        for listed in lists
    )


def check_socket(lists: Sequence[HostList], directory: str | None) -> None:
    """Refuse a socket that a list does not name; None is the driver's own.

    Raises: TargetHostNotAllowed.
    """
    wanted = OWN_SOCKET if directory is None else directory.rstrip("/") or "/"
    for listed in lists:
        if wanted not in {each.rstrip("/") or "/" for each in listed}:
            raise TargetHostNotAllowed(f"the socket {wanted} is none of the allowed hosts")


def looked_up(host: str, port: int) -> list[str]:
    """The addresses of a host by this machine's resolver. Raises: TargetUnreachable."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        detail = getattr(error, "strerror", None) or error
        raise TargetUnreachable(f"the host {host!r} cannot be looked up: {detail}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def allowed_addresses(
    lists: Sequence[HostList], host: str, port: int, *, look_up: Lookup = looked_up
) -> list[str]:
    """Look a host up, once, and tell which of its addresses may be connected to.

    Raises: TargetHostNotAllowed: none of them. TargetUnreachable: it has none.
    """
    literal = _literal(host)
    found = [str(literal)] if literal is not None else list(look_up(host, port))
    name = normal_name(host)
    is_literal = literal is not None
    allowed = [
        each for each in found if _is_allowed(lists, name, port, _address(each), is_literal=is_literal)
    ]
    if found and not allowed:
        shown = host if literal is not None else f"{host} ({', '.join(found)})"
        raise TargetHostNotAllowed(f"{shown}, port {port}, is none of the allowed hosts")
    return allowed


def are_loopback(addresses: Iterable[str]) -> bool:
    """Whether all of some addresses are this machine itself."""
    return all(_address(each).is_loopback for each in addresses)


def address_behind(address: Address) -> Address:
    """What an IPv6 address leads to where it holds an IPv4 address; any other is as it stands."""
    if not isinstance(address, ipaddress.IPv6Address) or address.is_loopback or address.is_unspecified:
        return address
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    client = None if address.teredo is None else address.teredo[1]
    return address.ipv4_mapped or address.sixtofour or client or address


def _is_allowed(
    lists: Sequence[HostList], name: str, port: int, address: Address, *, is_literal: bool
) -> bool:
    return all(_allows(_entries(listed), name, port, address, is_literal=is_literal) for listed in lists)


def _allows(entries: Sequence[_Entry], name: str, port: int, address: Address, *, is_literal: bool) -> bool:
    holding = [each for each in entries if each.holds(address, port)]
    if any(is_literal or each.is_range for each in holding):
        return True
    is_named = any(each.names(name, port) for each in entries)
    return is_named and (not _is_inner(address) or is_local_name(name) or bool(holding))


def _entries(listed: HostList) -> list[_Entry]:
    return [parse_entry(each) for each in listed]


def _is_inner(address: Address) -> bool:
    address = address_behind(address)
    return address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast


def _literal(host: str) -> Address | None:
    try:
        return _address(host.strip("[]"))
    except ValueError:
        return None


def _address(text: str) -> Address:
    found = ipaddress.ip_address(text)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _with_port(text: str) -> tuple[str, int | None]:
    host, separator, port = text.rpartition(":")
    if not separator:
        return text, None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ValueError("a port is a number from 1 to 65535")
    return host, int(port)
