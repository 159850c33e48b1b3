"""System calls of a process that dies, of a machine that loses power, and of processes that take turns."""

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spark.targets.files.system_calls import SystemCalls
from tests.spark.targets.control_descriptors import Unsynced

SECTOR = 512
WAIT_S = 20.0
COUNTED = (
    "open", "pread", "pwrite", "fstat", "fchown", "fchmod", "fsync", "fdatasync", "link", "unlink",
    "try_exclusive", "try_shared", "release", "release_all", "close",
)  # fmt: skip


class Killed(BaseException):
    """kill -9: no handler of the program runs to any effect after it."""


class Counted(SystemCalls):
    """Calls `before` with the number and the name of each call."""

    def __init__(self, before: Callable[[int, str], None]) -> None:
        numbers = itertools.count()
        for name in COUNTED:
            setattr(self, name, self._counting(name, numbers, before))

    def _counting(
        self, name: str, numbers: Iterator[int], before: Callable[[int, str], None]
    ) -> Callable[..., Any]:
        real = getattr(Unsynced, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            before(next(numbers), name)
            return real(self, *args, **kwargs)

        return call


class Process:
    """Runs something that dies before its n-th system call; its descriptors are then closed by the kernel.

    Args:
        dies_at: the number of the call; None: it lives, and `calls` tells how many there are.
        fails: instead of dying, that one call fails with this errno.
    """

    def __init__(self, dies_at: int | None = None, *, fails: int | None = None) -> None:
        self.made: list[str] = []
        self._dies_at = dies_at
        self._fails = fails
        self._open: set[int] = set()
        self.calls = Counted(self._before)
        real_open, real_close = self.calls.open, self.calls.close

        def opening(*args: Any, **kwargs: Any) -> int:
            fd = real_open(*args, **kwargs)
            self._open.add(fd)
            return fd

        def closing(fd: int) -> None:
            real_close(fd)
            self._open.discard(fd)

        self.calls.open, self.calls.close = opening, closing  # type: ignore[method-assign]

    def _before(self, number: int, name: str) -> None:
        self.made.append(name)
        if self._dies_at is None:
            return
        if self._fails is not None:
            if number == self._dies_at:
                raise OSError(self._fails, os.strerror(self._fails))
        elif number >= self._dies_at:
            raise Killed

    def run(self, work: Callable[[SystemCalls], Any]) -> bool:
        """Whether it came to its end; its locks end with it in any case."""
        try:
            work(self.calls)
        except Killed:
            return False
        finally:
            for fd in self._open:
                os.close(fd)
            self._open.clear()
        return True


class PowerLoss(SystemCalls):
    """Remembers what was written to one file since it was last synced: any part of it may be lost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.durable = path.read_bytes()
        self.pending: list[tuple[int, bytes]] = []
        # Every state that the medium may be found in, at any moment.
        self.images: dict[bytes, int] = {self.durable: 0}
        self.syncs = 0

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self.pending.append((offset, bytes(data)))
        self._note_images()
        return super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        self.durable = self.path.read_bytes()
        self.pending = []
        self.syncs += 1
        self._note_images()

    def _note_images(self) -> None:
        choices = [[b"", data, *self._torn(data)] for _, data in self.pending]
        for parts in itertools.product(*choices):
            image = bytearray(self.durable)
            for (offset, _), part in zip(self.pending, parts, strict=True):
                image[offset : offset + len(part)] = part
            self.images.setdefault(bytes(image), self.syncs)

    @staticmethod
    def _torn(data: bytes) -> list[bytes]:
        return [data[:cut] for cut in range(SECTOR, len(data), SECTOR)]


class Turns:
    """Threads that go one system call at a time, in an order that is given."""

    def __init__(self, works: list[Callable[[SystemCalls], Any]]) -> None:
        self.results: list[Any] = [None] * len(works)
        self._may = [threading.Semaphore(0) for _ in works]
        self._stands = threading.Semaphore(0)
        self._ended = [False] * len(works)
        self._threads = [
            threading.Thread(target=self._run, args=(who, work), daemon=True)
            for who, work in enumerate(works)
        ]

    def go(self, schedule: list[int]) -> list[Any]:
        """Run to the end: by the schedule first, then in turn. Returns the results or the exceptions."""
        for thread in self._threads:
            thread.start()
            self._wait()
        for who in itertools.chain(schedule, itertools.cycle(range(len(self._may)))):
            if all(self._ended):
                break
            if not self._ended[who]:
                self._may[who].release()
                self._wait()
        for thread in self._threads:
            thread.join(WAIT_S)
        return self.results

    def _wait(self) -> None:
        if not self._stands.acquire(timeout=WAIT_S):
            raise TimeoutError(errno.ETIMEDOUT, "a thread neither called nor ended")

    def _run(self, who: int, work: Callable[[SystemCalls], Any]) -> None:
        def before(number: int, name: str) -> None:
            self._stands.release()
            self._may[who].acquire()

        try:
            self.results[who] = work(Counted(before))
        except Exception as error:  # noqa: BLE001  # the test that started it looks at it
            self.results[who] = error
        self._ended[who] = True
        self._stands.release()
