"""The text that names a master: what it may be, and how this machine reaches it. Speaks to nobody but it."""

import re
import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

from spark.pool.errors import SparkStartFailed
from spark.targets.target import is_loopback

STANDALONE: Final = "spark://"
KUBERNETES: Final = "k8s://"
LOCAL: Final = re.compile(r"local(\[(\*|[1-9][0-9]*)(,[1-9][0-9]*)?\])?")
PLACE: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
ANSWER_TIMEOUT_S: Final = 2.0
AWAY_POLL_S: Final = 0.5
PORT_MAX: Final = 65_535


def check_master(text: str) -> str:
    """Return a master's text that a session can be started with.

    Raises: ValueError: it is none.
    """
    if LOCAL.fullmatch(text) or (text.startswith(KUBERNETES) and text != KUBERNETES) or text == "yarn":
        return text
    if text.startswith(STANDALONE):
        addresses_of(text)
        return text
    raise ValueError("a master is local[N], spark://host:port, k8s://https://host:port or yarn")


def addresses_of(master: str) -> list[tuple[str, int]]:
    """Hosts and ports of a `spark://` master, of which there may be several; [] for any other kind.

    Raises: ValueError: it names no host with a port.
    """
    if not master.startswith(STANDALONE):
        return []
    found = []
    for part in master.removeprefix(STANDALONE).split(","):
        place = PLACE.fullmatch(part)
        if place is None or not 0 < int(place["port"]) <= PORT_MAX:
            raise ValueError(f"{part!r} is not host:port, as in spark://host:7077")
        found.append((place["host"].strip("[]"), int(place["port"])))
    return found


def is_on_loopback(master: str) -> bool:
    """Whether it listens to this machine only, so that its workers run here too."""
    hosts = [host for host, _port in addresses_of(master)]
    return bool(hosts) and all(is_loopback(host) for host in hosts)


def own_address_towards(master: str) -> str | None:
    """This machine's address on the way to a master: executors beside it find us there; None: unknown.

    Sends nothing. Spark's own choice is what the machine's name resolves to, often an address of no use.
    """
    for host, port in addresses_of(master):
        with suppress(OSError):
            [(family, kind, protocol, _name, address), *_] = socket.getaddrinfo(
                host, port, type=socket.SOCK_DGRAM
            )
            with closing(socket.socket(family, kind, protocol)) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return None


def answers(master: str) -> bool:
    """Whether somebody listens where a `spark://` master should; True for what cannot be asked so."""
    places = addresses_of(master)
    return not places or any(_listens(place) for place in places)


def _listens(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=ANSWER_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def await_master(master: str, *, patience_s: float, should_stop: Callable[[], bool]) -> None:
    """Wait until the master listens: cheaper than a JVM, which gives up after a minute and ends.

    Raises: SparkStartFailed: BAD_MASTER; MASTER_AWAY after the patience; STOPPED.
    """
    try:
        addresses_of(master)
    except ValueError as error:
        raise SparkStartFailed("BAD_MASTER", str(error)) from error
    deadline = time.monotonic() + patience_s
    while not answers(master):
        if should_stop():
            raise SparkStartFailed("STOPPED", "the start was given up")
        if time.monotonic() >= deadline:
            raise SparkStartFailed("MASTER_AWAY", f"nobody listens at {master}")
        time.sleep(AWAY_POLL_S)
