"""A writer process: rounds at one data file by the protocol of the control file, until it is ended.

    python control_writer.py DIRECTORY EPOCH [--once] [--stop-before-lock | --stop-in-round]

It prints `ready`, and at the end of each round of `--once` the outcome and the number of writes.
"""

import os
import signal
import sys
import time
from pathlib import Path

from spark.erase.overwrite import environment_lock
from spark.targets.files.control_file import ControlFile

NUMBER = 0
WRITES = 400
BLOCK = 64
PAUSE_S = 0.001


def run_round(
    file: ControlFile, directory: Path, epoch: int, switches: set[str], seed: int
) -> tuple[str, int]:
    if "--stop-before-lock" in switches:
        os.kill(os.getpid(), signal.SIGSTOP)
    lock = environment_lock.try_lock(directory)
    if lock is None:
        return "ENVIRONMENT_IN_USE", 0
    with lock:
        if not file.try_lock_file(NUMBER, exclusive=True):
            return "FILE_LOCKED", 0
        try:
            record = file.read()
            if record.epoch != epoch:
                return "EPOCH_PASSED", 0
            if record.covering(NUMBER):
                return "PROTECTED", 0
            return write(file, directory, record.stop, switches, seed)
        finally:
            file.unlock_file(NUMBER)


def write(file: ControlFile, directory: Path, stop: int, switches: set[str], seed: int) -> tuple[str, int]:
    data = os.open(directory / f"{NUMBER:08x}.jdb", os.O_RDWR | os.O_CLOEXEC)
    try:
        for done in range(WRITES):
            if file.stop_counter() != stop:
                return "STOPPED", done
            os.pwrite(data, (seed + done).to_bytes(8, "little") * (BLOCK // 8), done * BLOCK)
            if done == WRITES // 2 and "--stop-in-round" in switches:
                os.kill(os.getpid(), signal.SIGSTOP)
    finally:
        os.close(data)
    return "DONE", WRITES


def main() -> None:
    directory, epoch, switches = Path(sys.argv[1]), int(sys.argv[2]), set(sys.argv[3:])
    with ControlFile.open(directory, create=False) as file:
        print("ready", flush=True)
        seed = 1
        while True:
            outcome, writes = run_round(file, directory, epoch, switches, seed)
            seed += writes + 1
            if "--once" in switches:
                print(outcome, writes, flush=True)
                return
            time.sleep(PAUSE_S)  # so that a stop hits it between two rounds as well


if __name__ == "__main__":
    main()
