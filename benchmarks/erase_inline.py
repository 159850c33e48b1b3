"""What an erasure costs on one core, inline, beside zlib.adler32 over the same bytes in the same run.

Loops over bytes are measured in the processor's time of this thread, so that others on the machine count
less; what waits for the disk is measured in real time, and so is the Adler-32 that it is compared with.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spark.erase.calls.calls import PlanCall, PlannedFile, PrepareCall, ProveCall
from spark.erase.calls.request import PlanRequest
from spark.erase.native import types as t
from spark.erase.native.types import Buffer, Outcome
from spark.erase.native.walking import walk
from spark.erase.reading.directory import file_names, opened
from spark.erase.reading.files import ENTRIES_PER_CALL, UNIT_BYTES, Room, read_file
from spark.erase.reading.gathering import Rows
from spark.erase.unit import do
from tests.spark.erase.hands_at_work import claim, rounds_of

Clock = Callable[[], float]


@dataclass
class Found:
    """What was measured on one environment; seconds.

    Attributes:
        adler_s, adler_real_s: zlib.adler32 over all bytes in memory, by this thread's time and by real time.
        walk_s: the walk with its parsing over the same bytes in memory; without and with checksums.
        read_s: the same from files, into Arrow tables.
        clean_s: a plan over files in which nothing is left to erase.
    """

    name: str
    byte_count: int
    file_count: int
    entry_count: int = 0
    erased_count: int = 0
    erased_bytes: int = 0
    adler_s: float = 0.0
    adler_real_s: float = 0.0
    walk_s: float = 0.0
    walk_verified_s: float = 0.0
    read_s: float = 0.0
    copy_s: float = 0.0
    steps_s: dict[str, float] = field(default_factory=dict)
    clean_s: float = 0.0
    refusals: list[str] = field(default_factory=list)

    @property
    def erase_s(self) -> float:
        """Plan, overwrite and proof together."""
        return sum(self.steps_s.values())

    def percent(self, seconds: float, *, real: bool = False) -> float:
        """The speed as a part of Adler-32's."""
        return 100 * (self.adler_real_s if real else self.adler_s) / seconds if seconds else 0.0


@contextmanager
def one_core(core: int) -> Iterator[None]:
    """Keep this process on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(directory: Path, scratch: Path, *, name: str, rounds: int) -> Found:
    """Measure an environment; a copy of it is erased in `scratch`."""
    names = file_names(directory)
    sizes = [(directory / each).stat().st_size for each in names]
    found = Found(name, sum(sizes), len(names))
    do(PlanCall(str(directory), PlanRequest()))  # compiled once, and the files are in memory
    for each in names:
        _measure_bytes(directory, each, found, rounds=rounds, is_last=each == names[-1])
    began = time.perf_counter()
    _copy(directory, scratch, names)
    found.copy_s = time.perf_counter() - began
    _erase(scratch, found)
    began = time.perf_counter()
    again = do(PlanCall(str(scratch), PlanRequest()))
    found.clean_s = time.perf_counter() - began
    if again.refusal is not None or any(each.entry_count for each in again.files):
        found.refusals.append("the second plan is not empty")
    return found


def _measure_bytes(directory: Path, name: str, found: Found, *, rounds: int, is_last: bool) -> None:
    """Adler-32 and the walk in turn over the bytes of one file."""
    buffer: Buffer = np.frombuffer(bytearray((directory / name).read_bytes()), dtype=np.uint8)
    rows = Rows.of(ENTRIES_PER_CALL, len(buffer))
    room = Room.make()
    times: dict[str, list[float]] = {"adler": [], "real": [], "walk": [], "verified": [], "read": []}
    for _ in range(rounds):
        times["real"].append(_timed(time.perf_counter, lambda: _adler(buffer)))
        times["adler"].append(_timed(time.thread_time, lambda: _adler(buffer)))
        times["walk"].append(_timed(time.thread_time, lambda: _walk(buffer, rows, verify=False)))
        times["verified"].append(_timed(time.thread_time, lambda: _walk(buffer, rows, verify=True)))
        times["read"].append(_timed(time.thread_time, lambda: _read(directory, name, room, is_last=is_last)))
    middle = {key: statistics.median(each) for key, each in times.items()}
    found.entry_count += _walk(buffer, rows, verify=False)
    found.adler_s += middle["adler"]
    found.adler_real_s += middle["real"]
    found.walk_s += middle["walk"]
    found.walk_verified_s += middle["verified"]
    found.read_s += middle["read"]


def _timed(clock: Clock, work: Callable[[], object]) -> float:
    began = clock()
    work()
    return clock() - began


def _adler(buffer: Buffer) -> None:
    view = memoryview(buffer.data)
    for at in range(0, len(view), UNIT_BYTES):
        zlib.adler32(view[at : at + UNIT_BYTES])


def _walk(buffer: Buffer, rows: Rows, *, verify: bool) -> int:
    """Walk a file in memory, items parsed into rows; returns how many entries it has."""
    rows.state[:] = 0
    at, entries, outcome = 0, 0, Outcome.FULL
    while outcome == Outcome.FULL:
        rows.begin_call()
        number, at = walk(
            buffer, at, len(buffer), 0, verify, True, rows.state, rows.headers, rows.lns, rows.nodes,
            rows.ends, rows.rare, rows.keys, rows.no_slots, rows.prefix,
        )  # fmt: skip
        outcome = Outcome(int(number))
        entries += int(rows.state[t.STATE_HEADERS])
    assert outcome == Outcome.DONE, outcome
    return entries


def _read(directory: Path, name: str, room: Room, *, is_last: bool) -> None:
    with opened(directory, [name]) as [file]:
        read_file(file, is_last=is_last, verify=False, room=room)


def _copy(source: Path, target: Path, names: list[str]) -> None:
    """Copy the files, each made durable."""
    target.mkdir(parents=True)
    for name in names:
        shutil.copyfile(source / name, target / name)
        descriptor = os.open(target / name, os.O_RDONLY | os.O_CLOEXEC)
        os.fsync(descriptor)
        os.close(descriptor)


def _erase(directory: Path, found: Found) -> None:
    """Everything that a cycle asks of its hands, without a throttle and without its rows."""
    claim(directory)
    steps = found.steps_s
    began = time.perf_counter()
    plan = do(PlanCall(str(directory), PlanRequest()))
    steps["plan"] = time.perf_counter() - began
    _note(found, plan)
    for file in plan.files:
        if file.entry_count:
            _erase_file(directory, file, found)


def _erase_file(directory: Path, file: PlannedFile, found: Found) -> None:
    where, steps = str(directory), found.steps_s
    begun = [time.perf_counter()]
    prepared = do(PrepareCall(where, file.number, file.identity, file.entries))
    begun.append(time.perf_counter())
    for call in rounds_of(directory, file):
        _note(found, do(call))
    begun.append(time.perf_counter())
    call = ProveCall(where, file.number, file.identity, file.entries, prepared.sha256_expected)
    proved = do(call)
    begun.append(time.perf_counter())
    for each in (prepared, proved):
        _note(found, each)
    for name, begin, end in zip(("prepare", "overwrite", "proof"), begun, begun[1:], strict=False):
        steps[name] = steps.get(name, 0.0) + end - begin
    found.erased_count += file.entry_count
    found.erased_bytes += sum(item_bytes for _, item_bytes in file.erased.values())


def _note(found: Found, answer: object) -> None:
    refusal = getattr(answer, "refusal", None)
    if refusal is not None:
        found.refusals.append(f"{refusal.code}: {refusal.detail}")
