"""What an answer can do to whoever asked: a compressed or endless one is not read."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import httpx
import pytest
from lethe_client import Lethe, UnexpectedAnswer, transport


def _client(answer: httpx.Response, seen: list[httpx.Request]) -> Lethe:
    def answers(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer

    return Lethe("http://lethe", "lethe_secret", transport=httpx.MockTransport(answers))


class _Bytes(httpx.SyncByteStream):
    """A body as a socket gives it."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        return self._parts


def test_a_compressed_answer_is_not_taken() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    answer = httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=_Bytes(iter([bomb])))
    seen: list[httpx.Request] = []
    with _client(answer, seen) as client, pytest.raises(UnexpectedAnswer, match="gzip"):
        client.stores.get("orders")
    assert seen[0].headers["accept-encoding"] == "identity"


def test_an_endless_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "ANSWER_MAX_BYTES", 1_000_000)

    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 100_000

    answer = httpx.Response(200, stream=_Bytes(endless()))
    with _client(answer, []) as client, pytest.raises(UnexpectedAnswer, match="more than 1000000"):
        client.stores.get("orders")
