"""A service that answers from a script, and a clock that only sleeping moves."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from lethe_client import Lethe, RetryPolicy

Reply = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


class Script:
    """Answers one reply after the other and keeps what was asked."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        assert self.replies, f"nothing scripted for {request.method} {request.url}"
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply(request) if callable(reply) else reply

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) if request.content else None for request in self.requests]

    def headers(self, name: str) -> list[str | None]:
        return [request.headers.get(name) for request in self.requests]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def lethe(script: Script, clock: Clock) -> Iterator[Lethe]:
    policy = RetryPolicy(sleep=clock.sleep, monotonic=clock.monotonic, uniform=lambda _least, most: most)
    transport = httpx.MockTransport(script)
    with Lethe("http://lethe.test", "secret-token", retries=policy, transport=transport) as client:
        yield client
