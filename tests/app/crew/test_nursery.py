"""The process that forks the others: begins them at once, and leaves none behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.style.source_files import ROOT

WAIT_S = 30.0
SERVICE = """
import os, signal, sys, time
from app.crew import nursery as module
from app.crew.nursery import Nursery

module.CLOSE_S = float(sys.argv[2])

def life(orders, told, table, sockets):
    os.write(told, b"lives")
    os.read(orders, 1)
    return 0

nursery = Nursery(life)
nothing = os.open("/dev/null", os.O_RDONLY)
born, pipes = [], []
for _ in range(2):
    orders, to_child = os.pipe()
    from_child, told = os.pipe()
    born.append(nursery.fork([orders, told, nothing, nothing]))
    os.close(orders)
    os.close(told)
    assert os.read(from_child, 10) == b"lives"
    pipes.append(to_child)
born[0].kill()
assert born[0].has_ended(30)
born[0].kill()  # again is harmless
print(nursery.pid, *(each.pid for each in born), flush=True)
if sys.argv[1] in ("leave", "stopped"):
    if sys.argv[1] == "stopped":
        os.kill(nursery.pid, signal.SIGSTOP)
    for pipe in pipes:
        os.close(pipe)
    nursery.close()
    print("left", flush=True)
else:
    os.kill(nursery.pid, 9) if sys.argv[1] == "nursery" else time.sleep(600)
    time.sleep(0.5)
    try:
        nursery.fork([nothing, nothing, nothing, nothing])
    except OSError as error:
        print("gone", flush=True)
    for pipe in pipes:
        os.close(pipe)
"""


def _started(how: str, *, close_s: float = 7.0) -> tuple[subprocess.Popen[str], list[int]]:
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, how, str(close_s)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert service.stdout is not None
    return service, [int(pid) for pid in service.stdout.readline().split()]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _gone(pids: list[int]) -> None:
    deadline = time.monotonic() + WAIT_S
    while any(_lives(pid) for pid in pids):
        assert time.monotonic() < deadline, [pid for pid in pids if _lives(pid)]
        time.sleep(0.02)


@pytest.mark.parametrize(("how", "said"), [("leave", "left"), ("nursery", "gone")])
def test_service_ends_and_all_with_it(how: str, said: str) -> None:
    service, pids = _started(how)
    assert service.communicate(timeout=WAIT_S)[0].strip() == said
    assert service.returncode == 0
    _gone(pids)


def test_service_ends_where_the_process_that_forks_is_stopped() -> None:
    """It waited for that process without an end."""
    service, pids = _started("stopped", close_s=0.5)
    try:
        assert service.communicate(timeout=WAIT_S)[0].splitlines()[-1] == "left"
        assert service.returncode == 0
        _gone(pids)
    finally:
        service.kill()
        for pid in filter(_lives, pids):
            os.kill(pid, signal.SIGKILL)


def test_service_that_is_killed_leaves_nobody_not_even_who_was_stopped() -> None:
    service, pids = _started("stay")
    os.kill(pids[2], signal.SIGSTOP)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(pids[0], number)  # a supervisor's signal to the whole group
    service.kill()
    service.communicate(timeout=WAIT_S)
    _gone(pids)
