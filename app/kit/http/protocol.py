"""uvicorn's HTTP/1.1 on connections that a door has let in: it tells the door what each is waiting for."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.kit.door import Door, Visit


class TimedProtocol(H11Protocol):
    """One connection; `door` is set by `timed_by`."""

    door: Door
    visit: Visit | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Find the visit that the listener has noted."""
        super().connection_made(transport)
        sock: Any = transport.get_extra_info("socket")
        self.visit = self.door.visit(sock.fileno())
        if self.visit is not None:
            self.visit.is_paused = lambda: self.flow.read_paused

    def data_received(self, data: bytes) -> None:
        """Read, and note what is still to come."""
        if self.visit is not None:
            self.visit.says_something(now=self.door.clock())
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        """Note that another request may come, or that the body of this one still does."""
        super().on_response_complete()
        self._note()

    def _note(self) -> None:
        if self.visit is None:
            return
        state = self.conn.their_state
        if state is h11.IDLE:
            self.visit.rest()
        elif state is h11.SEND_BODY:
            self.visit.send_body(now=self.door.clock())
        else:
            self.visit.wait_for_answer()


def timed_by(door: Door) -> type[TimedProtocol]:
    """The protocol of one server: uvicorn makes an instance of it for each connection."""
    return type("TimedProtocol", (TimedProtocol,), {"door": door})
