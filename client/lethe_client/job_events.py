"""The events of one job over as many connections as it takes.

Invariants:
- an event is given out once: sequence numbers that are not greater than the last one are dropped;
- none is missed: every connection asks from the last one given out, and the stream counts as ended only when
  the terminal state's event was given out, or the job has ended and one more connection brought nothing;
- connections that cannot be made are tried again for as long as the retry policy says in all.
"""

from collections.abc import Callable, Iterator
from typing import Final

import httpx

from lethe_client.decoding import decode
from lethe_client.errors import LetheError, ProblemError, TransportFailed, UnexpectedAnswer
from lethe_client.paths import resource
from lethe_client.results import TERMINAL, Job, JobEvent
from lethe_client.streaming import frames, lines
from lethe_client.transport import Call, Transport

# The service sends a comment every 15 s; three of them missing mean that the connection is dead.
SILENCE_MAX_S: Final = 50.0


def events(
    transport: Transport,
    job_id: str,
    *,
    last_event_id: int,
    look: Callable[[str], Job],
) -> Iterator[JobEvent]:
    """Yield the events after `last_event_id`; see the invariants above.

    Args:
        look: reads the job, to tell a stream that ended with its job from one that was cut.
    Raises: ProblemError, TransportFailed: no connection in all the time that the policy allows.
    """
    policy = transport.retries
    last, fruitless, ended = last_event_id, 0, False
    reached = policy.monotonic()
    while True:
        before = last
        failure: LetheError | None = None
        try:
            for event in _connection(transport, job_id, last=last):
                if event.seq > last:
                    last = event.seq
                    yield event
                    if _ends(event):
                        return
            reached = policy.monotonic()
            if ended and last == before:
                return
            ended = look(job_id).ended
        except (ProblemError, TransportFailed) as error:
            if isinstance(error, ProblemError) and not error.retryable:
                raise
            failure = error
        fruitless = 0 if last > before else fruitless + 1
        delay_s = policy.delay_s(fruitless + 1)
        if failure is not None and policy.monotonic() + delay_s - reached > policy.total_s:
            raise failure
        policy.sleep(delay_s)


def _connection(transport: Transport, job_id: str, *, last: int) -> Iterator[JobEvent]:
    """Yield what one connection brings; its loss, or its silence, is its end and no error."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if last:
        headers["Last-Event-ID"] = str(last)
    call = Call(
        method="GET", path=resource("jobs", job_id, "events"), headers=headers, timeout_s=SILENCE_MAX_S
    )
    with transport.stream(call) as response:
        if "application/json" in response.headers.get("content-type", ""):
            raise UnexpectedAnswer(f"{call.path} answered JSON where a stream of events was asked for")
        try:
            for frame in frames(lines(response.iter_bytes())):
                yield decode(JobEvent, {"type": frame.event, "seq": _sequence(frame.id), **frame.document()})
        except httpx.TransportError:
            return


def _sequence(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _ends(event: JobEvent) -> bool:
    """Tell whether this is the event of the terminal state."""
    return event.type == "state" and event.data.get("state") in TERMINAL
