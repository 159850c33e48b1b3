"""A reader that takes nothing any more does not keep the log: its answer ends, and the copy with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from app.events.feed.answer import FeedAnswer
from app.events.feed.forms import LinesForm
from app.events.feed.service import send_feed

STALLED_S = 0.2
LATE_S = 10.0
PIECE = b"x" * 1_000_000


class Pieces:
    """Of a node: whether its transaction is open."""

    def __init__(self) -> None:
        self.is_open = True

    def read(self) -> Generator[bytes, None, None]:
        try:
            for _ in range(3):
                yield PIECE
        finally:
            self.is_open = False


async def answer(pieces: Pieces, takes: Callable[[int], float]) -> list[dict[str, Any]]:
    """What is sent to a reader; `takes` is how long it needs for each message."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(takes(len(sent)))
        sent.append(message)

    async def receive() -> Any:
        await asyncio.sleep(LATE_S)
        return {"type": "http.disconnect"}

    made = pieces.read()
    bodies = send_feed(next(made), made, LinesForm())
    response = FeedAnswer(bodies, media_type="application/x-ndjson", stalled_s=STALLED_S)
    async with asyncio.timeout(LATE_S):
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
    return sent


def test_a_reader_that_stalls_is_cut_off_and_the_node_is_let_go() -> None:
    pieces = Pieces()
    sent = asyncio.run(answer(pieces, lambda count: 0.0 if count < 4 else 2 * LATE_S))
    assert not pieces.is_open
    assert len(sent) == 4
    assert all(each.get("more_body", True) for each in sent), "it does not look whole"


@pytest.mark.parametrize("pause_s", [0.0, STALLED_S / 10])
def test_a_slow_reader_gets_all_of_it(pause_s: float) -> None:
    pieces = Pieces()
    sent = asyncio.run(answer(pieces, lambda _count: pause_s))
    assert b"".join(each.get("body", b"") for each in sent) == 3 * PIECE
    assert sent[-1]["more_body"] is False
    assert not pieces.is_open
