"""Buckets that the processes of one service share: what one lets a caller take, all of them count.

They lie in memory that belongs to no disk, and are found by a hash of their key. Who meets another process
at the same bucket tries again, and then goes on without: nobody waits for one that was stopped in the middle.
Two takes may count as one then, which a limit bears. A process that is killed leaves no lock behind.
"""

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from threading import Lock
from typing import Final, NamedTuple, Protocol

from app.kit.rates import Rates

RECORD: Final = struct.Struct("<16sdd")
"""Hash of the key, what was left in the bucket, and when (monotonic seconds of the machine)."""
WAYS: Final = 8
SETS: Final = 4_096
SET_BYTES: Final = WAYS * RECORD.size
TABLE_BYTES: Final = SETS * SET_BYTES
"""Where a set is full, the key heard of longest ago is forgotten: it begins with a full bucket again."""
TURNS_BYTES: Final = 4_096
"""Behind the buckets: how many connections each process has (`app/kit/turns.py`)."""
PATIENCE_S: Final = 0.002
"""How long a process tries to be alone at a bucket."""


class AnyRates(Protocol):
    """Buckets by key, of one process or of several."""

    def take(self, key: str) -> None:
        """Take one out, if one is there."""
        ...

    def wait_s(self, key: str) -> float:
        """How long until one is there; 0: now."""
        ...


class _Bucket(NamedTuple):
    place: int
    digest: bytes
    left: float
    at: float


class SharedTable:
    """The buckets of all limits.

    Args:
        fd: of the memory; whoever gives it to another process shares it.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, TABLE_BYTES)
        self._guard = Lock()

    @classmethod
    def create(cls) -> "SharedTable":
        """Empty buckets, that other processes may be given."""
        fd = os.memfd_create("lethe-shared", os.MFD_CLOEXEC)
        os.ftruncate(fd, TABLE_BYTES + TURNS_BYTES)
        return cls(fd)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()
        os.close(self.fd)

    def find(self, digest: bytes) -> tuple[float, float] | None:
        """What was left in a bucket, and when; None: nobody has taken out of it."""
        found = self._bucket(digest)
        return (found.left, found.at) if found.digest == digest else None

    @contextmanager
    def held(self, digest: bytes) -> Iterator[None]:
        """Keep others off the bucket, as far as that takes no time."""
        begin = _set_of(digest)
        with self._guard:
            is_locked = self._is_locked(begin)
            try:
                yield
            finally:
                if is_locked:
                    fcntl.lockf(self.fd, fcntl.LOCK_UN, SET_BYTES, begin)

    def write(self, digest: bytes, left: float, at: float) -> None:
        """Note what is left in a bucket."""
        RECORD.pack_into(self._memory, self._bucket(digest).place, digest, left, at)

    def _is_locked(self, begin: int) -> bool:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, SET_BYTES, begin)
            except OSError:  # another process is there now
                if time.monotonic() > until:
                    return False
                os.sched_yield()
            else:
                return True

    def _bucket(self, digest: bytes) -> _Bucket:
        """The bucket of a key, or the one that is to be its own: the oldest of its set."""
        begin = _set_of(digest)
        places = range(begin, begin + SET_BYTES, RECORD.size)
        buckets = [_Bucket(place, *RECORD.unpack_from(self._memory, place)) for place in places]
        own = next((each for each in buckets if each.digest == digest), None)
        return own or min(buckets, key=lambda each: each.at)


def _set_of(digest: bytes) -> int:
    return int.from_bytes(digest[:4], "little") % SETS * SET_BYTES


class SharedRates:
    """`Rates` whose buckets several processes share; safe in threads.

    Args:
        name: of the limit, as all processes call it.
    """

    def __init__(
        self,
        table: SharedTable,
        name: str,
        *,
        per_s: float,
        burst: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert per_s > 0
        assert burst >= 1
        self._table = table
        self._name = name
        self._per_s = per_s
        self._burst = burst
        self._clock = clock

    def take(self, key: str) -> None:
        """Take one out, if one is there."""
        digest = self._digest(key)
        with self._table.held(digest):
            self._table.write(digest, max(0.0, self._left(digest) - 1.0), self._clock())

    def wait_s(self, key: str) -> float:
        """How long until one is there; 0: now."""
        return max(0.0, (1.0 - self._left(self._digest(key))) / self._per_s)

    def _left(self, digest: bytes) -> float:
        left, at = self._table.find(digest) or (self._burst, self._clock())
        return min(self._burst, left + max(0.0, self._clock() - at) * self._per_s)

    def _digest(self, key: str) -> bytes:
        return blake2b(f"{self._name}\0{key}".encode(), digest_size=16).digest()


def rates_of(table: SharedTable | None, name: str, *, per_s: float, burst: float) -> AnyRates:
    """Buckets of all processes that share a table; without one of this process alone."""
    if table is None:
        return Rates(per_s=per_s, burst=burst)
    return SharedRates(table, name, per_s=per_s, burst=burst)
