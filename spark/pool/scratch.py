"""The folder of one JVM: shuffles, handshake, our zip. It goes with the JVM, or with the next start.

Invariant: a folder whose lock is held belongs to a process that lives; no other start removes it.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PREFIX: Final = "jvm-"
LEFTOVERS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder that is ours as long as `lock` is open.

    Args:
        parent: what outlives the JVM, the log above all, lies here.
        lock: descriptor of the file that holds the lock.
        own_parent: whether the parent was made for this JVM alone.
    """

    path: Path
    parent: Path
    lock: int
    own_parent: bool

    def remove(self) -> None:
        """Remove the folder with all that the JVM left in it."""
        shutil.rmtree(self.parent if self.own_parent else self.path, ignore_errors=True)
        os.close(self.lock)


def make_scratch(parent: Path | None) -> Scratch:
    """Make a folder below `parent`, or below a new one; removes what dead processes left there."""
    own_parent = parent is None
    if parent is None:
        parent = Path(tempfile.mkdtemp(prefix="lethe-spark-"))
    parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(parent)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Scratch(path, parent.resolve(), lock, own_parent)


def _remove_leftovers(parent: Path) -> None:
    for path in sorted(parent.glob(f"{PREFIX}*"))[:LEFTOVERS_MAX]:
        with suppress(OSError):
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
