"""A writer as the lower floor has it: `python -m tests.journeys.eraser_stand_in DIRECTORY`, told by lines.

Orders on standard input, one a line, each answered by lines on standard output:
- `STEP NUMBER`: a round of a file that stays in READ, TOUCH, MARK or OVERWRITE until it is told to stop;
  `FREEZE` stops the whole process in the middle of MARK (SIGSTOP). "held" is said once it stays there, and at
  the end the code of its refusal and how long its rounds last, in ms.
- `LOOP ROWS`: rounds of so many entries over all files, again and again, until the next line comes; the
  answer is how many were done, and how many were refused because a file is protected.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark.erase.calls.calls import (
    Mode,
    PlanAnswer,
    PlanCall,
    PlannedFile,
    PrepareCall,
    RoundAnswer,
    RoundCall,
)
from spark.erase.calls.request import PlanRequest
from spark.erase.overwrite.file_layer import FileLayer
from spark.erase.overwrite.rounds import slice_entries
from spark.erase.reading.directory import identity_of
from spark.erase.unit import do
from spark.targets.files.control_file import ControlFile

EPOCH = 1
HOLD_MAX_S = 20.0
PAUSE_S = 0.0005
STEPS = ("TOUCH", "MARK", "OVERWRITE")


class Held(FileLayer):
    """Stays in one step of a round, after its first write there, until the stop counter changes."""

    def __init__(self, directory: Path, step: str) -> None:
        self._directory = directory
        self._step = step
        self._fsyncs = 0
        self._is_done = False

    def pread(self, descriptor: int, target: memoryview, offset: int) -> int:
        count = super().pread(descriptor, target, offset)
        self._perhaps_hold("READ")
        return count

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        count = super().pwrite(descriptor, data, offset)
        self._perhaps_hold(STEPS[self._fsyncs])
        return count

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        self._fsyncs += 1

    def _perhaps_hold(self, here: str) -> None:
        wanted = "MARK" if self._step == "FREEZE" else self._step
        if self._is_done or here != wanted:
            return
        self._is_done = True
        if self._step == "FREEZE":
            say("held")
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        with ControlFile.open(self._directory, create=False) as control:
            stop = control.stop_counter()
            say("held")
            until = time.monotonic() + HOLD_MAX_S
            while control.stop_counter() == stop and time.monotonic() < until:
                time.sleep(PAUSE_S)


def say(*words: object) -> None:
    print(*words, flush=True)


class Eraser:
    """The plan of an environment, and rounds of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with ControlFile.open(directory, create=True) as control:
            assert control.change(lambda record: record.claimed(EPOCH)) is not None
        answer = do(PlanCall(str(directory), PlanRequest()))
        assert isinstance(answer, PlanAnswer)
        assert answer.refusal is None
        self.files = {file.number: file for file in answer.files if file.entry_count}

    def round(self, file: PlannedFile, first: int, last: int, layer: FileLayer | None = None) -> RoundAnswer:
        """Any round may be a file's first one here: it is compared with the file as it is now."""
        path = self.directory / f"{file.number:08x}.jdb"
        identity = replace(file.identity, mtime_ns=identity_of(path.stat()).mtime_ns)
        entries = slice_entries(file.entries, first, last)
        call = RoundCall(str(self.directory), file.number, Mode.CLOSED, EPOCH, identity, entries, True)
        answer: Any = do(call, layer=layer or FileLayer(), clock=time.monotonic)
        assert isinstance(answer, RoundAnswer)
        return answer

    def hold(self, step: str, number: int) -> None:
        file = self.files[number]
        begun = time.perf_counter()
        self.round(file, 0, file.entry_count)
        round_ms = (time.perf_counter() - begun) * 1000
        layer = Held(self.directory, step)
        if step == "READ":
            path = self.directory / f"{number:08x}.jdb"
            prepare = PrepareCall(str(self.directory), number, identity_of(path.stat()), file.entries, True)
            answer: Any = do(prepare, layer=layer)
        else:
            answer = self.round(file, 0, file.entry_count, layer)
        say(answer.refusal.code if answer.refusal else "NONE", f"{round_ms:.3f}")

    def loop(self, rows: int) -> None:
        counts: Counter[str] = Counter()
        while True:
            for file in self.files.values():
                for first in range(0, file.entry_count, rows):
                    if select.select([sys.stdin], [], [], 0)[0]:
                        say(counts["NONE"], counts["PROTECTED"])
                        return
                    answer = self.round(file, first, min(first + rows, file.entry_count))
                    counts[answer.refusal.code if answer.refusal else "NONE"] += 1
                    if answer.refusal is not None:  # a cycle would wait for a wake here
                        time.sleep(0.005)
                        break


def main() -> None:
    eraser = Eraser(Path(sys.argv[1]))
    say("ready", *sorted(eraser.files))
    for line in sys.stdin:
        order, argument = line.split()
        if order == "LOOP":
            eraser.loop(int(argument))
        else:
            eraser.hold(order, int(argument))


if __name__ == "__main__":
    main()
