"""Flipped bits and torn tails: refused with file and offset, or a plan that a recovery of the log survives.

The model reads the log as it was before the wound: whatever the plan of the wounded copy would erase must not
be needed by what the log really says.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogRefused
from spark.erase.plan.plan import plan_erasure
from spark.erase.reasons import Cause
from tests.oracles.je_liveness import Verdict, judge
from tests.oracles.je_liveness_reader import Log, read_environment
from tests.oracles.je_liveness_recovery import Recovered, recover, with_erased
from tests.oracles.je_small_engine import SmallEngine
from tests.spark.erase.liveness import planned

Place = tuple[Path, int]  # a file, and a bit of it
TYPE_BYTE, FLAGS_BYTE = 4, 5
FILE_HEADER_BYTES = 38


@dataclass(frozen=True)
class Whole:
    """An environment before it is wounded, and what the model says of it."""

    directory: Path
    log: Log
    verdict: Verdict
    recovered: Recovered


def grown(directory: Path, seed: int, phases: int = 25) -> Whole:
    engine = SmallEngine(seed)
    engine.live(phases)
    if seed % 2:
        engine.close()
    else:
        engine.crash()
    engine.log.write(directory)
    return whole(directory)


def whole(directory: Path) -> Whole:
    log = read_environment(directory)
    return Whole(directory, log, judge(log), recover(log))


def judge_wound(before: Whole, place: Place) -> str:
    """Flip a bit, plan, flip it back; what came of it."""
    path, bit = place
    good = path.read_bytes()
    bad = bytearray(good)
    bad[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bad)
    stamp = path.stat().st_mtime_ns
    plan = plan_or_refusal(before.directory)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (bytes(bad), stamp)
    path.write_bytes(good)
    if isinstance(plan, LogRefused):
        assert plan.file == path.name, place
        assert plan.offset is not None, place
        return plan.code
    check_survives(before, plan, place)
    return "PLANNED"


def plan_or_refusal(directory: Path) -> set[int] | LogRefused:
    try:
        return planned(directory)
    except LogRefused as refused:
        return refused


def check_survives(before: Whole, plan: set[int], place: Place) -> None:
    """A plan of a wounded log: only the wounded entry may be misjudged, and only if nothing reaches it."""
    path, bit = place
    number = int(path.stem, 16)
    for lsn in plan & before.verdict.must_stay.keys():
        at = bit // 8 - (lsn & 0xFFFFFFFF)
        # Outside of all checksums: the invisible flag, and the type when it becomes that of an erased entry.
        assert lsn >> 32 == number, place
        assert at in {TYPE_BYTE, FLAGS_BYTE}, place
        assert before.verdict.must_stay[lsn] in {"LATEST", "OUTCOME_UNKNOWN", "NEVER_TOUCHED"}, place
    after = recover(with_erased(before.log, plan))
    assert (after.records, after.fatal) == (before.recovered.records, []), place


def random_bits(before: Whole, count: int, seed: int) -> Iterator[Place]:
    chance = random.Random(seed)
    paths = sorted(before.directory.glob("*.jdb"))
    sizes = [path.stat().st_size for path in paths]
    for path in chance.choices(paths, sizes, k=count):
        yield path, chance.randrange(path.stat().st_size * 8)


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.long)])
def test_flipped_bit_is_refused_or_harmless(tmp_path: Path, seed: int) -> None:
    before = grown(tmp_path, seed)
    found = [judge_wound(before, place) for place in random_bits(before, 100, seed)]
    assert found.count("LOG_CHECKSUM_WRONG") > 60


def test_bits_outside_of_the_checksum_are_harmless(tmp_path: Path) -> None:
    # The invisible flag, and type bytes one bit away from that of an erased entry.
    before = grown(tmp_path, 6, phases=10)
    outcomes = set()
    for entry in before.log.entries[:: max(len(before.log.entries) // 60, 1)]:
        path = tmp_path / f"{entry.file:08x}.jdb"
        bits = [(entry.offset + FLAGS_BYTE) * 8 + 4]
        wrong = entry.type ^ 43
        if wrong & (wrong - 1) == 0:
            bits.append((entry.offset + TYPE_BYTE) * 8 + wrong.bit_length() - 1)
        outcomes |= {judge_wound(before, (path, bit)) for bit in bits}
    assert "PLANNED" in outcomes


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 20))
def test_every_bit_of_types_and_flags_is_refused_or_harmless(tmp_path: Path, seed: int) -> None:
    before = grown(tmp_path, seed, phases=12)
    for entry in before.log.entries:
        path = tmp_path / f"{entry.file:08x}.jdb"
        for bit in range(entry.offset * 8 + TYPE_BYTE * 8, entry.offset * 8 + FLAGS_BYTE * 8 + 8):
            judge_wound(before, (path, bit))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["halted", "closed", "swept"])
def test_flipped_bits_of_real_logs_are_refused_or_harmless(copy_of: Callable[[str], Path], name: str) -> None:
    before = whole(copy_of(name))
    for place in random_bits(before, 200, 1):
        judge_wound(before, place)


@pytest.mark.parametrize(
    ("seed", "cuts"), [(8, 12), (9, 12), *(pytest.param(seed, 30, marks=pytest.mark.long) for seed in (8, 9))]
)
def test_torn_tail_is_planned_as_the_model_reads_it(tmp_path: Path, seed: int, cuts: int) -> None:
    grown(tmp_path, seed)
    last = sorted(tmp_path.glob("*.jdb"))[-1]
    data, chance = last.read_bytes(), random.Random(seed)
    for size in sorted(chance.sample(range(FILE_HEADER_BYTES, len(data)), min(cuts, len(data) - 40))):
        last.write_bytes(data[:size] + chance.choice([b"", bytes(9), b"\x00" * 300]))
        log = read_environment(tmp_path)
        verdict = judge(log)
        plan = planned(tmp_path)
        assert plan == set(verdict.erasable), size
        assert recover(with_erased(log, plan)) == recover(log), size


def causes_with(tmp_path: Path, *, flags: int = 0, comparator: bytes = b"") -> list[tuple[Cause, ...]]:
    engine = SmallEngine(5)
    engine.create("odd", flags=flags, comparator=comparator)
    engine.live(25)
    engine.close()
    engine.log.write(tmp_path)
    plan = plan_erasure(tmp_path, PlanRequest())
    assert sum(file.erase.num_rows for file in plan.files) == 0
    log = read_environment(tmp_path)
    odd = next(db for db, database in judge_databases(log).items() if database == "odd")
    assert all(file.columns.number in {e.file for e in log.entries if e.db == odd} for file in plan.files)
    return [file.causes for file in plan.files]


def judge_databases(log: Log) -> dict[int, str]:
    return {entry.map.id: entry.map.name for entry in log.entries if entry.map is not None}


def test_files_with_a_comparator_or_deferred_writes_are_left_alone(tmp_path: Path) -> None:
    found = causes_with(tmp_path / "comparator", comparator=b"\xac\xed\x00\x05t\x00\x03Rev")
    assert all(Cause.COMPARATOR in causes for causes in found)
    found = causes_with(tmp_path / "deferred", flags=0x02)
    assert all(Cause.DEFERRED_WRITE in causes for causes in found)
