"""A writer that runs beside the test, and the ways in which it ends."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.forge import Forked, forked_module
from tests.spark.erase.live_judge import Judged, judge
from tests.spark.erase.live_log import DURABLE_NAME

ROOT = Path(__file__).parents[3]
# In log time, of which one to three minutes lie between checkpoints: how old a pointer to a node may become.
NODE_GRACE_MS = 600_000
READY_TIMEOUT_S = 60


@dataclass
class Run:
    """A writer's process with its environment and the copy that it keeps."""

    root: Path
    seed: int
    synced: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory, self.copy = self.root / "environment", self.root / "copy"
        for folder in (self.root, self.directory, self.copy):
            folder.mkdir()
        self.process = start("live_writer", self.directory, self.copy, self.seed, NODE_GRACE_MS)
        self.judgements = 0

    def go(self) -> None:
        """Let the writer work."""
        wait_until_ready(self.process)
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the writer, unless JE would have died before."""
        self.process.kill()
        out = self.process.communicate(timeout=READY_TIMEOUT_S)[0]
        assert self.process.returncode == -signal.SIGKILL, out

    def end(self) -> None:
        """See that nothing is left of the process."""
        self.process.kill()
        self.process.communicate(timeout=READY_TIMEOUT_S)

    def judge(self) -> Judged:
        """Judge a state in which the writer is dead, or stands still."""
        self.judgements += 1
        scratch = self.root / f"judged-{self.judgements}"
        scratch.mkdir()
        return judge(self.directory, self.copy, scratch)

    def lose_power(self, chance: random.Random) -> None:
        """Lose a part of what was not synced: by the writer, or by the eraser before it decided."""
        last = max(self.directory.glob("*.jdb"))
        durable = self.synced.get(last.stat().st_ino, 0)
        for line in (self.copy / DURABLE_NAME).read_text().splitlines():
            number, size = (int(word) for word in line.split())
            durable = max(durable, size if number == int(last.name[:8], 16) else 0)
        lost = last.stat().st_size - durable
        os.truncate(last, durable + (chance.randint(0, lost) if chance.random() < 0.5 else 0))

    @contextmanager
    def syncs_recorded(self) -> Iterator[None]:
        """Note how far each file is durable for our own process's syncs."""
        real = os.fsync

        def fsync(fd: int) -> None:
            status = os.fstat(fd)
            real(fd)
            self.synced[status.st_ino] = max(self.synced.get(status.st_ino, 0), status.st_size)

        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(os, "fsync", fsync)
            yield


def start(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"tests.spark.erase.{module}", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


def start_eraser(directory: Path, node_grace_ms: int) -> subprocess.Popen[bytes] | Forked:
    """An eraser with its modules and its machine code loaded."""
    return forked_module("tests.spark.erase.live_eraser", str(directory), str(node_grace_ms))


def wait_until_ready(process: subprocess.Popen[bytes] | Forked) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"READY\n", process.communicate(timeout=READY_TIMEOUT_S)


@contextmanager
def killed_after(run: Run, delay_s: float) -> Iterator[None]:
    """Kill the writer at a moment that nobody here can choose."""
    timer = threading.Timer(delay_s, run.process.kill)
    timer.start()
    try:
        yield
    finally:
        if run.process.poll() is not None:
            timer.cancel()
        timer.join()
