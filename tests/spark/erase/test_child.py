"""Hands in a process of their own, and what is left when that process is killed."""

import errno
import gc
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle, repeat
from pathlib import Path

import pytest

from spark.erase.calls.calls import (
    DeleteReservedCall,
    HeaderTimesCall,
    Mode,
    PlanCall,
    PrepareCall,
    ProveCall,
    RefusalCode,
    RoundCall,
    Step,
)
from spark.erase.calls.request import PlanRequest
from spark.erase.hands import child
from spark.erase.hands.child import LENGTH, ChildHands, MessageForeign, read_message
from spark.erase.hands.hands import HandsLost
from tests.spark.erase.aftermath import Aftermath
from tests.spark.erase.hands_at_work import claim, plan, rounds_of
from tests.spark.erase.live_records import live_records

ROOT = Path(__file__).parents[3]
PATIENCE_S = 20.0
# About what a whole erasure of the environment takes.
KILL_AFTER_S = {Mode.CLOSED: 0.03, Mode.LIVE: 0.12}


@pytest.fixture
def hands() -> Iterator[ChildHands]:
    opened = ChildHands()
    yield opened
    opened.close()


def test_every_call_is_done_in_the_child(copy_of: Callable[[str], Path], hands: ChildHands) -> None:
    directory = copy_of("closed")
    claim(directory)
    before = live_records(directory)
    assert hands.pid is None
    times = hands.header_times(HeaderTimesCall(str(directory), 1, 2))
    assert [each.number for each in times.files] == [1, 2]
    assert hands.pid not in (None, os.getpid())
    answer = hands.plan(PlanCall(str(directory), PlanRequest()))
    assert answer == plan(directory)
    for file in [each for each in answer.files if each.entry_count]:
        place = (str(directory), file.number)
        hashed = hands.prepare(PrepareCall(*place, file.identity, file.entries))
        for call in rounds_of(directory, file):
            done = hands.round(call)
            assert done.step == Step.DONE
            assert len(done.costs.fsync_s) == 3
            assert min(done.costs.fsync_s) > 0
        proved = hands.prove(ProveCall(*place, file.identity, file.entries, hashed.sha256_expected))
        assert proved.is_proved
    deleted = hands.delete_reserved(DeleteReservedCall(str(directory), 0, 6, answer.files[0].identity))
    assert deleted.refusal is not None
    assert deleted.refusal.code == RefusalCode.EPOCH_PASSED
    assert live_records(directory) == before


def test_child_is_another_session_of_low_priority_and_gone_after_close(
    copy_of: Callable[[str], Path],
) -> None:
    hands = ChildHands(dict(os.environ))  # started from its file: tests fork those without an environment
    hands.header_times(HeaderTimesCall(str(copy_of("closed")), 0, 1))
    pid = hands.pid
    assert pid is not None
    assert os.getsid(pid) == pid
    # pytest itself may run at a lower priority already.
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 5, 19)
    hands.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(HandsLost):
        hands.header_times(HeaderTimesCall("/", 0, 1))


def test_killed_child_loses_the_call_and_every_later_one(
    copy_of: Callable[[str], Path], hands: ChildHands
) -> None:
    directory = copy_of("closed")
    hands.header_times(HeaderTimesCall(str(directory), 0, 1))
    killer = threading.Timer(0.05, hands.kill)
    killer.start()
    call = PlanCall(str(directory), PlanRequest())
    with pytest.raises(HandsLost, match="-9"):
        deque(map(hands.plan, repeat(call)), maxlen=0)
    killer.join()
    with pytest.raises(HandsLost):
        hands.plan(call)
    hands.kill()


def test_lost_child_leaves_no_process_and_no_pipe(copy_of: Callable[[str], Path]) -> None:
    # Nobody has to close hands that are lost; an open pipe would be a warning, and warnings are errors.
    directory, hands = copy_of("closed"), ChildHands()
    hands.header_times(HeaderTimesCall(str(directory), 0, 1))
    pid = hands.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(HandsLost):
        hands.header_times(HeaderTimesCall(str(directory), 0, 1))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    del hands
    gc.collect()


def test_child_killed_before_it_was_started_never_starts(hands: ChildHands) -> None:
    hands.kill()
    with pytest.raises(HandsLost):
        hands.header_times(HeaderTimesCall("/", 0, 1))
    assert hands.pid is None


def test_refusal_of_the_log_names_code_and_place(copy_of: Callable[[str], Path], hands: ChildHands) -> None:
    directory = copy_of("closed")
    with (directory / "00000001.jdb").open("r+b") as file:
        file.seek(34)
        file.write(b"\x0c")
    answer = hands.plan(PlanCall(str(directory), PlanRequest()))
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.refusal.ref) == (
        RefusalCode.LOG_REFUSED,
        "LOG_VERSION_UNSUPPORTED",
    )
    assert (answer.refusal.file, answer.refusal.offset) == ("00000001.jdb", 34)
    missing = hands.header_times(HeaderTimesCall(str(directory / "away"), 0, 1))
    assert missing.refusal is not None
    assert missing.refusal.ref == "NOT_AN_ENVIRONMENT"


def test_child_dies_with_its_parent(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    program = (
        "import os, threading\n"
        "from spark.erase.calls.calls import HeaderTimesCall, PlanCall\n"
        "from spark.erase.hands.child import ChildHands\n"
        "from spark.erase.calls.request import PlanRequest\n"
        "hands = ChildHands()\n"
        f"hands.header_times(HeaderTimesCall({str(directory)!r}, 0, 1))\n"
        "print(hands.pid, flush=True)\n"
        "threading.Timer(0.1, lambda: os.kill(os.getpid(), 9)).start()\n"
        "while True:\n"
        f"    hands.plan(PlanCall({str(directory)!r}, PlanRequest()))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (-9, b"")
    assert_gone(int(run.stdout))


def assert_gone(pid: int) -> None:
    """Its new parent may take a moment to collect it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return
        if status.rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} lives on")


def killed_at_random(directory: Path, scratch: Path, *, kills: int, judged: int, seed: int) -> int:
    """Kill a child so often in the middle of rounds; judge what is left. Returns how often it had begun.

    Args:
        scratch: an environment for a first round, so that each child has its machine code at hand.
        judged: after each so many kills the records are compared too.
    """
    aftermath = Aftermath(directory)
    claim(scratch)
    first = next(rounds_of(scratch, max(plan(scratch).files, key=lambda file: file.entry_count), rows=1))
    chance = random.Random(seed)
    calls = {
        Mode.CLOSED: aftermath.calls(Mode.CLOSED, None),
        Mode.LIVE: aftermath.calls(Mode.LIVE, 500),
    }
    begun = 0
    with ThreadPoolExecutor(1) as starting:
        coming = starting.submit(started, first)
        for kill in range(kills):
            aftermath.restore()
            hands = coming.result()
            coming = starting.submit(started, first)
            mode = Mode.LIVE if kill % 2 else Mode.CLOSED
            lose(hands, calls[mode], after_s=chance.random() * KILL_AFTER_S[mode])
            begun += any((directory / name).read_bytes() != data for name, data in aftermath.before.items())
            aftermath.judge(with_records=kill % judged == 0)
        coming.result().close()
    aftermath.finish()
    return begun


def started(first: RoundCall) -> ChildHands:
    hands = ChildHands()
    assert hands.round(replace(first, is_first=False)).refusal is None
    return hands


def lose(hands: ChildHands, calls: list[RoundCall], *, after_s: float) -> None:
    """Have rounds done until the child is killed; its locks are free then."""
    pid = hands.pid
    assert pid is not None
    killer = threading.Timer(after_s, os.kill, (pid, signal.SIGKILL))
    killer.start()
    try:
        for call in cycle(calls):
            assert hands.round(replace(call, is_first=False)).refusal is None
    except HandsLost:
        pass
    killer.join()
    hands.close()


@pytest.mark.timeout(600)
def test_child_killed_at_random_leaves_a_legal_log(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    claim(directory)
    assert killed_at_random(directory, copy_of("halted"), kills=6, judged=3, seed=1) >= 2


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_child_killed_three_hundred_times_leaves_a_legal_log(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    claim(directory)
    assert killed_at_random(directory, copy_of("halted"), kills=300, judged=3, seed=2) >= 100


def test_message_of_another_version_is_told_as_such() -> None:
    """The program was upgraded under a running service: its child sends what the service does not know."""
    data = b"\x80\x04\x8c\x11spark.erase.calls\x94\x8c\x08NoMore21\x94\x93\x94."
    with pytest.raises(MessageForeign, match="restart the service"):
        read_message(io.BytesIO(LENGTH.pack(len(data)) + data))


@pytest.mark.parametrize(
    "met", [BlockingIOError(errno.EAGAIN, "no room for a process"), TimeoutError("no answer")]
)
def test_child_that_cannot_be_started_is_lost_hands_and_not_an_unforeseen_error(
    monkeypatch: pytest.MonkeyPatch, met: OSError
) -> None:
    # Under load a cycle met `TimeoutError` here, before its call, and was FAILED by INTERNAL.
    def refuse(_environment: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
        raise met

    monkeypatch.setattr(child, "start_program", refuse)
    hands = ChildHands()
    with pytest.raises(HandsLost, match=r"was not started: .*no (room|answer)"):
        hands.header_times(HeaderTimesCall("/", 0, 1))
    assert hands.pid is None
    with pytest.raises(HandsLost, match="killed or closed"):
        hands.header_times(HeaderTimesCall("/", 0, 1))
    hands.close()
