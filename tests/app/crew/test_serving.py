"""The loop of a server sleeps while nothing comes, and ends at once when it shall."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from app.crew.serving import Server, server_of
from app.settings import Settings

WATCHED_S = 2.2
PATIENCE_S = 5.0


class Counting(Server):
    """It counts its turns."""

    turns = 0

    async def on_tick(self, counter: int) -> bool:
        self.turns += 1
        return await super().on_tick(counter)


@contextmanager
def running(tmp_path: Path) -> Iterator[tuple[Counting, threading.Thread, int]]:
    server = server_of(FastAPI(), Settings(data_dir=tmp_path), lambda: None, kind=Counting)
    assert isinstance(server, Counting)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE_S
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        yield server, thread, bound.getsockname()[1]
        server.end()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_it_turns_once_a_second_and_its_answers_have_the_time(tmp_path: Path) -> None:
    with running(tmp_path) as (server, _, port):
        dates = set()
        began, before = time.monotonic(), server.turns
        while time.monotonic() < began + WATCHED_S:
            dates.add(httpx.get(f"http://127.0.0.1:{port}/").headers["date"])
            time.sleep(0.1)
        assert 1 <= server.turns - before <= 3
        assert len(dates) >= 2


@pytest.mark.parametrize("is_draining", [True, False])
def test_it_ends_when_it_shall_and_not_with_its_next_turn(tmp_path: Path, is_draining: bool) -> None:
    with running(tmp_path) as (server, thread, _):
        turned, deadline = server.turns, time.monotonic() + PATIENCE_S
        while server.turns == turned:  # it has just begun to sleep
            assert time.monotonic() < deadline, "it never turns"
            time.sleep(0.005)
        began = time.monotonic()
        if is_draining:
            server.leave(3)
        else:
            server.end()
        thread.join(PATIENCE_S)
        took_s = time.monotonic() - began
        assert not thread.is_alive()
        assert took_s < 0.8, "uvicorn itself takes a tenth of a second"
        assert server.exit_code == (3 if is_draining else 0)
        server.end()  # whoever comes late changes nothing
