"""Random environments erased for good by the calls that a cycle makes: what lives, what is gone.

Planned, overwritten and proved by `unit.do`; judged by the independent model, by the writer's own books, and
byte by byte.
"""

from pathlib import Path
from typing import TypeVar

import pytest

from spark.erase.calls.any_call import Done
from spark.erase.calls.calls import (
    Mode,
    PlanAnswer,
    PlanCall,
    PlannedFile,
    PrepareAnswer,
    PrepareCall,
    ProveAnswer,
    ProveCall,
    RoundAnswer,
    RoundCall,
    Step,
)
from spark.erase.calls.request import PlanRequest
from spark.erase.entry_tables import unpack
from spark.erase.overwrite.rounds import slice_entries, split_rounds
from spark.erase.reasons import Cause
from spark.erase.unit import do
from spark.targets.files.control_file import ControlFile
from tests.oracles.je_liveness import ERASED, judge
from tests.oracles.je_liveness_reader import Entry, Log, read_environment, split_duplicate
from tests.oracles.je_liveness_recovery import Recovered, recover, with_erased
from tests.spark.erase.random_environments import Written, random_environment

EPOCH = 3
SIZE = 250

Kind = TypeVar("Kind", bound=Done)


def claim(directory: Path) -> None:
    with ControlFile.open(directory, create=True) as control:
        assert control.change(lambda record: record.claimed(EPOCH)) is not None


def erase(directory: Path) -> PlanAnswer:
    """Plan an environment and carry it out, one call after the other."""
    plan = answered(PlanAnswer, do(PlanCall(str(directory), PlanRequest())))
    for file in plan.files:
        if file.entry_count:
            erase_file(str(directory), file)
    return plan


def erase_file(directory: str, file: PlannedFile) -> None:
    number, identity, entries = file.number, file.identity, file.entries
    before = answered(PrepareAnswer, do(PrepareCall(directory, number, identity, entries)))
    for at, part in enumerate(split_rounds(entries, file_size=identity.size)):
        rows = slice_entries(entries, part.first, part.last)
        call = RoundCall(directory, number, Mode.CLOSED, EPOCH, identity, rows, is_first=at == 0)
        assert answered(RoundAnswer, do(call)).step == Step.DONE
    proved = answered(
        ProveAnswer, do(ProveCall(directory, number, identity, entries, before.sha256_expected))
    )
    assert proved.is_proved
    assert proved.entries_erased == file.entry_count


def answered(kind: type[Kind], answer: Done) -> Kind:
    assert isinstance(answer, kind)
    assert answer.refusal is None
    return answer


def planned(plan: PlanAnswer) -> set[int]:
    return {
        (file.number << 32) + offset
        for file in plan.files
        for offset in unpack(file.entries)["offset"].to_pylist()
    }


def contents(directory: Path) -> dict[int, bytes]:
    return {int(path.stem, 16): path.read_bytes() for path in sorted(directory.glob("*.jdb"))}


def by_hand(before: dict[int, bytes], log: Log, plan: set[int]) -> dict[int, bytes]:
    """The files as they must be: type and item of each planned entry changed, and no other byte."""
    after = {number: bytearray(data) for number, data in before.items()}
    for lsn in plan:
        entry = log.at[lsn]
        data, item = after[entry.file], entry.offset + entry.header
        data[entry.offset + 4] = ERASED
        data[item : item + entry.size] = bytes(entry.size)
    return {number: bytes(data) for number, data in after.items()}


def as_written(recovered: Recovered, written: Written) -> dict[str, list[tuple[bytes, bytes]]]:
    found = {}
    for name, rows in recovered.records.items():
        if not name.startswith("_je"):
            pairs = rows.items() if name not in written.dups else map(split_duplicate, rows)
            found[name] = sorted(pairs)
    return found


def is_quoted(entry: Entry, marker: bytes) -> bool:
    """Whether an entry tells a value: as its own, as what an abort would bring back, or in a slot."""
    told = [entry.value, entry.abort_data, entry.key, entry.identifier, *(slot.value for slot in entry.slots)]
    return any(marker in each for each in (*told, *(slot.key for slot in entry.slots)) if each is not None)


def must_be_gone(written: Written, log: Log, plan: set[int]) -> set[bytes]:
    """Markers of erased LNs that no entry tells that stays."""
    erased = {each.marker for each in written.markers.values() if each.lsn in plan and not each.file_removed}
    kept = [entry for entry in log.entries if entry.lsn not in plan]
    told = {marker for entry in kept for marker in erased if is_quoted(entry, marker)}
    return erased - told


def check_plan(plan: PlanAnswer, log: Log) -> None:
    """Not one entry too many; each one too few lies in a file with a cause."""
    verdict, chosen = judge(log), planned(plan)
    assert not chosen & verdict.must_stay.keys()
    assert chosen <= verdict.obsolete.keys()
    whole = {file.number: set(file.causes) for file in plan.files if file.causes}
    few = verdict.erasable.keys() - chosen
    assert all(whole[lsn >> 32] <= {Cause.COMPARATOR} for lsn in few)
    assert plan.vetoed_count == len(verdict.vetoed)


def check(seed: int, directory: Path, size: int) -> dict[str, int]:
    directory.mkdir()
    written = random_environment(directory, seed, size=size)
    log, before = read_environment(directory), contents(directory)
    recovered = recover(log)
    assert as_written(recovered, written) == written.live
    assert (recovered.fatal, recovered.missing) == ([], [])
    claim(directory)
    plan = erase(directory)
    check_plan(plan, log)
    chosen, after = planned(plan), contents(directory)
    assert after == by_hand(before, log, chosen)
    read_again = read_environment(directory)
    assert recover(read_again) == recover(with_erased(log, chosen)) == recovered
    gone = must_be_gone(written, log, chosen)
    assert [marker for marker in gone if any(marker in data for data in after.values())] == []
    second = answered(PlanAnswer, do(PlanCall(str(directory), PlanRequest())))
    assert planned(second) == set()
    return {"entries": len(log.entries), "planned": len(chosen), "gone": len(gone)}


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 4), *(pytest.param(first, 10, marks=pytest.mark.long) for first in (0, 10, 20))],
)
def test_random_environment_is_erased_and_lives_on(first: int, count: int, tmp_path: Path) -> None:
    found = [check(seed, tmp_path / str(seed), SIZE) for seed in range(first, first + count)]
    assert sum(each["planned"] for each in found) > 100 * count
    assert sum(each["gone"] for each in found) > 20 * count


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_many_random_environments_are_erased_and_live_on(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 100):
        check(seed, tmp_path / str(seed), 100 + seed % 7 * 150)
