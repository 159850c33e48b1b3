"""Hearing of news over a wire that is cut in silence: nobody closes anything, and nothing comes any more."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from app.clock import SystemClock
from app.db import Database
from app.metrics.exposition import render_metrics
from app.news.listening import CHANNEL, Ear
from tests.journeys.tcp_proxy import TcpProxy

PATIENCE_S = 60.0
PROOF_S = 0.5
ANSWER_S = 1.0


class SwallowingProxy(TcpProxy):
    """Cut, it goes on to take whatever both sides say, and passes nothing on; new connections work."""

    def __init__(self, server_port: int) -> None:
        self._age = 0
        self._ages: dict[socket.socket, int] = {}
        self.deaf = False
        super().__init__(server_port)

    def cut(self, *, new_ones_too: bool = False) -> None:
        """Swallow what every connection says that is open now."""
        self._age += 1
        self.deaf = new_ones_too

    def mend(self) -> None:
        """New connections work again; those that were cut stay cut."""
        self._age += 1
        self.deaf = False

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        self._ages[client] = self._ages[server] = self._age
        super()._carry(client, server)

    def _is_cut(self, side: socket.socket) -> bool:
        return self.deaf or self._ages[side] != self._age

    def _client_said(self, server: socket.socket, data: bytes) -> bool:
        return True if self._is_cut(server) else super()._client_said(server, data)

    def _server_said(self, client: socket.socket, data: bytes, asked: bytes) -> bool:
        return True if self._is_cut(client) else super()._server_said(client, data, asked)


class Listening:
    """An ear behind a proxy, and how often it heard."""

    def __init__(self, database: Database, proxy: SwallowingProxy) -> None:
        self.database, self.proxy, self.heard = database, proxy, 0
        self.far = Database(str(database.url.set(host="127.0.0.1", port=proxy.port).render_as_string(False)))
        self.ear = Ear(
            self.far.engine,
            self._hear,
            monotonic=SystemClock().boottime_s,
            proof_s=PROOF_S,
            answer_s=ANSWER_S,
        )

    def _hear(self) -> None:
        self.heard += 1

    def tell(self) -> None:
        """Somebody else writes."""
        with self.database.engine.connect() as db:
            db.execute(sa.text(f"notify {CHANNEL}"))
            db.commit()

    def listeners(self) -> int:
        """Sessions that listen, by the server's word."""
        query = (
            "select count(*) from pg_stat_activity where query ilike :said and datname = current_database()"
        )
        with self.database.engine.connect() as db:
            said = f"listen {CHANNEL}"
            return int(db.execute(sa.text(query), {"said": said}).scalar_one())


def until(holds: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_at, what
        time.sleep(0.02)


@pytest.fixture
def listening(postgresql_database: Database) -> Iterator[Listening]:
    port = postgresql_database.url.port
    assert port is not None, "the server of tests listens on TCP"
    with SwallowingProxy(port) as proxy:
        found = Listening(postgresql_database, proxy)
        try:
            yield found
        finally:
            found.ear.stop()
            found.far.close()


def test_wire_that_swallows_is_noticed_and_what_comes_then_is_heard(listening: Listening) -> None:
    ear = listening.ear
    ear.start()
    until(lambda: listening.heard >= 1, "it listens")
    before = listening.heard
    listening.tell()
    until(lambda: listening.heard > before, "news is heard")
    assert ear.reconnects == 0
    listening.proxy.cut()
    until(lambda: ear.reconnects == 1, "the dead wire is noticed, though nobody closed it")
    before = listening.heard
    listening.tell()
    until(lambda: listening.heard > before, "news is heard over the new connection")
    until(lambda: ear.silence_s() < PROOF_S + ANSWER_S, "it proves that it lives")


def test_silence_grows_while_nobody_answers_and_ends_when_somebody_does(listening: Listening) -> None:
    ear = listening.ear
    ear.start()
    until(lambda: listening.heard >= 1, "it listens")
    listening.proxy.cut(new_ones_too=True)
    until(lambda: ear.silence_s() > 3 * (PROOF_S + ANSWER_S), "it is silent")
    text = render_metrics(listening.database, alive_within_s=90, ear=ear).decode()
    [shown] = [line for line in text.splitlines() if line.startswith("lethe_news_silence_seconds ")]
    assert float(shown.partition(" ")[2]) > 3 * (PROOF_S + ANSWER_S)
    listening.proxy.mend()
    until(lambda: ear.reconnects >= 1 and ear.silence_s() < PROOF_S + ANSWER_S, "it hears again")
    before = listening.heard
    listening.tell()
    until(lambda: listening.heard > before, "news is heard")


def test_idle_connection_proves_that_it_lives_and_stays(listening: Listening) -> None:
    ear = listening.ear
    ear.start()
    until(lambda: listening.heard >= 1, "it listens")
    for _ in range(3):
        until(lambda: ear.silence_s() > PROOF_S / 2, "time passes")
        until(lambda: ear.silence_s() < PROOF_S / 2, "it has proved that it lives")
    assert ear.reconnects == 0


def test_thread_that_died_is_seen_by_its_silence(postgresql_database: Database) -> None:
    # A fault in who is told ends the thread: nothing but its figure can say so.
    now = [100.0]

    def fail() -> None:
        raise RuntimeError("whoever is told is broken")

    ear = Ear(postgresql_database.engine, fail, monotonic=lambda: now[0])
    raised = threading.excepthook
    threading.excepthook = lambda _arguments: None
    try:
        ear.start()
        until(lambda: not ear._thread.is_alive(), "it died")
    finally:
        threading.excepthook = raised
    now[0] = 1_000.0
    assert ear.silence_s() == 900.0
