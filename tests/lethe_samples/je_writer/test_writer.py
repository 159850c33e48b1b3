"""The writer of logs: what it writes is read back, and what JE wrote comes out of it again byte for byte."""

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe_samples.je_writer.bulk import packed_widths
from lethe_samples.je_writer.database import RecordLocked, split_two_part_key
from lethe_samples.je_writer.environment import Environment
from lethe_samples.je_writer.nodes import NodeItem, bloom_filter
from lethe_samples.je_writer.packed import pack, two_part_key
from lethe_samples.je_writer.sample import write_sample
from spark.erase.calls.request import PlanRequest
from spark.erase.plan.plan import plan_erasure
from spark.erase.reading.log import read_log
from spark.formats.je.items import NODE_KEY_PREFIX
from spark.formats.je.log import USER_LN_TYPES, EntryType, file_name, lsn_of
from spark.formats.je.packed import ItemReader
from tests.je_data import log_files
from tests.lethe_samples.je_writer.items_parsing import parse_node, rewrite
from tests.oracles import je_log as oracle
from tests.spark.erase.random_environments import random_environment


def entries(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Offset, type and item of each entry of a file."""
    at = 0
    while at < len(data):
        kind, flags, size = struct.unpack_from("<BB4xi", data, at + 4)
        start = at + (22 if flags & 0x28 and kind != EntryType.FILE_HEADER else 14)
        if start + size > len(data):
            return
        yield at, kind, data[start : start + size]
        at = start + size


@pytest.mark.parametrize("name", ["closed", "comparator", "crash", "halted", "replicated", "swept"])
def test_entries_that_je_wrote_come_out_again_byte_for_byte(name: str) -> None:
    written: Counter[int] = Counter()
    for data in log_files(name).values():
        for offset, kind, raw in entries(data):
            again = rewrite(raw, kind)
            if again is not None:
                assert again == raw, f"type {kind} at {offset:#x}"
                written[kind] += 1
    common = {EntryType.IN, EntryType.BIN, EntryType.COMMIT, EntryType.MAP_LN, EntryType.INS_LN_TX}
    assert common | {EntryType.CKPT_END, EntryType.DB_TREE} <= written.keys()


def shapes(files: list[bytes]) -> set[tuple[int, int, int]]:
    """The flags of LNs, each one apart: the type, the byte, the bit."""
    found = set()
    for data in files:
        for _, kind, raw in entries(data):
            if kind in USER_LN_TYPES:
                found |= {(kind, byte, bit) for byte in range(3) for bit in range(8) if raw[byte] >> bit & 1}
    return found


def test_bloom_filters_of_deltas_are_those_of_je() -> None:
    # Which keys a filter stands for is known where the full BIN is in the log too.
    checked = 0
    for data in log_files("closed").values():
        full: dict[int, NodeItem] = {}
        for offset, kind, raw in entries(data):
            if kind == EntryType.BIN:
                full[offset] = parse_node(raw, kind)
            if kind != EntryType.BIN_DELTA:
                continue
            delta = parse_node(raw, kind)
            base = full.get(delta.last_full_lsn & 0xFFFFFFFF)
            if base is None or base.node_id != delta.node_id or base.flags & NODE_KEY_PREFIX:
                continue
            changed = {slot.key for slot in delta.slots}
            rest = [slot.key for slot in base.slots if slot.key not in changed]
            if len(rest) + len(changed) == delta.full_slots and not any(s.state & 16 for s in base.slots):
                assert bloom_filter(rest, len(rest)) == delta.bloom_filter
                checked += 1
    assert checked >= 1


@given(st.integers(-(2**63) + 1, 2**63 - 1))
@settings(max_examples=200, deadline=None)
def test_packed_integer_is_read_back_by_both_readers(value: int) -> None:
    assert ItemReader(pack(value)).packed_long() == value
    assert oracle.Item(pack(value)).l() == value
    if -119 <= value < 2**56:
        assert len(pack(value)) == packed_widths(np.array([value]))[0]


@given(st.binary(max_size=300), st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_key_of_two_parts_comes_apart_again(key: bytes, data: bytes) -> None:
    assert split_two_part_key(two_part_key(key, data)) == (key, data)


def small(directory: Path) -> Environment:
    """Two databases, some transactions, a checkpoint."""
    directory.mkdir()
    environment = Environment(directory, file_bytes_max=8_000, created_ms=1_795_163_064_859)
    environment.create("users")
    environment.create("tags", dups=True)
    for number in range(200):
        txn = environment.begin()
        environment.put(txn, "users", b"u%d" % (number % 70), b"value %d " % number * (1 + number % 9))
        environment.put(txn, "tags", b"t%d" % (number % 5), b"u%d" % number)
        if number % 3:
            environment.commit(txn)
        else:
            environment.abort(txn)
        if number == 120:
            environment.checkpoint()
    return environment


def test_same_calls_make_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        small(tmp_path / name).close()
    files = [path.name for path in sorted((tmp_path / "one").iterdir())]
    assert len(files) > 3
    assert "je.lck" in files
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_file_ends_before_the_entry_that_would_pass_its_limit(tmp_path: Path) -> None:
    small(tmp_path / "one").close()
    files = sorted((tmp_path / "one").glob("*.jdb"))
    assert all(path.stat().st_size <= 8_000 for path in files)
    last = 0
    for number, path in enumerate(files):
        data = path.read_bytes()
        assert struct.unpack_from("<Iq", data, 22) == (number, last)
        last = max(offset for offset, _, _ in entries(data))


def test_locked_record_is_refused_to_another_transaction(tmp_path: Path) -> None:
    environment = small(tmp_path / "one")
    txn = environment.begin()
    environment.put(txn, "users", b"u1", b"mine")
    with pytest.raises(RecordLocked):
        environment.put(environment.begin(), "users", b"u1", b"not mine")
    with pytest.raises(RecordLocked):
        environment.delete(None, "users", b"u1")


def test_abort_returns_to_the_version_before(tmp_path: Path) -> None:
    environment = small(tmp_path / "one")
    before = sorted(environment.databases["users"].records())
    txn = environment.begin()
    environment.put(txn, "users", b"u1", b"new")
    environment.put(txn, "users", b"u1", b"newer")
    environment.delete(txn, "users", b"u2")
    environment.put(txn, "users", b"fresh", b"new")
    assert sorted(environment.databases["users"].records()) != before
    environment.abort(txn)
    assert sorted(environment.databases["users"].records()) == before


@pytest.mark.parametrize("seed", range(100, 106))
def test_random_environment_is_read_strictly_by_both_readers(seed: int, tmp_path: Path) -> None:
    written = random_environment(tmp_path, seed, size=250)
    with read_log(tmp_path, verify=True) as log:
        torn_at, rows = log.files[-1].torn_at, sum(file.entries.num_rows for file in log.files)
    assert (torn_at is not None) == written.torn
    files = [path.read_bytes() for path in sorted(tmp_path.glob("*.jdb"))]
    files[-1] = files[-1][:torn_at]
    assert rows == sum(1 for data in files for _ in oracle.walk(data))
    for marker in written.markers.values():
        if not marker.file_removed:
            data = (tmp_path / file_name(marker.lsn >> 32)).read_bytes()
            at = marker.lsn & 0xFFFFFFFF
            size = struct.unpack_from("<i", data, at + 10)[0]
            assert marker.marker in data[at : at + 14 + size]


def test_lns_have_no_field_that_those_of_je_have_not(tmp_path: Path) -> None:
    real = set().union(*(shapes(log_files(name).values()) for name in ("comparator", "halted", "swept")))
    written = set()
    for seed in range(20, 25):
        (tmp_path / str(seed)).mkdir()
        random_environment(tmp_path / str(seed), seed, size=250)
        written |= shapes([path.read_bytes() for path in (tmp_path / str(seed)).glob("*.jdb")])
    assert written <= real
    assert len(written) > 20


def test_plan_takes_nothing_that_is_live(tmp_path: Path) -> None:
    taken = 0
    for seed in range(40, 46):
        (tmp_path / str(seed)).mkdir()
        written = random_environment(tmp_path / str(seed), seed, size=250)
        plan = plan_erasure(tmp_path / str(seed), PlanRequest())
        chosen = {
            lsn_of(file.columns.number, offset)
            for file in plan.files
            for offset in file.erase["offset"].to_pylist()
        }
        taken += len(chosen)
        needed = (mark for mark in written.markers.values() if mark.live and not mark.moved)
        assert not any(mark.lsn in chosen for mark in needed if not mark.embedded and not mark.dups)
    assert taken > 300


@pytest.mark.parametrize(("median", "obsolete"), [(20, 0.3), (300, 0.8)])
def test_sample_has_its_size_and_share_of_obsolete_entries(
    tmp_path: Path, median: int, obsolete: float
) -> None:
    wanted = 2_000_000
    sample = write_sample(
        tmp_path,
        total_bytes=wanted,
        value_bytes_median=median,
        obsolete_fraction=obsolete,
        file_bytes=250_000,
    )
    assert abs(sample.bytes - wanted) < wanted * 0.15
    assert abs(sample.obsolete_count / sample.ln_count - obsolete) < 0.05
    plan = plan_erasure(tmp_path, PlanRequest())
    chosen = {
        lsn_of(file.columns.number, offset)
        for file in plan.files
        for offset in file.erase["offset"].to_pylist()
    }
    live = set(sample.lsns[sample.live].tolist())
    lns = sample.kinds != EntryType.COMMIT
    assert plan.vetoed == ()
    assert not chosen & live
    assert set(sample.lsns[lns].tolist()) - live <= chosen
    first = sorted(tmp_path.glob("*.jdb"))[1]
    assert sum(1 for _ in oracle.walk(first.read_bytes())) > 20
