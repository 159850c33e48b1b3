"""Hearing of what other processes write: not for each of many writes, and never cut off for good."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from app.db import Database
from app.news import listening
from app.news.listening import CHANNEL, PACE_S, Ear

DEADLINE_S = 30.0
pytestmark = pytest.mark.postgresql


class Heard:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0
        self._guard = threading.Lock()

    def __call__(self) -> None:
        with self._guard:
            self.count += 1


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def listeners(database: Database) -> list[int]:
    query = "select pid from pg_stat_activity where query ilike :listen and datname = current_database()"
    with database.engine.connect() as connection:
        return list(connection.execute(sa.text(query), {"listen": f"listen {CHANNEL}%"}).scalars())


def notify(database: Database, times: int = 1) -> None:
    for _ in range(times):
        with database.engine.begin() as connection:
            connection.execute(sa.text("select pg_notify(:channel, '')"), {"channel": CHANNEL})


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def ear(postgresql_database: Database, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ear]:
    monkeypatch.setattr(listening, "LISTEN_S", 0.2)
    found = Ear(postgresql_database.engine, heard, monotonic=time.monotonic)
    found.start()
    until(lambda: heard.count > 0)
    yield found
    found.stop()
    found._thread.join(DEADLINE_S)
    assert not found._thread.is_alive()


@pytest.mark.usefixtures("ear")
def test_many_writes_are_heard_together_and_the_last_one_too(
    postgresql_database: Database, heard: Heard
) -> None:
    began, before = time.monotonic(), heard.count
    notify(postgresql_database, 300)
    took_s = time.monotonic() - began
    assert heard.count - before <= 2 * (took_s / PACE_S + 2)  # twice a pause at most, however many there were
    quiet = heard.count
    notify(postgresql_database)
    until(lambda: heard.count > quiet)


@pytest.mark.usefixtures("ear")
def test_a_listener_that_was_cut_off_says_so_and_listens_again(
    postgresql_database: Database, heard: Heard
) -> None:
    until(lambda: bool(listeners(postgresql_database)))
    [pid] = listeners(postgresql_database)
    before = heard.count
    with postgresql_database.engine.connect() as connection:
        connection.execute(sa.text("select pg_terminate_backend(:pid, 5000)"), {"pid": pid})
    until(lambda: heard.count >= before + 2)  # it was cut off, and is there again
    until(lambda: listeners(postgresql_database) not in ([], [pid]))


def test_connections_notice_a_network_that_was_cut(postgresql_database: Database) -> None:
    """A LISTEN never sends: without keepalives a failover would leave it waiting for two hours."""
    pooled = postgresql_database.engine.raw_connection()
    try:
        driver = pooled.driver_connection
        assert driver is not None
        known = driver.info.get_parameters()
        wanted = {"keepalives_idle": "15", "keepalives_interval": "5", "keepalives_count": "3"}
        assert {name: known.get(name) for name in wanted} == wanted
        with socket.socket(fileno=os.dup(driver.fileno())) as own:
            if own.family in (socket.AF_INET, socket.AF_INET6):
                assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
                assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 5
                assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
    finally:
        pooled.close()
