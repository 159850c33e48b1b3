"""Extinct records in the plan: which entries go by what an extinction says, and which stay."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lethe_samples.je_writer.environment import Environment
from spark.erase.calls.calls import Costs, PlanAnswer, PlanCall
from spark.erase.calls.request import ExtinctionTerms, FilterMode, HoldingExtinction, PlanRequest
from spark.erase.entry_tables import unpack
from spark.erase.live.live import plan_live
from spark.erase.plan.plan import plan_erasure
from spark.erase.plan.plan_answer import of_plan
from spark.erase.plan.spread import plan_spread
from spark.erase.reasons import Cause, Reason, Switches
from spark.erase.unit import do
from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import Filter
from spark.formats.je.extinct_scan import ExtinctScan
from spark.formats.je.log import EntryType
from tests.oracles.je_small_engine import SmallEngine
from tests.spark.erase.conftest import Sample
from tests.spark.erase.hands_at_work import claim, contents, erase_file, planned_bytes
from tests.spark.erase.live_environments import NO_GRACE
from tests.spark.erase.live_records import live_records
from tests.spark.erase.spread_here import SpreadHere

KEYS = [b"key%03d" % number for number in range(60)]
EXTINCT_KEYS = KEYS[10:40]
MARK = b"secret-"
CREATED_MS = 1_795_163_000_000


def holding(*extinctions: Extinction, attested: bool = False) -> ExtinctionTerms:
    told = tuple(HoldingExtinction(each.to_json(), attested) for each in extinctions)
    return ExtinctionTerms(FilterMode.INSTALLED, told)


RANGE = Extinction("ext_1", frozenset({b"users"}), EXTINCT_KEYS[0], KEYS[40])
TERMS = holding(RANGE)


def written(
    directory: Path,
    *,
    scanned: bool,
    scan: ExtinctScan | None = None,
    ends: str = "COMMIT",
) -> Path:
    """Records of two databases; `scanned`: JE has taken the slots of the extinct ones out of its tree."""
    directory.mkdir()
    environment = Environment(directory, file_bytes_max=6_000, created_ms=CREATED_MS)
    users = environment.create("users")
    environment.create("others")
    for name in ("users", "others"):
        for key in KEYS:
            environment.put(None, name, key, MARK + key * 8)
    environment.checkpoint()
    if scan is not None:
        txn = environment.begin()
        environment.discard(txn, 1, replace(scan, databases=(users.id,)))
        if ends == "COMMIT":
            environment.commit(txn)
        elif ends == "ABORT":
            environment.abort(txn)
        else:
            environment.checkpoint()
            environment.crash()
            return directory
    if scanned:
        environment.forget("users", EXTINCT_KEYS)
    environment.checkpoint()
    for key in KEYS:
        environment.put(None, "others", b"later-" + key, b"x" * 100)
    environment.close()
    return directory


def planned(directory: Path, terms: ExtinctionTerms, **values: object) -> PlanAnswer:
    """The plan of a unit, which the plan with a task for each file equals."""
    request = PlanRequest(extinctions=terms, **values)  # type: ignore[arg-type]
    answer = of_plan(plan_erasure(directory, request))
    spread = plan_spread(directory, request, SpreadHere())
    assert replace(spread, costs=Costs()) == replace(answer, costs=Costs())
    return answer


def erased(answer: PlanAnswer) -> dict[tuple[int, int], Reason]:
    return {
        (file.number, row["offset"]): Reason(row["reason"])
        for file in answer.files
        for row in unpack(file.entries).to_pylist()
    }


def extinct_places(answer: PlanAnswer) -> set[tuple[int, int]]:
    return {place for place, reason in erased(answer).items() if reason is Reason.EXTINCT}


def kept(answer: PlanAnswer, cause: Cause) -> int:
    return sum(file.kept.get(cause.value, (0, 0))[0] for file in answer.files)


def by_extinction(answer: PlanAnswer) -> dict[str, int]:
    sums: dict[str, int] = {}
    for file in answer.files:
        for name, (entries, _) in file.extinct.items():
            sums[name] = sums.get(name, 0) + entries
    return sums


def erase_all(directory: Path, answer: PlanAnswer) -> None:
    claim(directory)
    for file in answer.files:
        if file.entry_count:
            erase_file(directory, file)


def test_records_whose_slots_are_gone_are_erased_and_nothing_else(tmp_path: Path) -> None:
    directory = written(tmp_path / "je", scanned=True)
    before, without = contents(directory), planned(directory, ExtinctionTerms())
    answer = planned(directory, TERMS)
    assert extinct_places(answer) == naive(directory, [RANGE]) - erased(without).keys()
    assert {p: r for p, r in erased(answer).items() if r is not Reason.EXTINCT} == erased(without)
    assert by_extinction(answer) == {"ext_1": len(EXTINCT_KEYS)}
    assert b"".join(file.in_use for file in answer.files) == b""
    live = live_records(directory)
    erase_all(directory, answer)
    check_bytes(before, contents(directory), answer)
    assert live_records(directory) == live
    rest = b"".join(contents(directory).values())
    assert [rest.count(MARK + key * 8) for key in KEYS] == [1 if key in EXTINCT_KEYS else 2 for key in KEYS]


def check_bytes(before: dict[str, bytes], after: dict[str, bytes], answer: PlanAnswer) -> None:
    """Planned bytes are zeros, every other byte is what it was."""
    for file in answer.files:
        name = f"{file.number:08x}.jdb"
        expected = bytearray(before[name])
        for kind, low, high in planned_bytes(file):
            expected[kind] = 43
            expected[low:high] = bytes(high - low)
        assert after[name][1:] == bytes(expected)[1:], name


def test_slots_that_still_lead_there_are_a_veto(tmp_path: Path) -> None:
    directory = written(tmp_path / "je", scanned=False)
    answer, without = planned(directory, TERMS), planned(directory, ExtinctionTerms())
    assert erased(answer) == erased(without)
    assert kept(answer, Cause.VETOED) == len(EXTINCT_KEYS) == answer.vetoed_count
    assert {reason for _, reason in answer.vetoed} == {"EXTINCT"}


def test_attested_extinction_reaches_beyond_the_veto_and_tells_which(tmp_path: Path) -> None:
    directory = written(tmp_path / "je", scanned=False)
    answer = planned(directory, holding(RANGE, attested=True))
    assert len(extinct_places(answer)) == len(EXTINCT_KEYS)
    assert answer.vetoed_count == 0
    in_use = [(file.number, np.frombuffer(file.in_use, dtype="<u4").tolist()) for file in answer.files]
    assert {(number, at) for number, offsets in in_use for at in offsets} == extinct_places(answer)


SCAN = ExtinctScan((), EXTINCT_KEYS[0], KEYS[40], None, "users of 2024")


def test_scan_that_is_committed_in_the_log_reaches_beyond_the_veto(tmp_path: Path) -> None:
    directory = written(tmp_path / "je", scanned=False, scan=SCAN)
    answer = planned(directory, holding())
    [noted] = answer.log_extinctions
    said = Extinction.parse(noted.payload)
    assert (said.databases, said.start_key, said.end_key, said.label, noted.has_filter) == (
        frozenset({b"users"}),
        SCAN.begin_key,
        SCAN.end_key,
        SCAN.label,
        False,
    )
    assert by_extinction(answer) == {said.id: len(EXTINCT_KEYS)}
    assert answer.vetoed_count == 0
    told_as_well = planned(directory, holding(said))
    assert by_extinction(told_as_well) == by_extinction(answer)


@pytest.mark.parametrize("ends", ["ABORT", "CRASH"])
def test_scan_that_is_not_committed_covers_nothing(tmp_path: Path, ends: str) -> None:
    directory = written(tmp_path / "je", scanned=False, scan=SCAN, ends=ends)
    answer = planned(directory, TERMS)
    assert answer.log_extinctions == ()
    assert extinct_places(answer) == set()


def test_scan_with_a_java_filter_is_shown_and_covers_nothing(tmp_path: Path) -> None:
    scan = replace(SCAN, filter=b"\xac\xed\x00\x05sr")
    directory = written(tmp_path / "je", scanned=True, scan=scan)
    answer = planned(directory, holding())
    assert [each.has_filter for each in answer.log_extinctions] == [True]
    assert extinct_places(answer) == set()


def test_store_without_a_filter_erases_nothing_as_extinct(tmp_path: Path) -> None:
    directory = written(tmp_path / "je", scanned=True, scan=SCAN)
    terms = replace(holding(RANGE, attested=True), mode=FilterMode.NONE)
    assert erased(planned(directory, terms)) == erased(planned(directory, ExtinctionTerms()))


def test_filter_that_always_says_maybe_keeps_each_of_them(tmp_path: Path) -> None:
    directory = written(tmp_path / "je", scanned=True, scan=SCAN)
    terms = replace(holding(RANGE, attested=True), mode=FilterMode.ALWAYS_MAYBE)
    answer = planned(directory, terms)
    assert erased(answer) == erased(planned(directory, ExtinctionTerms()))
    assert kept(answer, Cause.MAYBE_EXTINCT) == len(EXTINCT_KEYS)


def test_range_that_is_not_known_to_be_committed_holds_its_files_up(tmp_path: Path) -> None:
    directory = written(tmp_path / "je", scanned=True)
    settled, without = planned(directory, TERMS), planned(directory, ExtinctionTerms())
    answer = planned(directory, replace(TERMS, holding=(), reserved=(RANGE.to_json(),)))
    waiting = {file.number for file in answer.files if Cause.EXTINCTION_METADATA in file.causes}
    assert waiting == {number for number, _ in extinct_places(settled)} != set()
    assert erased(answer) == {p: r for p, r in erased(without).items() if p[0] not in waiting}
    held = planned(directory, replace(TERMS, reserved=(RANGE.to_json(),)))
    assert erased(held) == erased(settled)


@pytest.mark.parametrize(
    ("switches", "goes"),
    [
        (Switches(erase_all_obsolete_entries=False), True),
        (Switches(False, True, False, False), True),
        (Switches(True, False, True, False), False),
        (Switches(False, False, False, True), True),
    ],
)
def test_parameter_of_extinct_records_switches_them(tmp_path: Path, switches: Switches, goes: bool) -> None:
    directory = written(tmp_path / "je", scanned=True)
    answer = planned(directory, TERMS, switches=switches)
    assert (len(extinct_places(answer)) == len(EXTINCT_KEYS)) is goes


def test_older_versions_of_extinct_records_go_where_only_extinct_records_are_erased(tmp_path: Path) -> None:
    directory = tmp_path / "je"
    directory.mkdir()
    environment = Environment(directory, file_bytes_max=6_000, created_ms=CREATED_MS)
    environment.create("users")
    for turn in range(2):
        for key in KEYS:
            environment.put(None, "users", key, MARK + key * (8 + turn))
    environment.forget("users", EXTINCT_KEYS)
    environment.checkpoint()
    for key in KEYS:
        environment.put(None, "users", b"later-" + key, b"x" * 100)
    environment.close()
    answer = planned(directory, TERMS, switches=Switches(False, True, False, False))
    assert set(erased(answer).values()) == {Reason.EXTINCT}
    assert len(erased(answer)) == 2 * len(EXTINCT_KEYS)


def naive(directory: Path, extinctions: list[Extinction]) -> set[tuple[int, int]]:
    """By a loop over each entry: visible, committed before A, of a named database, no value gone, covered."""
    plan = plan_erasure(directory, PlanRequest())
    first_active = plan.checkpoint.first_active
    known = {each.id: each for each in plan.databases.known.values() if each.id not in plan.databases.dropped}
    commits: dict[int, int] = {}
    for file in plan.files:
        entries = file.columns.entries.to_pylist()
        for end in file.columns.ends.to_pylist():
            if entries[end["entry"]]["type"] == EntryType.COMMIT:
                commits[end["txn"]] = (file.columns.number << 32) + entries[end["entry"]]["offset"]
    found = set()
    for file in plan.files:
        entries = file.columns.entries.to_pylist()
        for ln in file.columns.lns.to_pylist():
            entry = entries[ln["entry"]]
            lsn = (file.columns.number << 32) + entry["offset"]
            if entry["type"] not in (33, 34, 35, 36) or lsn >= first_active or ln["db"] not in known:
                continue
            if entry["type"] in (33, 35) and ln["txn"] not in commits:
                continue
            name = known[ln["db"]].name.encode()
            if ln["value_bytes"] >= 0 and any(each.covers(name, ln["key"]) for each in extinctions):
                found.add((file.columns.number, entry["offset"]))
    return found


def random_extinction(chance: random.Random, number: int) -> Extinction:
    bounds = sorted(b"k%d%d" % (chance.randrange(9), chance.randrange(4)) for _ in range(2))
    start, end = chance.choice([(bounds[0], bounds[1]), (None, bounds[1]), (bounds[0], None)])
    filters = [None, {"prefix": "azM="}, {"modulo": {"offset": 2, "width": 1, "divisor": 2, "remainder": 1}}]
    found = chance.choice(filters)
    names = frozenset(chance.sample([b"users", b"orders", b"nowhere"], chance.randrange(1, 3)))
    return Extinction(f"ext_{number}", names, start, end, None if found is None else Filter.parse(found))


@pytest.mark.parametrize("count", [4, pytest.param(40, marks=pytest.mark.long)])
def test_random_logs_lose_what_a_loop_over_their_entries_says(count: int, tmp_path: Path) -> None:
    gone = 0
    for seed in range(count):
        engine = SmallEngine(seed)
        engine.live(30)
        engine.close()
        directory = tmp_path / str(seed)
        engine.log.write(directory)
        chance = random.Random(seed)
        extinctions = [random_extinction(chance, number) for number in range(3)]
        without = planned(directory, ExtinctionTerms())
        answer = planned(directory, holding(*extinctions, attested=True))
        files = {file.number for file in answer.files if not file.causes}
        covered = {place for place in naive(directory, extinctions) if place[0] in files}
        needed = kept(answer, Cause.NEEDED_FOR_ABORT) + kept(answer, Cause.KEYS_DIFFER)
        assert needed == 0
        names = erased(without) | dict.fromkeys(covered - erased(without).keys(), Reason.EXTINCT)
        assert erased(answer) == names, seed
        gone += len(extinct_places(answer))
    assert gone > 3 * count


def test_real_environment_loses_live_records_that_an_admin_has_attested(
    samples: dict[str, Sample], copy_of: Callable[[str], Path]
) -> None:
    directory = copy_of("closed")
    keys = sorted(bytes.fromhex(r[1]) for r in samples["closed"].expected["live_records"] if r[0] == "users")
    extinction = Extinction("ext_1", frozenset({b"users"}), keys[50], keys[-50])
    without, before = planned(directory, ExtinctionTerms()), contents(directory)
    answer = planned(directory, holding(extinction, attested=True))
    extra = erased(answer).keys() - erased(without).keys()
    assert extra == extinct_places(answer)
    files = {file.number for file in answer.files if not file.causes}
    covered = {place for place in naive(directory, [extinction]) if place[0] in files}
    assert extra == covered - erased(without).keys()
    assert len(extra) > 100
    erase_all(directory, answer)
    check_bytes(before, contents(directory), answer)
    again = do(PlanCall(str(directory), PlanRequest(extinctions=holding(extinction, attested=True))))
    assert isinstance(again, PlanAnswer)
    assert again.refusal is None
    assert extinct_places(again) == set()


def test_beside_a_running_process_only_what_je_itself_knows_to_be_extinct_goes(tmp_path: Path) -> None:
    plain = written(tmp_path / "plain", scanned=True)
    noted = written(tmp_path / "noted", scanned=True, scan=SCAN)
    request = PlanRequest(extinctions=TERMS)
    found = [of_plan(plan_live(each, request, NO_GRACE)[0]) for each in (plain, noted)]
    assert [len(extinct_places(each)) for each in found] == [0, len(EXTINCT_KEYS)]
    assert kept(found[0], Cause.UNSETTLED) >= len(EXTINCT_KEYS)
