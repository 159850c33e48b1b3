"""Connections of strangers: how many there are, and how long one may take to say what it wants.

Invariants:
- whoever is let in is counted until his socket is closed, a TLS handshake included;
- where the door is full, the oldest connection without a request in work goes for the newcomer: of the same
  address where that address is full. So a probe is answered however many others are idle;
- a connection whose whole request has arrived has no limit here: long polls and streams last;
- time during which we do not read a body is not the client's.
Only the event loop's thread touches it.
"""

import errno
import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import structlog

ACCEPTS_PER_PASS_MAX: Final = 64
"""Between two of them the loop meets those who are in already; each costs a descriptor from its accept on."""
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
logger = structlog.get_logger("lethe.http")


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """How many, and how long; `per_address_max` None: behind a proxy, whose address is everybody's."""

    connections_max: int
    spare: int
    """So many more are open for a moment: who goes for a newcomer is not gone at once."""
    per_address_max: int | None
    headers_s: float
    body_chunk_s: float
    body_s: float


class Visit:
    """One connection.

    Attributes:
        is_at_rest: no request is in work: it may go for another.
        until: when it is closed unless something comes (monotonic seconds).
        is_paused: whether we have stopped reading from it.
    """

    __slots__ = ("_body_until", "_limits", "address", "is_at_rest", "is_paused", "sock", "until")

    def __init__(self, sock: "VisitorSocket", address: str, limits: DoorLimits, *, now: float) -> None:
        self.sock = sock
        self.address = address
        self.is_at_rest = True
        self.until = now + limits.headers_s
        self.is_paused: Callable[[], bool] = lambda: False
        self._limits = limits
        self._body_until = math.inf

    def says_something(self, *, now: float) -> None:
        """Bytes came: of headers the first ones begin their time, of a body each."""
        if self.is_at_rest:
            self.until = min(self.until, now + self._limits.headers_s)
        elif self.until != math.inf:
            self.until = min(now + self._limits.body_chunk_s, self._body_until)

    def rest(self) -> None:
        """Nothing is asked for now; the server's keep-alive ends it."""
        if not self.is_at_rest:
            self.is_at_rest, self.until, self._body_until = True, math.inf, math.inf

    def send_body(self, *, now: float) -> None:
        """Headers are here, the body is not."""
        if self.is_at_rest or self.until == math.inf:
            self.is_at_rest = False
            self._body_until = now + self._limits.body_s
            self.until = min(now + self._limits.body_chunk_s, self._body_until)

    def wait_for_answer(self) -> None:
        """All of the request is here."""
        self.is_at_rest, self.until, self._body_until = False, math.inf, math.inf

    def give_time(self, seconds: float) -> None:
        """We did not read."""
        self.until += seconds
        self._body_until += seconds

    def end(self) -> None:
        """Close it from this side; the server finds its end."""
        self.is_at_rest, self.until = False, math.inf
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has gone by itself
            return


class VisitorSocket(socket.socket):
    """An accepted socket that tells when it is closed."""

    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it, and tell once."""
        on_close, self.on_close = self.on_close, None
        super().close()
        if on_close is not None:
            on_close()


class Door:
    """All connections of a process."""

    def __init__(self, limits: DoorLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self._visits: dict[int, Visit] = {}
        self._by_address: dict[str, dict[int, Visit]] = {}
        self._swept_at = clock()
        self.on_change: Callable[[], None] = lambda: None
        """Called when somebody has come in or left."""

    def __len__(self) -> int:
        return len(self._visits)

    def visit(self, fd: int) -> Visit | None:
        """The connection of a descriptor."""
        return self._visits.get(fd)

    def let_in(self, conn: socket.socket, address: str) -> VisitorSocket | None:
        """Count an accepted socket; None: there is no room, and it is closed."""
        if not self._has_room(address):
            conn.close()
            return None
        sock = VisitorSocket(conn.family, conn.type, conn.proto, fileno=conn.detach())
        fd = sock.fileno()
        assert fd not in self._visits, "who has left is still counted"
        visit = Visit(sock, address, self.limits, now=self.clock())
        self._visits[fd] = visit
        self._by_address.setdefault(address, {})[fd] = visit
        sock.on_close = lambda: self._left(fd, address)
        self.on_change()
        return sock

    def is_full(self, address: str) -> bool:
        """Whether somebody has to go for one more."""
        most = self.limits.per_address_max
        is_crowded = most is not None and len(self._by_address.get(address, {})) >= most
        return is_crowded or len(self._visits) >= self.limits.connections_max

    def make_room(self) -> bool:
        """End the oldest connection without a request in work; whether there was one."""
        return _end_oldest(self._visits)

    def sweep(self) -> None:
        """End what has taken too long; to be called about once a second."""
        now = self.clock()
        elapsed, self._swept_at = now - self._swept_at, now
        late = 0
        for visit in list(self._visits.values()):
            if visit.until == math.inf:
                continue
            if visit.is_paused():
                visit.give_time(elapsed)
            elif visit.until <= now:
                late += 1
                visit.end()
        if late:
            logger.warning("connections closed: their requests did not come", closed=late)

    def _has_room(self, address: str) -> bool:
        of_address = self._by_address.get(address, {})
        most = self.limits.per_address_max
        if most is not None and len(of_address) >= most:
            return _end_oldest(of_address)
        return len(self._visits) < self.limits.connections_max or self.make_room()

    def _left(self, fd: int, address: str) -> None:
        self._visits.pop(fd, None)
        of_address = self._by_address[address]
        of_address.pop(fd, None)
        if not of_address:
            del self._by_address[address]
        self.on_change()


def _end_oldest(visits: dict[int, Visit]) -> bool:
    for visit in visits.values():
        if visit.is_at_rest:
            visit.end()
            return True
    return False


class Listener(socket.socket):
    """A listening socket whose connections pass the door; asyncio accepts until it is told to stop."""

    door: Door
    is_our_turn: Callable[[], bool]
    _accepted = 0
    _is_resting = False

    @classmethod
    def over(cls, bound: socket.socket, door: Door, is_our_turn: Callable[[], bool] = lambda: True) -> Self:
        """Take over a socket that is bound.

        Args:
            is_our_turn: whether this process takes the next one, where others listen there too.
        """
        listener = cls(bound.family, bound.type, bound.proto, fileno=bound.detach())
        listener.door = door
        listener.is_our_turn = is_our_turn
        return listener

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept one connection.

        Raises:
            BlockingIOError: nobody is there, another process shall take him, or the loop has others to see
                to first.
            OSError: no descriptor is left: asyncio says so, and comes back in a second.
        """
        if self._accepted >= ACCEPTS_PER_PASS_MAX or self._is_resting:
            self._accepted, self._is_resting = 0, False
            raise BlockingIOError
        if not self.is_our_turn():
            self._accepted = 0
            raise BlockingIOError
        try:
            conn, address = super().accept()
        except BlockingIOError:
            self._accepted = 0
            raise
        except OSError as error:
            if error.errno in _OUT_OF_RESOURCES:
                self._is_resting = True
                self.door.make_room()
            raise
        # Whoever goes for a newcomer gives his descriptor back only when the loop comes round.
        host = str(address[0]) if isinstance(address, tuple) else ""  # of a socket in a folder there is none
        is_full = self.door.is_full(host)
        self._accepted += math.ceil(ACCEPTS_PER_PASS_MAX / self.door.limits.spare) if is_full else 1
        entered = self.door.let_in(conn, host)
        if entered is None:
            logger.warning("connection refused: too many are open", open=len(self.door))
            raise BlockingIOError
        return entered, address
