"""Made by `make client` from lethe_client/job_events.py: change that, not this."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import httpx

from lethe_client.asynchronous.streaming import frames, lines
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.decoding import decode
from lethe_client.errors import LetheError, ProblemError, TransportFailed, UnexpectedAnswer
from lethe_client.job_events import SILENCE_MAX_S, _ends, _sequence
from lethe_client.paths import resource
from lethe_client.results import Job, JobEvent
from lethe_client.retries import Following, passing
from lethe_client.transport import Call


async def events(
    transport: AsyncTransport, job_id: str, *, last_event_id: int, look: Callable[[str], Awaitable[Job]]
) -> AsyncIterator[JobEvent]:
    """Yield the events after `last_event_id`; see the rules above.

    Args:
        look: reads the job, to tell a stream that ended with its job from one that ended with its service.
    Raises: ProblemError, TransportFailed: no connection in all the time that the policy allows.
    """
    policy = transport.retries
    stream = _Stream(transport, job_id, last=last_event_id)
    ended, following = (False, Following(policy))
    while True:
        before = stream.last
        failure: LetheError | None = None
        try:
            async with aclosing(stream.connection()) as connection:
                async for event in connection:
                    yield event
                    if _ends(event):
                        return
            if ended and stream.last == before:
                return
            ended = (await look(job_id)).ended
        except (ProblemError, TransportFailed) as error:
            failure = passing(error)
        has_moved = stream.last > before
        await policy.asleep(following.pause_s(failure, has_moved=has_moved, heard_at=stream.heard_at))


class _Stream:
    """The last event given out, and when the service was heard last."""

    def __init__(self, transport: AsyncTransport, job_id: str, *, last: int) -> None:
        self._transport = transport
        self._path = resource("jobs", job_id, "events")
        self.last = last
        self.heard_at = transport.retries.monotonic()

    async def connection(self) -> AsyncGenerator[JobEvent]:
        """Yield the new events of one connection, until the service ends it.

        Raises: ProblemError, TransportFailed: it was refused, cut, or silent for SILENCE_MAX_S.
        """
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.last:
            headers["Last-Event-ID"] = str(self.last)
        call = Call(method="GET", path=self._path, headers=headers, timeout_s=SILENCE_MAX_S)
        async with self._transport.stream(call) as response:
            if "application/json" in response.headers.get("content-type", ""):
                raise UnexpectedAnswer(f"{self._path} answered JSON where a stream of events was asked for")
            try:
                async for frame in frames(self._heard(lines(response.aiter_bytes()))):
                    named = {"type": frame.event, "seq": _sequence(frame.id)}
                    event = decode(JobEvent, named | frame.document())
                    if event.seq > self.last:
                        self.last = event.seq
                        yield event
            except httpx.TransportError as error:
                request_id = response.request.headers["x-request-id"]
                detail = f"the stream of events was cut: {error or type(error).__name__}"
                raise TransportFailed(detail, maybe_done=False, request_id=request_id) from error

    async def _heard(self, stream: AsyncIterable[str]) -> AsyncIterator[str]:
        """Note the time of every line: a comment also says that the service lives."""
        async for line in stream:
            self.heard_at = self._transport.retries.monotonic()
            yield line
