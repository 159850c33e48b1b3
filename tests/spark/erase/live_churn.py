"""A process that writes as fast as its files are deleted: a few records that change all the time, beside many
that never do.

    python -m tests.spark.erase.live_churn DIRECTORY COPY FILE_BYTES FILES_PER_SECOND

It says READY when the files are there that survive: each holds records that stay, and versions that were
superseded later. Then, until it is killed, it fills so many files a second with versions of a few records,
and deletes as many that hold nothing live any more, each after a checkpoint that is durable, as JE does.
"""

import os
import random
import sys
import time
from pathlib import Path

from lethe_samples.je_writer.cleaning import clean_file
from lethe_samples.je_writer.environment import Environment
from spark.formats.je.log import file_name
from tests.spark.erase.live_log import GrowingLog
from tests.spark.erase.live_writer import CREATED_MS

SURVIVING_FILES = 24
RECORDS_PER_FILE = 40
HOT_KEYS = 20
CHECKPOINT_MS = 60_000
# So many files behind the last one nothing is deleted yet.
YOUNG_FILES = 4


class DurableEnvironment(Environment):
    """An environment whose checkpoints are durable when they return."""

    def __init__(self, directory: Path, log: GrowingLog) -> None:
        self.growing = log
        super().__init__(directory, created_ms=CREATED_MS, log=log)

    def checkpoint(self, invoker: str = "api", *, cleaned_files: bool = False) -> int:
        self.growing.now_ms += CHECKPOINT_MS
        lsn = super().checkpoint(invoker, cleaned_files=cleaned_files)
        self.growing.sync()
        return lsn


def cold(key: int, size: int) -> bytes:
    return random.Random(key).randbytes(size)


class Churn:
    def __init__(self, directory: Path, copy: Path, file_bytes: int) -> None:
        self.directory, self.copy = directory, copy
        self.value_bytes = file_bytes // RECORDS_PER_FILE
        log = GrowingLog(
            directory, copy, file_bytes_max=file_bytes, created_ms=CREATED_MS, chance=random.Random(1)
        )
        self.env, self.log, self.puts = DurableEnvironment(directory, log), log, 0
        self.env.create("records", node_capacity=64)
        self.surviving = -1

    def put_hot(self) -> None:
        self.puts += 1
        value = random.Random(-self.puts).randbytes(self.value_bytes)
        self.env.put(None, "records", b"hot-%02d" % (self.puts % HOT_KEYS), value)

    def fill_what_survives(self) -> None:
        key = 0
        while self.log.number < SURVIVING_FILES:
            self.env.put(None, "records", b"cold-%06d" % key, cold(key, self.value_bytes))
            self.put_hot()
            key += 1
        self.surviving = self.log.number
        self.fill_one()
        self.env.checkpoint()

    def fill_one(self) -> None:
        number = self.log.number
        while self.log.number == number:
            self.put_hot()

    def delete_one(self) -> None:
        """Delete the oldest file that was written after those that survive."""
        numbers = sorted(int(path.name[:8], 16) for path in self.directory.glob("*.jdb"))
        old = [each for each in numbers if self.surviving < each < self.log.number - YOUNG_FILES]
        for number in old[:1]:
            if clean_file(self.env, number):
                (self.copy / file_name(number)).unlink()


def run(directory: Path, copy: Path, file_bytes: int, files_per_second: float) -> None:
    churn, parent = Churn(directory, copy, file_bytes), os.getppid()
    churn.fill_what_survives()
    print("READY", flush=True)
    begun, files = time.monotonic(), 0
    while os.getppid() == parent:
        churn.fill_one()
        churn.delete_one()
        files += 1
        time.sleep(max(0.0, begun + files / files_per_second - time.monotonic()))


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
