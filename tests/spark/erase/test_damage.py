"""Damaged logs: an error with file and offset, or a plan that says what is wrong; never a crash."""

import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogCorrupt, LogFileMissing, LogRefused, RestoreRequired, RollbackUnfinished
from spark.erase.native import types as t
from spark.erase.native.items import parse_ln, parse_node
from spark.erase.plan.plan import Plan, plan_erasure
from spark.erase.reasons import Cause
from spark.formats.je.log import USER_LN_TYPES, EntryType
from tests.oracles import je_log as oracle
from tests.spark.erase.conftest import Sample

ROOT = Path(__file__).parents[3]
Place = tuple[str, int]


def places(plan: Plan) -> set[Place]:
    return {(file.name, offset) for file in plan.files for offset in file.erase["offset"].to_pylist()}


def rewrite_checksum(data: bytearray, offset: int) -> None:
    _, kind, flags, _, size = struct.unpack_from("<IBBIi", data, offset)
    end = offset + (22 if flags & 0x28 and kind != 25 else 14) + size
    covered = bytearray(data[offset + 4 : end])
    covered[1] &= 0xEF
    struct.pack_into("<I", data, offset, zlib.adler32(covered))


def mutate(data: bytes, chance: random.Random) -> tuple[bytes, str]:
    """One wound: a flipped bit, foreign bytes, a cut, a hole, a piece twice."""
    kind = chance.choice(["bit", "bit", "bit", "bytes", "cut", "hole", "twice", "zeros"])
    at = chance.randrange(len(data))
    wounded = bytearray(data)
    if kind == "bit":
        wounded[at] ^= 1 << chance.randrange(8)
    elif kind == "bytes":
        piece = chance.randbytes(chance.choice([1, 4, 14, 200]))
        wounded[at : at + len(piece)] = piece[: len(data) - at]
    elif kind == "cut":
        del wounded[at:]
    elif kind == "hole":
        del wounded[at : at + chance.choice([1, 14, 4096])]
    elif kind == "twice":
        wounded[at:at] = data[at : at + chance.choice([1, 14, 4096])]
    else:
        size = min(chance.choice([1, 512, 4096]), len(data) - at)
        wounded[at : at + size] = bytes(size)
    return bytes(wounded), f"{kind} at {at}"


def plan_or_refusal(directory: Path) -> Plan | LogRefused:
    try:
        return plan_erasure(directory, PlanRequest())
    except LogRefused as refused:
        return refused


def check_wounded(directory: Path, file: Path, whole: Plan, wound: str) -> str:
    """Plan a wounded environment: refused with a place, or nothing more than before, and said so."""
    plan = plan_or_refusal(directory)
    if isinstance(plan, LogRefused):
        assert plan.file is not None, wound
        assert plan.offset is not None, wound
        return plan.code
    last = plan.files[-1].name
    more = places(plan) - places(whole)
    wounded = {(each.name, row["offset"]) for each in plan.files for row in _flagged(each)}
    # Only the invisible flag and the bytes of erased entries are outside of all checksums.
    assert more <= wounded, f"{file.name}, {wound}: {sorted(more - wounded)[:5]}"
    if file.name != last:
        assert wounded, f"{file.name}, {wound}: a plan without a word"
        return "FLAGGED"
    return "TORN" if plan.torn_at else "SHORTER"


def _flagged(file: Any) -> list[dict[str, int]]:
    rows = file.columns.entries.to_pylist()
    return [row for row in rows if row["flags"] & 0x10 or row["type"] == EntryType.ERASED]


def damage(directory: Path, whole: Plan, *, seed: int, rounds: int) -> dict[str, int]:
    chance = random.Random(seed)
    seen: dict[str, int] = {}
    files = sorted(directory.glob("*.jdb"))
    for _ in range(rounds):
        file = chance.choice(files)
        good = file.read_bytes()
        bad, wound = mutate(good, chance)
        if bad == good:
            continue
        file.write_bytes(bad)
        outcome = check_wounded(directory, file, whole, wound)
        seen[outcome] = seen.get(outcome, 0) + 1
        file.write_bytes(good)
    return seen


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_random_wound_is_refused_or_plans_no_more(
    samples: dict[str, Sample], copy_of: Callable[[str], Path], seed: int
) -> None:
    whole = plan_erasure(samples["halted"].path, PlanRequest())
    seen = damage(copy_of("halted"), whole, seed=seed, rounds=60)
    assert sum(seen.values()) > 50
    assert seen["LOG_CHECKSUM_WRONG"] > 5


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["closed", "crash", "swept", "halted"])
@pytest.mark.parametrize("seed", range(100, 104))
def test_many_random_wounds_are_refused_or_plan_no_more(
    samples: dict[str, Sample], copy_of: Callable[[str], Path], name: str, seed: int
) -> None:
    whole = plan_erasure(samples[name].path, PlanRequest())
    damage(copy_of(name), whole, seed=seed, rounds=500)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_compiled_code_stays_within_its_arrays(copy_of: Callable[[str], Path], tmp_path: Path) -> None:
    # The same wounds with every index checked by numba: a read outside raises instead of reading something.
    program = f"""
import random
from pathlib import Path
from spark.erase.errors import LogRefused
from spark.erase.plan.plan import plan_erasure
from spark.erase.calls.request import PlanRequest
from tests.spark.erase.test_damage import mutate
chance = random.Random(7)
files = sorted(Path({str(copy_of("halted"))!r}).glob("*.jdb"))
for _ in range(300):
    file = chance.choice(files)
    good = file.read_bytes()
    file.write_bytes(mutate(good, chance)[0])
    try:
        plan_erasure(file.parent, PlanRequest())
    except LogRefused:
        pass
    file.write_bytes(good)
"""
    environment = {
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True)


def entries_of(sample: Sample) -> list[tuple[int, bytes]]:
    found = []
    for file in sample.files()[-3:]:
        data = file.read_bytes()
        for entry in oracle.walk(data):
            if "ln" in entry or "node" in entry:
                start = entry["offset"] + entry["header"]
                found.append((entry["type"], data[start : start + entry["item_bytes"]]))
    return found


def parse_compiled(kind: int, item: bytes) -> dict[str, Any] | None:
    """The columns that the compiled parser fills, or None where it says that the item is malformed."""
    buffer = np.frombuffer(bytearray(item), dtype=np.uint8)
    rows = np.empty((1, 16), dtype=np.int64)
    row = rows[0]
    if kind in USER_LN_TYPES or kind in (40, 41, 42):
        keys = np.zeros(len(item), dtype=np.uint8)
        if parse_ln(buffer, 0, len(item), kind, rows, 0, keys, 0) != len(item):
            return None
        names = {"db": t.LN_DB, "txn": t.LN_TXN, "abort_lsn": t.LN_ABORT_LSN, "value_bytes": t.LN_VALUE_BYTES}
        names |= {"expiration": t.LN_EXPIRATION, "flags": t.LN_FLAGS, "txn_previous": t.LN_TXN_PREVIOUS}
        names |= {"abort_data_bytes": t.LN_ABORT_DATA_BYTES}
        key = keys[: row[t.LN_KEY_BYTES]].tobytes()
        return {name: int(row[column]) for name, column in names.items()} | {"key": key}
    slots = np.empty((len(item), t.SLOT_COLUMNS), dtype=np.int64)
    prefix = np.zeros(2, dtype=np.int64)
    if parse_node(buffer, 0, len(item), kind, rows, 0, slots, prefix) != len(item):
        return None
    names = {"db": t.NODE_DB, "node": t.NODE_ID, "last_full": t.NODE_LAST_FULL, "level": t.NODE_LEVEL}
    before = item[prefix[0] : prefix[0] + max(prefix[1], 0)]
    found = [
        (before + item[at : at + size], lsn, state)
        for lsn, state, at, size in slots[: row[t.NODE_SLOTS]].tolist()
    ]
    return {name: int(row[column]) for name, column in names.items()} | {"slots": found}


def parse_plain(kind: int, item: bytes) -> dict[str, Any] | None:
    try:
        if kind in (12, 13, 37):
            node = oracle.read_node(item, kind)
            node["slots"] = [slot[:3] for slot in node["slots"]]
            del node["flags"]
            return node
        ln = oracle.read_ln(item, kind)
    except oracle.Wrong:
        return None
    del ln["value"], ln["abort_key"], ln["abort_data"]
    return ln


@pytest.mark.parametrize("rounds", [1500, pytest.param(150_000, marks=pytest.mark.long)])
def test_damaged_items_are_judged_as_by_the_plain_reader(samples: dict[str, Sample], rounds: int) -> None:
    chance = random.Random(rounds)
    items = entries_of(samples["halted"])
    malformed = 0
    for _ in range(rounds):
        kind, item = chance.choice(items)
        wounded = bytearray(item)
        for _ in range(chance.randrange(4)):
            at = min(int(chance.expovariate(0.1)), len(item) - 1)
            wounded[at] = chance.choice([0, 1, 119, 120, 121, 127, 128, 129, 136, 137, 255, wounded[at] ^ 1])
        if not chance.randrange(8):
            wounded = wounded[: chance.randrange(len(wounded) + 1)]
        plain = parse_plain(kind, bytes(wounded))
        assert parse_compiled(kind, bytes(wounded)) == plain, (kind, wounded.hex())
        malformed += plain is None
    assert rounds // 10 < malformed < rounds


def rewrite(directory: Path, name: str, change: Callable[[bytearray, list[dict[str, Any]]], None]) -> None:
    path = directory / name
    data = bytearray(path.read_bytes())
    change(data, list(oracle.walk(bytes(data))))
    path.write_bytes(data)


def test_chain_between_files_that_does_not_fit_is_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")

    def change(data: bytearray, entries: list[dict[str, Any]]) -> None:
        struct.pack_into("<q", data, 26, 7)
        rewrite_checksum(data, 0)

    rewrite(directory, "00000001.jdb", change)
    with pytest.raises(LogCorrupt) as refused:
        plan_erasure(directory, PlanRequest())
    assert (refused.value.code, refused.value.file, refused.value.offset) == (
        "LOG_CHAIN_BROKEN",
        "00000001.jdb",
        26,
    )


def test_item_with_bytes_left_over_is_refused_although_its_checksum_is_right(
    copy_of: Callable[[str], Path],
) -> None:
    directory = copy_of("closed")
    place = []

    def change(data: bytearray, entries: list[dict[str, Any]]) -> None:
        # A value that is announced one byte shorter than it is.
        entry = next(each for each in entries if each["type"] == 33 and each["ln"]["value_bytes"] == 110)
        at = data.index(b"\x6e", entry["offset"] + 14 + entry["item_bytes"] - 120)
        data[at] = 109
        rewrite_checksum(data, entry["offset"])
        place.append(entry["offset"])

    rewrite(directory, "00000000.jdb", change)
    with pytest.raises(LogCorrupt) as refused:
        plan_erasure(directory, PlanRequest())
    assert refused.value.code == "LOG_ITEM_MALFORMED"
    assert (refused.value.file, refused.value.offset) == ("00000000.jdb", place[0])


def test_torn_tail_is_legal_in_the_last_file_only(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("crash")
    last, first = directory / "00000002.jdb", directory / "00000000.jdb"
    whole = last.read_bytes()
    last.write_bytes(whole[:-5])
    plan = plan_erasure(directory, PlanRequest())
    assert plan.torn_at is not None
    assert plan.torn_at[0] == last.name
    last.write_bytes(whole + b"\0" * 4096)
    assert plan_erasure(directory, PlanRequest()).torn_at == (last.name, len(whole))
    last.write_bytes(whole)
    first.write_bytes(first.read_bytes()[:-5])
    with pytest.raises(LogCorrupt) as refused:
        plan_erasure(directory, PlanRequest())
    assert refused.value.code == "LOG_ENTRY_TORN"
    assert refused.value.file == first.name


def test_damage_in_the_middle_of_the_last_file_is_no_torn_tail(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("crash")
    last = directory / "00000002.jdb"
    data = bytearray(last.read_bytes())
    data[200_000] ^= 4
    last.write_bytes(data)
    with pytest.raises(LogCorrupt, match="a whole entry follows") as refused:
        plan_erasure(directory, PlanRequest())
    assert refused.value.file == last.name


def test_last_file_that_ends_within_its_header_is_a_torn_tail(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    (directory / "00000004.jdb").write_bytes(b"")
    plan = plan_erasure(directory, PlanRequest())
    assert plan.torn_at == ("00000004.jdb", 0)
    assert plan.files[3].causes == (Cause.RECOVERY_INTERVAL,)


def test_missing_file_that_the_tree_needs_is_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    (directory / "00000002.jdb").unlink()
    with pytest.raises(LogFileMissing) as refused:
        plan_erasure(directory, PlanRequest())
    assert refused.value.file == "00000002.jdb"


def change_type(kind: EntryType, item: bytes) -> Callable[[bytearray, list[dict[str, Any]]], None]:
    """Append an entry of a kind to a file."""

    def change(data: bytearray, entries: list[dict[str, Any]]) -> None:
        offset = len(data)
        data += struct.pack("<IBBIi", 0, kind, 0, entries[-1]["offset"], len(item)) + item
        rewrite_checksum(data, offset)

    return change


def test_restore_that_is_required_is_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    rewrite(directory, "00000003.jdb", change_type(EntryType.RESTORE_REQUIRED, b"\x01A\x01\x01B"))
    with pytest.raises(RestoreRequired) as refused:
        plan_erasure(directory, PlanRequest())
    assert refused.value.file == "00000003.jdb"
    (directory / "7fffffff.jdb").write_bytes(b"")
    with pytest.raises(RestoreRequired, match="7fffffff"):
        plan_erasure(directory, PlanRequest())


def test_rollback_without_an_end_is_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    rewrite(directory, "00000003.jdb", change_type(EntryType.ROLLBACK_START, b"\x01\x02\x03\x00"))
    with pytest.raises(RollbackUnfinished):
        plan_erasure(directory, PlanRequest())


def test_entry_that_became_erased_while_a_slot_names_it_is_reported(
    samples: dict[str, Sample], copy_of: Callable[[str], Path]
) -> None:
    # One bit parts type 35 from 43: such an entry looks half erased. A live one is vetoed.
    whole = plan_erasure(samples["crash"].path, PlanRequest())
    directory = copy_of("crash")
    live = None

    def change(data: bytearray, entries: list[dict[str, Any]]) -> None:
        nonlocal live
        gone = {offset for name, offset in places(whole) if name == "00000001.jdb"}
        live = next(each["offset"] for each in entries if each["type"] == 35 and each["offset"] not in gone)
        data[live + 4] = 43

    rewrite(directory, "00000001.jdb", change)
    plan = plan_erasure(directory, PlanRequest())
    assert live is not None
    assert ("00000001.jdb", live) not in places(plan)
    assert plan.erased_reached == ((1 << 32) + live,)
    assert [lsn for lsn, _ in plan.vetoed] == [(1 << 32) + live]
