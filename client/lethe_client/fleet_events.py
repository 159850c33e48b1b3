"""The events of all jobs, backups and sessions over as many connections as it takes.

Rules:
- an event is given out once and in order: what is not above the last number is dropped;
- none is missed: every connection goes on after the last number that the service has named, heard or not;
- where events in between are not kept any more, a `reset` is given out instead of them;
- a service that is not heard for as long as the retry policy says in all is given up.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import httpx

from lethe_client.decoding import decode
from lethe_client.errors import LetheError, ProblemError, TransportFailed, UnexpectedAnswer
from lethe_client.fleet_results import FleetEvent
from lethe_client.paths import collection
from lethe_client.retries import Following, passing
from lethe_client.streaming import Frame, frames, lines
from lethe_client.transport import Call, Transport

SILENCE_MAX_S: Final = 50.0
READY: Final = "ready"
RESET: Final = "reset"


def events(
    transport: Transport, params: Mapping[str, Any], *, last_event_id: int | None
) -> Iterator[FleetEvent]:
    """Yield the events after a number; see the rules above. It ends only by an error.

    Args:
        last_event_id: None: from now on.
    Raises:
        ProblemError: the service refuses, such as a token that was revoked.
        TransportFailed: it cannot be reached in all the time that the policy allows.
    """
    policy = transport.retries
    stream = _Stream(transport, params, last=last_event_id)
    following = Following(policy)
    while True:
        before = stream.last
        failure: LetheError | None = None
        try:
            with closing(stream.connection()) as connection:
                yield from connection
        except (ProblemError, TransportFailed) as error:
            failure = passing(error)
        has_moved = stream.last != before
        policy.sleep(following.pause_s(failure, has_moved=has_moved, heard_at=stream.heard_at))


class _Stream:
    """The last number that the service named, and when it was heard last."""

    def __init__(self, transport: Transport, params: Mapping[str, Any], *, last: int | None) -> None:
        self._transport = transport
        self._params = params
        self.last = last
        self.heard_at = transport.retries.monotonic()

    def connection(self) -> Generator[FleetEvent]:
        """Yield the new events of one connection, until the service ends it.

        Raises: ProblemError, TransportFailed: it was refused, cut, or silent for SILENCE_MAX_S.
        """
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.last is not None:
            headers["Last-Event-ID"] = str(self.last)
        path = collection("events")
        call = Call(method="GET", path=path, params=self._params, headers=headers, timeout_s=SILENCE_MAX_S)
        with self._transport.stream(call) as response:
            try:
                for frame in frames(self._heard(lines(response.iter_bytes()))):
                    event = self._taken(frame)
                    if event is not None:
                        yield event
            except httpx.TransportError as error:
                request_id = response.request.headers["x-request-id"]
                detail = f"the stream of events was cut: {error or type(error).__name__}"
                raise TransportFailed(detail, maybe_done=False, request_id=request_id) from error

    def _taken(self, frame: Frame) -> FleetEvent | None:
        """The event of a frame, or None where there is nothing to give out."""
        if not frame.id.isdigit():
            raise UnexpectedAnswer(f"an event without a number: {frame.id!r:.40}")
        number, last = int(frame.id), self.last
        if frame.event == RESET:
            self.last = number
            return FleetEvent(number=number, type=RESET)
        if frame.event == READY:
            self.last = number if last is None else last
            return None
        if last is not None and number <= last:
            return None
        self.last = number
        return decode(FleetEvent, frame.document())

    def _heard(self, stream: Iterable[str]) -> Iterator[str]:
        """Note the time of every line, and the numbers that come without an event: nothing was for us."""
        number, has_data = "", False
        for line in stream:
            self.heard_at = self._transport.retries.monotonic()
            if line.startswith("id: "):
                number = line.removeprefix("id: ")
            elif line.startswith("data:"):
                has_data = True
            elif not line:
                if number.isdigit() and not has_data and self.last is not None:
                    self.last = max(self.last, int(number))
                number, has_data = "", False
            yield line
