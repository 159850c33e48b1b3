"""Looks share few threads and have an end: stores that hang hold up themselves and nobody else."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from app.events.preconditions.turns import LOOKS_AT_ONCE_MAX, LOOKS_OF_STORE_MAX, Looks
from spark.targets.errors import TargetUnreachable

LATE_S = 0.3


def hung() -> int:
    return sum(1 for thread in threading.enumerate() if thread.name == "lethe-looks")


@pytest.fixture
def never() -> Iterator[Callable[[], str]]:
    """A node that takes the connection and does not answer; it does at the end of the test."""
    answers = threading.Event()

    def work() -> str:
        answers.wait(30)
        return "late"

    yield work
    answers.set()
    end = time.monotonic() + 20
    while hung() and time.monotonic() < end:
        time.sleep(0.01)
    assert hung() == 0


async def nobody_looks(looks: Looks) -> None:
    """What is late may end a moment later."""
    end = time.monotonic() + 20
    while looks._users and time.monotonic() < end:
        await asyncio.sleep(0.01)
    assert looks._of_store == looks._users == {}


def test_hundred_waiters_of_a_store_that_hangs_hold_few_threads_and_all_are_told(
    never: Callable[[], str],
) -> None:
    async def attack() -> list[BaseException | str]:
        looks = Looks()
        waiters = [looks.look("dead", never, max_s=LATE_S) for _ in range(100)]
        waiting = asyncio.gather(*waiters, return_exceptions=True)
        await asyncio.sleep(0)
        assert await looks.look("well", lambda: "here", max_s=20) == "here"
        found = await waiting
        assert hung() == LOOKS_OF_STORE_MAX
        return found

    found = asyncio.run(attack())
    assert [type(each) for each in found] == [TargetUnreachable] * 100


def test_many_stores_that_hang_hold_up_others_for_one_deadline_at_most(never: Callable[[], str]) -> None:
    async def attack() -> tuple[str, int]:
        looks = Looks()
        dead = [looks.look(f"dead-{number % 50}", never, max_s=LATE_S) for number in range(100)]
        waiting = asyncio.gather(*dead, return_exceptions=True)
        await asyncio.sleep(LATE_S / 3)
        assert hung() == LOOKS_AT_ONCE_MAX
        found = await looks.look("well", lambda: "here", max_s=20)
        assert all(isinstance(each, TargetUnreachable) for each in await waiting)
        again = [looks.look(f"dead-{number}", never, max_s=LATE_S) for number in range(8)]
        await asyncio.gather(*again, return_exceptions=True)
        return found, hung()

    found, threads = asyncio.run(attack())
    assert found == "here"
    assert threads <= 50 * LOOKS_OF_STORE_MAX


def test_late_look_gives_its_turn_back_when_it_ends() -> None:
    answers = threading.Event()

    async def course() -> None:
        looks = Looks()
        late = [looks.look("s", lambda: answers.wait(30), max_s=LATE_S) for _ in range(LOOKS_OF_STORE_MAX)]
        await asyncio.gather(*late, return_exceptions=True)
        with pytest.raises(TargetUnreachable, match="no answer within"):
            await looks.look("s", lambda: True, max_s=LATE_S)
        answers.set()
        assert await looks.look("s", lambda: True, max_s=20) is True
        await nobody_looks(looks)

    asyncio.run(course())


def test_what_a_look_raises_comes_through_and_nothing_is_left() -> None:
    def fails() -> None:
        raise ValueError("its own")

    async def course() -> None:
        looks = Looks()
        with pytest.raises(ValueError, match="its own"):
            await looks.look("s", fails, max_s=20)
        waiting = asyncio.ensure_future(looks.look("s", lambda: time.sleep(0.2), max_s=20))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await nobody_looks(looks)

    asyncio.run(course())


def test_look_knows_the_request_that_it_is_made_for() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="nobody's")

    async def course() -> str:
        request.set("of somebody")
        return await Looks().look("s", request.get, max_s=20)

    assert asyncio.run(course()) == "of somebody"


def test_turn_is_given_back_where_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def course() -> None:
        looks = Looks()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuses)
            for _ in range(LOOKS_OF_STORE_MAX + 1):
                with pytest.raises(RuntimeError, match="new thread"):
                    await looks.look("s", lambda: True, max_s=LATE_S)
        assert await looks.look("s", lambda: True, max_s=20) is True
        assert looks._of_store == looks._users == {}

    asyncio.run(course())
