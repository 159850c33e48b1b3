"""The first process keeps the API processes: it starts them, starts anew what died, and ends them all.

Rules:
- all of them accept from the same sockets: a connection that none has taken waits for the next one, whoever
  dies;
- a process ends when its input ends, so none outlives the first one;
- who dies, has said nothing START_MAX_S after its fork, or does not turn for SILENT_MAX_S, is replaced; the
  pause before that grows where it keeps dying;
- where none can be started any more the service ends, for its supervisor to start it anew.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Final

import structlog

from app.crew.figures import CrewEar, CrewFigures
from app.crew.messages import LINE_BYTES_MAX, Begin, News, Word
from app.crew.nursery import Newborn, Nursery
from app.kit.shared_rates import SharedTable
from app.kit.turns import NOT_THERE, SharedTurns
from app.news.listening import Hearing
from app.settings import Settings

SILENT_MAX_S: Final = 60.0
START_MAX_S: Final = 120.0
"""From its fork to its first line. All begin at once, and each asks the metadata the time before: that may
take 40 s in vain, until it says that it waits."""
STEP_S: Final = 1.0
STEP_MAX_S: Final = 2.0
"""Of a machine that slept no process is blamed for more."""
PAUSE_FIRST_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0
STEADY_S: Final = 60.0
"""Whoever lived for so long begins again with the first pause."""
LEAVE_S: Final = 4.0
logger = structlog.get_logger("lethe.server")


class _Child:
    """One process, while it runs."""

    def __init__(self, process: Newborn, orders: IO[bytes], told: IO[bytes]) -> None:
        self.process = process
        self.told = told
        self.has_begun = False
        """Whether its loop has turned."""
        self.silent_s = 0.0
        """Since its last line, or since it was forked."""
        self._orders = orders
        self._guard = threading.Lock()

    def say(self, line: bytes) -> None:
        """Send a line; who is gone hears nothing."""
        with self._guard, contextlib.suppress(OSError, ValueError):
            self._orders.write(line)
            self._orders.flush()

    def end(self) -> None:
        """Kill it, and close what led there."""
        self.process.kill()
        self.process.has_ended(LEAVE_S)
        self.process.close()
        for stream in (self._orders, self.told):
            with contextlib.suppress(OSError):
                stream.close()


class Crew:
    """All API processes of this service.

    Args:
        nursery: forks them.
        sockets: what they listen on; they stay open here, for those that come later.
        supplied: told of each replica that a supplier has reached at one of them.
        rings: called where one has left something for those that send webhooks.
        broken: called where no process can be started any more: the service has to end.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        nursery: Nursery,
        instance_id: str,
        sockets: Sequence[socket.socket],
        table: SharedTable,
        supplied: Callable[[str], None],
        rings: Callable[[], None],
        broken: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._nursery = nursery
        self._instance_id = instance_id
        self._sockets = list(sockets)
        self._table = table
        self._turns = SharedTurns(table.fd)
        self._supplied = supplied
        self._rings = rings
        self._broken = broken
        self.figures = CrewFigures()
        self._guard = threading.Lock()
        self._children: dict[int, _Child] = {}
        self._said: list[Word] = []
        self._leaving = threading.Event()
        numbers = range(1, settings.api_processes + 1)
        self._threads = [
            threading.Thread(target=self._keep, args=(number,), name=f"lethe-api-{number}", daemon=True)
            for number in numbers
        ]
        self._watch = threading.Thread(target=self._end_silent, name="lethe-api-watch", daemon=True)

    def ear_with(self, own: Hearing) -> Hearing:
        """What all processes of this service hear: as ill as the one that hears worst."""
        return CrewEar(own, self.figures)

    def start(self) -> None:
        """Start all of them."""
        for thread in (*self._threads, self._watch):
            thread.start()

    def say(self, word: Word) -> None:
        """Tell all of them, and those that come later."""
        with self._guard:
            self._said.append(word)
            children = list(self._children.values())
        for child in children:
            child.say(f"{word}\n".encode())

    def leave(self) -> None:
        """Have all of them answer what is here, and end; whoever does not in time is killed."""
        self._leaving.set()
        self.say(Word.LEAVE)
        until = time.monotonic() + LEAVE_S
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))
        with self._guard:
            late = list(self._children.items())
        for number, child in late:
            logger.warning("an API process did not end in time, and is killed", process=number)
            child.process.kill()
        self._nursery.close()

    def _keep(self, number: int) -> None:
        """The life of all that have one number, one after the other."""
        pause_s = PAUSE_FIRST_S
        while not self._leaving.is_set():
            began_s = time.monotonic()
            self._live(number)
            if self._leaving.is_set():
                return
            lived_s = time.monotonic() - began_s
            pause_s = PAUSE_FIRST_S if lived_s >= STEADY_S else min(pause_s * 2, PAUSE_MAX_S)
            self.figures.restarts += 1
            logger.error(
                "an API process has ended, and is started anew",
                process=number,
                lived_s=round(lived_s, 1),
                again_in_s=pause_s,
            )
            self._leaving.wait(pause_s)

    def _live(self, number: int) -> None:
        """Start one, hear it, and see it end."""
        try:
            child = self._start(number)
        except OSError as error:
            logger.error("an API process cannot be started", process=number, error=str(error))
            if not self._leaving.is_set():
                self._broken()
                self._leaving.wait()
            return
        try:
            self._hear(number, child)
            child.process.has_ended(LEAVE_S)
        finally:
            with self._guard:
                self._children.pop(number, None)
                self.figures.alive = len(self._children)
            child.end()
            self._turns.tell(number, NOT_THERE)
            self.figures.gone(number)

    def _start(self, number: int) -> _Child:
        orders, to_child = os.pipe()
        from_child, out = os.pipe()
        try:
            fds = [orders, out, self._table.fd, *(each.fileno() for each in self._sockets)]
            process = self._nursery.fork(fds)
        except OSError:
            os.close(to_child)
            os.close(from_child)
            raise
        finally:
            os.close(orders)
            os.close(out)
        child = _Child(process, os.fdopen(to_child, "wb"), os.fdopen(from_child, "rb"))
        settings = json.loads(self._settings.model_dump_json())
        child.say(Begin(number, self._instance_id, settings).line())
        with self._guard:
            for word in self._said:
                child.say(f"{word}\n".encode())
            self._children[number] = child
            self.figures.alive = len(self._children)
        return child

    def _hear(self, number: int, child: _Child) -> None:
        """Take in what it tells, to its end."""
        while line := child.told.readline(LINE_BYTES_MAX):
            child.silent_s = 0.0
            try:
                news = News.read(line)
            except (ValueError, TypeError, KeyError):  # the last line of one that was killed
                continue
            child.has_begun = not news.waits
            self.figures.told(number, news)
            for store in news.supplied:
                self._supplied(store)
            if news.rings:
                self._rings()

    def _end_silent(self) -> None:
        """Kill who has not begun or turned for too long: others take its connections, and it is replaced."""
        at_s = time.monotonic()
        while not self._leaving.wait(STEP_S):
            step_s, at_s = min(time.monotonic() - at_s, STEP_MAX_S), time.monotonic()
            with self._guard:
                children = list(self._children.items())
            for number, child in children:
                child.silent_s += step_s
                if child.has_begun and child.silent_s > SILENT_MAX_S:
                    logger.error("an API process does not answer, and is killed", process=number)
                    child.process.kill()
                elif not child.has_begun and child.silent_s > START_MAX_S:
                    logger.error(
                        "an API process does not begin, and is killed; where that goes on look whether the"
                        " metadata answers, and whether this machine is overloaded or out of memory",
                        process=number,
                        pid=child.process.pid,
                        waited_s=round(child.silent_s, 1),
                    )
                    child.process.kill()
