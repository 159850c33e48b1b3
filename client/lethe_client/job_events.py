"""The events of one job over as many connections as it takes.

Rules:
- an event is given out once: sequence numbers that are not greater than the last one are dropped;
- none is missed: every connection asks from the last one given out, and the stream counts as ended only when
  the terminal state's event was given out, or the job has ended and a further connection, ended by the
  service itself and not by a fault, brought nothing;
- a service that is not heard for as long as the retry policy says in all is given up.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Final

import httpx

from lethe_client.decoding import decode
from lethe_client.errors import LetheError, ProblemError, TransportFailed, UnexpectedAnswer
from lethe_client.paths import resource
from lethe_client.results import TERMINAL, Job, JobEvent
from lethe_client.retries import Following, passing
from lethe_client.streaming import frames, lines
from lethe_client.transport import Call, Transport

# The service sends a comment every 15 s; three of them missing mean that the connection is dead.
SILENCE_MAX_S: Final = 50.0


def events(
    transport: Transport, job_id: str, *, last_event_id: int, look: Callable[[str], Job]
) -> Iterator[JobEvent]:
    """Yield the events after `last_event_id`; see the rules above.

    Args:
        look: reads the job, to tell a stream that ended with its job from one that ended with its service.
    Raises: ProblemError, TransportFailed: no connection in all the time that the policy allows.
    """
    policy = transport.retries
    stream = _Stream(transport, job_id, last=last_event_id)
    ended, following = False, Following(policy)
    while True:
        before = stream.last
        failure: LetheError | None = None
        try:
            with closing(stream.connection()) as connection:
                for event in connection:
                    yield event
                    if _ends(event):
                        return
            if ended and stream.last == before:
                return
            ended = look(job_id).ended
        except (ProblemError, TransportFailed) as error:
            failure = passing(error)
        has_moved = stream.last > before
        policy.sleep(following.pause_s(failure, has_moved=has_moved, heard_at=stream.heard_at))


class _Stream:
    """The last event given out, and when the service was heard last."""

    def __init__(self, transport: Transport, job_id: str, *, last: int) -> None:
        self._transport = transport
        self._path = resource("jobs", job_id, "events")
        self.last = last
        self.heard_at = transport.retries.monotonic()

    def connection(self) -> Generator[JobEvent]:
        """Yield the new events of one connection, until the service ends it.

        Raises: ProblemError, TransportFailed: it was refused, cut, or silent for SILENCE_MAX_S.
        """
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.last:
            headers["Last-Event-ID"] = str(self.last)
        call = Call(method="GET", path=self._path, headers=headers, timeout_s=SILENCE_MAX_S)
        with self._transport.stream(call) as response:
            if "application/json" in response.headers.get("content-type", ""):
                raise UnexpectedAnswer(f"{self._path} answered JSON where a stream of events was asked for")
            try:
                for frame in frames(self._heard(lines(response.iter_bytes()))):
                    named = {"type": frame.event, "seq": _sequence(frame.id)}
                    event = decode(JobEvent, named | frame.document())
                    if event.seq > self.last:
                        self.last = event.seq
                        yield event
            except httpx.TransportError as error:
                request_id = response.request.headers["x-request-id"]
                detail = f"the stream of events was cut: {error or type(error).__name__}"
                raise TransportFailed(detail, maybe_done=False, request_id=request_id) from error

    def _heard(self, stream: Iterable[str]) -> Iterator[str]:
        """Note the time of every line: a comment also says that the service lives."""
        for line in stream:
            self.heard_at = self._transport.retries.monotonic()
            yield line


def _sequence(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _ends(event: JobEvent) -> bool:
    """Tell whether this is the event of the terminal state."""
    return event.type == "state" and event.data.get("state") in TERMINAL
