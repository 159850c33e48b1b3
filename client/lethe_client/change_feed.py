"""The changes of a replica behind a cursor, over as many connections as it takes.

Rules:
- a change is given out once, and of each replica id in the order of its CSNs;
- none is missed: every connection goes on after the last cursor that the service has named; a cursor that it
  refuses is an error, never a gap;
- a service that is not heard for as long as the retry policy says in all is given up.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import httpx

from lethe_client.errors import LetheError, ProblemError, TransportFailed, UnexpectedAnswer, problem
from lethe_client.feed_records import FeedChange, change_of
from lethe_client.retries import Following, passing
from lethe_client.streaming import Frame, frames, lines
from lethe_client.transport import Call, Transport

SILENCE_MAX_S: Final = 50.0
READY: Final = "ready"
REFUSED: Final = "refused"


def follow(
    transport: Transport, path: str, params: Mapping[str, Any], *, cursor: str | None
) -> Iterator[FeedChange]:
    """Yield the changes after a cursor; see the rules above. It ends only by an error.

    Args:
        cursor: None: from where `params` say.
    Raises:
        ProblemError: the service refuses the cursor or the token. TransportFailed: it cannot be reached in
            all the time that the policy allows.
    """
    policy = transport.retries
    stream = _Stream(transport, path, params, cursor=cursor)
    following = Following(policy)
    while True:
        before = stream.cursor
        failure: LetheError | None = None
        try:
            with closing(stream.connection()) as connection:
                yield from connection
        except (ProblemError, TransportFailed) as error:
            failure = passing(error)
        has_moved = stream.cursor != before
        policy.sleep(following.pause_s(failure, has_moved=has_moved, heard_at=stream.heard_at))


class _Stream:
    """The last cursor that the service named, and when it was heard last."""

    def __init__(
        self, transport: Transport, path: str, params: Mapping[str, Any], *, cursor: str | None
    ) -> None:
        self._transport = transport
        self._path = path
        self._params = params
        self.cursor = cursor
        self.heard_at = transport.retries.monotonic()

    def connection(self) -> Generator[FeedChange]:
        """Yield the changes of one connection, until the service ends it.

        Raises: ProblemError, TransportFailed: it was refused, cut, or silent for SILENCE_MAX_S.
        """
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.cursor is not None:
            headers["Last-Event-ID"] = self.cursor
        call = Call(
            method="GET", path=self._path, params=self._params, headers=headers, timeout_s=SILENCE_MAX_S
        )
        with self._transport.stream(call) as response:
            request_id = response.request.headers["x-request-id"]
            try:
                for frame in frames(self._heard(lines(response.iter_bytes()))):
                    if frame.event == REFUSED:
                        document = frame.document()
                        raise problem(int(document.get("status", 500)), document, request_id=request_id)
                    change = self._taken(frame)
                    if change is not None:
                        yield change
            except httpx.TransportError as error:
                detail = f"the stream of changes was cut: {error or type(error).__name__}"
                raise TransportFailed(detail, maybe_done=False, request_id=request_id) from error

    def _taken(self, frame: Frame) -> FeedChange | None:
        """The change of a frame, or None where there is nothing to give out."""
        if not frame.id:
            raise UnexpectedAnswer(f"an event without a cursor: {frame.event:.40}")
        self.cursor = frame.id
        return None if frame.event == READY else change_of(frame.document(), cursor=frame.id)

    def _heard(self, stream: Iterable[str]) -> Iterator[str]:
        """Note the time of every line, and the cursors that come without a change: nothing was for us."""
        cursor, has_data = "", False
        for line in stream:
            self.heard_at = self._transport.retries.monotonic()
            if line.startswith("id: "):
                cursor = line.removeprefix("id: ")
            elif line.startswith("data:"):
                has_data = True
            elif not line:
                if cursor and not has_data:
                    self.cursor = cursor
                cursor, has_data = "", False
            yield line
