"""Whole erasures of environments that JE wrote, by calls: what is written, in which order, at which cost."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from lethe_samples.je_writer.environment import Environment
from spark.erase.calls.calls import Mode, Step
from tests.spark.erase.conftest import Sample
from tests.spark.erase.hands_at_work import (
    Traced,
    claim,
    contents,
    erase,
    erased_by_hand,
    overwrite,
    plan,
    planned_bytes,
    prepare,
    prove,
    put,
    rounds_of,
    split_at_syncs,
)
from tests.spark.erase.live_records import live_records

ERASABLE = ["closed", "crash", "swept", "halted"]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, Mode.CLOSED) for name in ERASABLE),
        ("crash", Mode.LIVE),
        *(pytest.param(name, Mode.LIVE, marks=pytest.mark.long) for name in ERASABLE if name != "crash"),
    ],
)
def test_whole_erasure_changes_what_is_planned_and_not_a_byte_more(
    samples: dict[str, Sample], copy_of: Callable[[str], Path], name: str, mode: Mode
) -> None:
    directory = copy_of(name)
    before = contents(directory)
    claim(directory)
    answer = erase(directory, mode=mode)
    assert sum(file.entry_count for file in answer.files) > 1_000
    by_hand = {f"{file.number:08x}.jdb": erased_by_hand for file in answer.files if file.entry_count}
    for file in answer.files:
        file_name = f"{file.number:08x}.jdb"
        after = (directory / file_name).read_bytes()
        assert after == by_hand.get(file_name, lambda data, _: data)(before[file_name], file)
    assert sum(each.entry_count for each in plan(directory).files) == 0
    live = {tuple(record) for record in samples[name].expected["live_records"]}
    assert live_records(directory) == live


def test_erasure_of_a_closed_environment_is_what_je_itself_erased(
    samples: dict[str, Sample], copy_of: Callable[[str], Path]
) -> None:
    directory = copy_of("closed")
    claim(directory)
    before = contents(directory)
    erase(directory)
    expected = samples["closed"].expected
    for name, offsets in expected["je_erased_offsets"].items():
        after = (directory / name).read_bytes()
        # JE's own walk: a type that has changed is an entry that was erased.
        ours = {at for at in starts_of(before[name]) if before[name][at + 4] != after[at + 4]}
        assert ours == set(offsets)
        assert all(after[at + 4] == 43 for at in ours)
    tail = max(contents(directory))
    for kind in ("values", "keys"):
        for marker in expected["must_be_gone"][kind]:
            raw = marker.encode("latin-1")
            assert not any(raw in data for name, data in contents(directory).items() if name != tail)


def starts_of(data: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        header = 22 if data[at + 5] & 0x28 and at else 14
        at += header + int.from_bytes(data[at + 10 : at + 14], "little")
    return starts


@pytest.mark.parametrize("mode", [Mode.CLOSED, Mode.LIVE])
def test_order_is_touch_types_items_with_a_sync_after_each(
    copy_of: Callable[[str], Path], mode: Mode
) -> None:
    directory = copy_of("closed")
    claim(directory)
    file = plan(directory).files[0]
    data = (directory / "00000000.jdb").read_bytes()
    for call in rounds_of(directory, file, mode=mode, rows=900):
        layer = Traced()
        answer = overwrite(call, layer)
        planned = list(planned_bytes(replace(file, entries=call.entries)))
        assert (answer.step, answer.entries_done) == (Step.DONE, len(planned))
        assert {layer.paths[descriptor] for _, descriptor, _, _ in layer.seen} == {"00000000.jdb"}
        steps = split_at_syncs(layer)
        if call.is_first:
            assert steps.pop(0) == [(0, data[:1])]
        types, items = steps
        marked = bytearray(data)
        for kind, _, _ in planned:
            marked[kind] = 43
        assert put(data, types) == marked
        zeroed = put(data, types + items)
        assert zeroed == erased_by_hand(data, replace(file, entries=call.entries))
        data = zeroed
    assert data == (directory / "00000000.jdb").read_bytes()


def test_live_writes_nothing_but_planned_bytes(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    claim(directory)
    file = plan(directory).files[1]
    layer = Traced()
    calls = list(rounds_of(directory, file, mode=Mode.LIVE))
    assert all(overwrite(call, layer).refusal is None for call in calls)
    writes = [(offset, offset + len(data)) for what, _, offset, data in layer.seen if what == "write"]
    planned = list(planned_bytes(file))
    types = [(kind, kind + 1) for kind, _, _ in planned]
    items = [(begin, end) for _, begin, end in planned if begin < end]
    assert writes == [(0, 1), *types, *items]


def test_costs_are_real_calls_bytes_and_measured_syncs(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    claim(directory)
    file = plan(directory).files[0]
    layer, ticks = Traced(), count()
    (call,) = rounds_of(directory, file)
    costs = overwrite(call, layer, clock=lambda: float(next(ticks))).costs
    writes = [data for what, _, _, data in layer.seen if what == "write"]
    assert (costs.writes, costs.write_bytes) == (len(writes), sum(map(len, writes)))
    assert (costs.fsyncs, costs.fsync_s) == (3, (1.0, 1.0, 1.0))
    # One read of the blocks, one of the byte that is touched.
    assert (costs.reads, costs.read_bytes) == (2, file.identity.size + 1)
    hashed = prepare(directory, plan(directory).files[0]).costs
    assert (hashed.reads, hashed.read_bytes, hashed.writes) == (1, file.identity.size, 0)


def test_round_again_changes_nothing_and_succeeds(copy_of: Callable[[str], Path]) -> None:
    # A cycle that was killed after a round, before it noted so, does it again.
    directory = copy_of("closed")
    claim(directory)
    file = plan(directory).files[0]
    first, second = rounds_of(directory, file, rows=2_000)
    assert overwrite(first).refusal is None
    before = contents(directory)
    assert overwrite(replace(first, is_first=False)).step == Step.DONE
    assert contents(directory) == before
    assert overwrite(second).step == Step.DONE


def test_clean_file_is_not_opened_at_all(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    claim(directory)
    erase(directory)
    again = plan(directory)
    assert [list(rounds_of(directory, file)) for file in again.files] == [[], [], [], []]


def test_entry_larger_than_a_round_is_erased_piece_by_piece(tmp_path: Path) -> None:
    large = 9 << 20
    environment = Environment(tmp_path, file_bytes_max=64 << 20, created_ms=1_795_163_000_000)
    environment.create("users")
    for turn in range(2):
        environment.put(None, "users", b"small", bytes([65 + turn]) * 100)
        environment.put(None, "users", b"large", bytes([65 + turn]) * large)
    environment.log.flip()
    environment.checkpoint()
    environment.close()
    claim(tmp_path)
    file = plan(tmp_path).files[0]
    data = (tmp_path / "00000000.jdb").read_bytes()
    expected = prepare(tmp_path, file).sha256_expected
    layer, read = Traced(), 0
    for call in rounds_of(tmp_path, file):
        answer = overwrite(call, layer)
        assert answer.step == Step.DONE
        read = max(read, answer.costs.read_bytes)
    assert (tmp_path / "00000000.jdb").read_bytes() == erased_by_hand(data, file)
    assert max(len(piece) for _, _, _, piece in layer.seen) == 1 << 20
    assert read < 1 << 20
    assert prove(tmp_path, file, expected).is_proved
