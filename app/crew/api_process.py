"""The life of a process that answers the API beside the one that runs the jobs (`--api-processes`).

It hears from the first one what to do, and tells what that has to know, over two pipes. It ends when the
first one has died: in the middle of everything; and in peace after LEAVE.
Signals are the first one's business: a supervisor that sends one to the whole group ends no answer early.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from queue import Empty, Full, Queue
from types import FrameType
from typing import BinaryIO, Final

import structlog
from fastapi import FastAPI

from app.clock import SystemClock
from app.crew.messages import Begin, News, Word, families_of
from app.crew.nursery import call_it
from app.crew.serving import Server, server_of
from app.db import Database, MetadataClock
from app.errors import MetadataBusy, MetadataUnavailable
from app.kit.door import Listener
from app.kit.http.first import FirstDoor, Part
from app.kit.request_figures import RequestFigures
from app.kit.shared_rates import SharedTable
from app.kit.turns import SharedTurns, Turn
from app.logs import configure_logging
from app.main import create_app
from app.metrics.process import ChangeFeedCollector
from app.news.listening import Ear
from app.readiness import Readiness
from app.replication.replica.replicas import take_supplied
from app.settings import Settings
from app.starting import EXIT_BUSY, open_metadata, start_tracing
from app.tracing import TRACING

RETRY_S: Final = 1.0
CLOCK_EVERY_S: Final = 60.0
SILENT_TURNS_MAX: Final = 10
"""So many seconds without news, and it says that it turns."""
logger = structlog.get_logger("lethe.server")


class ApiServer(Server):
    """A server that ends when the first process says so, and tells it about once a second that it turns."""

    each_second: Callable[[], None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Nothing: the first process decides."""

    async def on_tick(self, counter: int) -> bool:
        """Once a second."""
        self.each_second()
        return await super().on_tick(counter)


class Teller:
    """Writes what there is to tell: the loop only hands it over, and waits for nobody."""

    def __init__(self, out: BinaryIO, app: FastAPI, database: Database, ear: Ear) -> None:
        self._out = out
        self._database = database
        self._ear = ear
        self._requests: RequestFigures = app.state.requests
        self._feeds = ChangeFeedCollector(app.state.change_feeds)
        self._answered = 0
        self._silent_turns = SILENT_TURNS_MAX  # the first turn is told at once
        self._lines: Queue[bytes] = Queue(maxsize=2)
        self._left: News | None = None
        threading.Thread(target=self._write, name="lethe-teller", daemon=True).start()

    def each_second(self) -> None:
        """Tell what is new."""
        rings = self._database.bell.is_set()
        answered, supplied = self._requests.answers, take_supplied()
        self._silent_turns += 1
        if not (rings or supplied or answered != self._answered or self._silent_turns >= SILENT_TURNS_MAX):
            return
        self._tell(answered, supplied, rings=rings, waits=False)

    def waits(self) -> None:
        """Tell that this process lives, though its loop does not turn yet."""
        rings = self._database.bell.is_set()
        self._tell(self._requests.answers, take_supplied(), rings=rings, waits=True)

    def _tell(self, answered: int, supplied: set[str], *, rings: bool, waits: bool) -> None:
        self._database.bell.clear()
        self._silent_turns, self._answered = 0, answered
        news = News(
            families=families_of((*self._requests.collect(), *self._feeds.collect())),
            supplied=sorted(supplied),
            rings=rings,
            silence_s=round(self._ear.silence_s(), 1),
            reconnects=self._ear.reconnects,
            waits=waits,
        )
        self._hand_on(news)

    def _hand_on(self, news: News) -> None:
        """Put it where the thread takes it; where that is stuck, the next one tells of this one too."""
        if self._left is not None:
            supplied = sorted({*self._left.supplied, *news.supplied})
            news = replace(news, supplied=supplied, rings=self._left.rings or news.rings)
        try:
            self._lines.put_nowait(news.line())
        except Full:
            self._left = news
        else:
            self._left = None

    def _write(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=CLOCK_EVERY_S)
            except Empty:
                line = b""
            try:
                self._out.write(line)
                self._out.flush()
            except OSError:  # the first process has died: so does this one, by its input
                return


def answer(orders: int, told: int, table: int, sockets: Sequence[int]) -> int:
    """Answer requests until the first process says otherwise; returns the exit code.

    Args:
        orders: the descriptor of what the first process says.
        told: that of what is told to it.
        table: that of the memory that all processes share.
        sockets: those of what to listen on.
    """
    commands, out = os.fdopen(orders, "rb"), os.fdopen(told, "wb")
    begin = Begin.read(commands.readline())
    call_it(f"lethe-api-{begin.number}")
    configure_logging()
    os.umask(0o077)
    settings = Settings(**begin.settings)
    start_tracing(settings)
    database = open_metadata(settings)
    readiness = _Readiness()
    app = create_app(
        settings,
        database,
        clock=MetadataClock(database, SystemClock()),
        readiness=readiness.of_app,
        instance_id=begin.instance_id,
        part=Part(begin.number, SharedTable(table), FirstDoor.of(settings.data_dir)),
    )
    server = server_of(app, settings, lambda: None, kind=ApiServer)
    assert isinstance(server, ApiServer)
    obey = threading.Thread(
        target=_obey, args=(commands, app, server, readiness), name="lethe-orders", daemon=True
    )
    obey.start()
    ear = Ear(database.engine, database.heard, monotonic=time.monotonic)
    app.state.ear = ear
    ear.start()
    teller = Teller(out, app, database, ear)
    _meet(database, in_vain=teller.waits)
    threading.Thread(target=_keep_time, args=(database,), name="lethe-time", daemon=True).start()
    server.each_second = teller.each_second
    turn = Turn(SharedTurns(table), begin.number, partial(len, server.door))
    server.door.on_change = turn.tell
    bound = [socket.socket(fileno=fd) for fd in sockets]
    server.run(sockets=[Listener.over(each, server.door, turn.has_come) for each in bound])
    ear.stop()
    TRACING.stop()
    database.close()
    return server.exit_code


class _Readiness:
    """What this process knows of the service: what the first one has said."""

    def __init__(self) -> None:
        self.is_started = False
        self.of_app = Readiness(runner_alive=lambda: self.is_started)


def _obey(commands: BinaryIO, app: FastAPI, server: ApiServer, readiness: _Readiness) -> None:
    while line := commands.readline():
        word = line.decode().strip()
        if word == Word.STARTED:
            readiness.is_started = True
        elif word == Word.DRAIN:
            readiness.of_app.stopping = True
            app.state.watch.end_waits()
            app.state.feed.end_waits()
            app.state.change_feeds.end_waits()
        elif word == Word.LEAVE:
            server.end()
            return
    os._exit(EXIT_BUSY)  # the first process is gone: whoever starts next wants the port


def _meet(database: Database, *, in_vain: Callable[[], None] = lambda: None) -> None:
    """Ask the metadata what time it is: nothing of the loop has to.

    Args:
        in_vain: called each time that it has not answered.
    """
    while True:
        try:
            with database.reading() as db:
                database.now(db)
        except (MetadataUnavailable, MetadataBusy) as error:
            logger.warning("metadata away", error=error.detail)
            in_vain()
            time.sleep(RETRY_S)
        else:
            return


def _keep_time(database: Database) -> None:
    while True:
        time.sleep(CLOCK_EVERY_S)
        _meet(database)
