"""The plan against what JE's own eraser erased, and against the live records of real environments."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark.erase.calls.request import PlanRequest
from spark.erase.plan.plan import FilePlan, Plan, plan_erasure
from spark.erase.reasons import Cause, Reason, Switches
from spark.formats.je.log import EntryType
from tests.oracles import je_log as oracle
from tests.spark.erase.conftest import Sample

SAMPLES = ["closed", "crash", "replicated", "swept", "halted", "comparator"]
ERASABLE = ["closed", "crash", "swept", "halted"]
REASONS = {
    "dropped_db": Reason.DELETED_DATABASE,
    "aborted": Reason.ABORTED,
    "delete_ln": Reason.DELETED_RECORD,
    "superseded": Reason.SUPERSEDED,
    "embedded": Reason.EMBEDDED,
    "dup_ln": Reason.DUPLICATE,
}
NODE_TYPES = {12, 13, 37}

Place = tuple[str, int]
Record = tuple[str, str, str]


@pytest.fixture(scope="session")
def plans(samples: dict[str, Sample]) -> dict[str, Plan]:
    return {name: plan_erasure(sample.path, PlanRequest()) for name, sample in samples.items()}


def planned(plan: Plan) -> dict[Place, Reason]:
    return {
        (file.name, row["offset"]): Reason(row["reason"])
        for file in plan.files
        for row in file.erase.to_pylist()
    }


def named(plan: Plan, name: str) -> FilePlan:
    return next(file for file in plan.files if file.name == name)


def erase(plan: Plan, directory: Path) -> None:
    """Overwrite as JE does; a test's own few lines, for the product's writer is not there yet."""
    for file in plan.files:
        with (directory / file.name).open("r+b") as log:
            for row in file.erase.to_pylist():
                header = 22 if row["flags"] & 0x28 else 14
                log.seek(row["offset"] + 4)
                log.write(b"\x2b")
                log.seek(row["offset"] + header)
                log.write(bytes(row["item_bytes"]))


def test_plan_of_a_closed_environment_is_what_je_itself_erased(
    samples: dict[str, Sample], plans: dict[str, Plan]
) -> None:
    ours = {name: set() for name in samples["closed"].expected["je_erased_offsets"]}
    for name, offset in planned(plans["closed"]):
        ours[name].add(offset)
    theirs = samples["closed"].expected["je_erased_offsets"]
    assert ours == {name: set(offsets) for name, offsets in theirs.items()}
    assert sum(len(each) for each in ours.values()) == 8725
    assert plans["closed"].vetoed == ()


@pytest.mark.parametrize("name", ["closed", "crash"])
def test_each_entry_is_planned_for_the_reason_that_was_found_before(
    samples: dict[str, Sample], plans: dict[str, Plan], name: str
) -> None:
    ours = planned(plans[name])
    end = plans[name].checkpoint.first_active >> 32
    for file, by_reason in samples[name].expected["erase_offsets"].items():
        if int(file[:8], 16) >= end:
            continue
        for reason, offsets in by_reason.items():
            for offset in offsets:
                found = ours.pop((file, offset))
                # Nodes of dropped databases were counted as old nodes there.
                wanted = REASONS.get(reason, Reason.OLD_NODE)
                assert found == wanted or (reason == "old_in" and found == Reason.DELETED_DATABASE)
    assert ours == {}


def test_plan_after_a_crash_leaves_what_only_the_tail_supersedes(
    samples: dict[str, Sample], plans: dict[str, Plan]
) -> None:
    plan, expected = plans["crash"], samples["crash"].expected
    theirs = {(name, offset) for name, offsets in expected["je_erased_offsets"].items() for offset in offsets}
    ours = set(planned(plan))
    assert ours <= theirs
    # JE erased after a recovery, whose checkpoint moved the anchor: these were superseded behind ours.
    more = theirs - ours
    assert len(more) == 180
    first_active = plan.checkpoint.first_active
    newest: dict[tuple[int, bytes], int] = {}
    keys: dict[Place, tuple[int, bytes]] = {}
    for file in samples["crash"].files():
        for entry in oracle.walk(file.read_bytes()):
            if "ln" in entry:
                key = entry["ln"]["db"], entry["ln"]["key"]
                keys[file.name, entry["offset"]] = key
                newest[key] = (int(file.name[:8], 16) << 32) + entry["offset"]
    assert all(newest[keys[place]] >= first_active for place in more)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_live_record_is_ever_in_the_plan(
    samples: dict[str, Sample], plans: dict[str, Plan], name: str
) -> None:
    sample, plan = samples[name], plans[name]
    live: set[Record] = {(name, key, digest) for name, key, digest in sample.expected["live_records"]}
    names = {database.id: database.name for database in plan.databases.known.values()}
    chosen = planned(plan)
    in_lns: dict[Record, Place] = {}
    in_nodes: set[Record] = set()
    for file in sample.files():
        for entry in oracle.walk(file.read_bytes()):
            place = (file.name, entry["offset"])
            if "ln" in entry and entry["ln"]["value"] is not None:
                ln = entry["ln"]
                record = (ln["key"], ln["value"])
                if ln["db"] in plan.databases.dups:
                    record = oracle.split_embedded(ln["key"])
                in_lns[record_of(names, ln["db"], *record)] = place
            if "node" in entry and place not in chosen:
                in_nodes |= records_in(names, plan.databases.dups, entry["node"])
    for record in live & in_lns.keys():
        if in_lns[record] in chosen:
            # What lives in its BIN is not lost with its LN, if a BIN that stays has it.
            assert chosen[in_lns[record]] in (Reason.EMBEDDED, Reason.DUPLICATE)
            assert record in in_nodes
    # Each live record was looked at, in its LN or in a BIN that stays.
    assert live - in_lns.keys() - in_nodes == set()


def records_in(names: dict[int, str], dups: frozenset[int], node: dict[str, Any]) -> set[Record]:
    """Records that lie in a node itself: embedded ones, and those of databases with duplicates."""
    found = set()
    if node["level"] != 0x10001:
        return found
    for key, _, _, value in node["slots"]:
        if node["db"] in dups:
            found.add(record_of(names, node["db"], *oracle.split_embedded(key)))
        elif value is not None:
            found.add(record_of(names, node["db"], key, value))
    return found


def record_of(names: dict[int, str], db: int, key: bytes, value: bytes) -> Record:
    return names.get(db, ""), key.hex(), hashlib.sha256(value).hexdigest()


@pytest.mark.parametrize("name", ["swept", "halted"])
def test_plan_is_the_one_that_je_verified_after_it_was_carried_out(
    samples: dict[str, Sample], plans: dict[str, Plan], name: str
) -> None:
    # tests/data/PROVENANCE.md: erased by this plan, JE opened, verified and read the same records.
    verified = samples[name].expected["verified_offsets"]
    assert set(planned(plans[name])) == {(file, each) for file, all_ in verified.items() for each in all_}


@pytest.mark.parametrize("name", ERASABLE)
def test_second_plan_over_erased_files_is_empty(
    copy_of: Callable[[str], Path], plans: dict[str, Plan], name: str
) -> None:
    directory = copy_of(name)
    erase(plans[name], directory)
    again = plan_erasure(directory, PlanRequest())
    assert planned(again) == {}
    assert again.erased_reached == ()
    assert again.checkpoint == plans[name].checkpoint


@pytest.mark.parametrize("name", ["closed", "crash"])
def test_what_must_be_gone_is_gone_after_the_plan(
    samples: dict[str, Sample], copy_of: Callable[[str], Path], plans: dict[str, Plan], name: str
) -> None:
    directory = copy_of(name)
    erase(plans[name], directory)
    ends = {file.name for file in plans[name].files if file.causes}
    left = [path.read_bytes() for path in sorted(directory.glob("*.jdb")) if path.name not in ends]
    kept = [path.read_bytes() for path in samples[name].files() if path.name in ends]
    for value in samples[name].expected["must_be_gone"]["values"]:
        raw = value.encode("latin-1")
        # After a crash some lie in the tail, or are superseded from there: they are not ours to erase.
        if name == "crash" and any(raw in data for data in [*left, *kept]):
            continue
        assert not any(raw in data for data in left)


def test_half_erased_entry_is_finished(copy_of: Callable[[str], Path], plans: dict[str, Plan]) -> None:
    directory = copy_of("closed")
    file = plans["closed"].files[0]
    rows = file.erase.to_pylist()[:3]
    with (directory / file.name).open("r+b") as log:
        for row in rows:
            log.seek(row["offset"] + 4)
            log.write(b"\x2b")
        # The third also got half of its zeros.
        log.seek(rows[2]["offset"] + 14)
        log.write(bytes(rows[2]["item_bytes"] // 2))
    again = planned(plan_erasure(directory, PlanRequest()))
    assert {place for place, reason in again.items() if reason == Reason.UNFINISHED_ERASURE} == {
        (file.name, row["offset"]) for row in rows
    }
    # A deleted or superseding witness may be among the three: what it alone proved stays.
    assert set(again) <= set(planned(plans["closed"]))


def test_replicated_files_inside_the_vlsn_index_are_left_alone(plans: dict[str, Plan]) -> None:
    plan = plans["replicated"]
    assert planned(plan) == {}
    index = plan.vlsn_index
    assert index is not None
    assert index.range is not None
    assert (index.range.first, index.range.last, index.first_file) == (1, 18258, 0)
    first = named(plan, "00000000.jdb")
    assert first.causes == (Cause.VLSN_INDEX,)
    assert first.kept[Cause.VLSN_INDEX].entries == 2743
    # Up to the last VLSN of file 1 the engine could not truncate: fewer than a thousand would be left.
    assert index.truncation is not None
    assert (index.truncation.file, index.truncation.possible) == (0, True)
    vlsns = plan.files[0].columns.entries["vlsn"].to_pylist()
    assert index.truncation.last_vlsn == max(vlsns) < index.range.last - 1000


def test_files_of_the_tail_say_so(plans: dict[str, Plan]) -> None:
    last = plans["closed"].files[-1]
    assert last.causes == (Cause.TAIL_OF_LOG, Cause.RECOVERY_INTERVAL)
    assert last.erase.num_rows == 0
    assert last.kept[Cause.TAIL_OF_LOG].entries == 2


def test_unknown_outcomes_stay_and_are_counted(
    copy_of: Callable[[str], Path], plans: dict[str, Plan]
) -> None:
    # The flag that a rollback sets is outside of the checksum; a commit that has it does not count.
    directory = copy_of("closed")
    file = plans["closed"].files[0]
    commit = next(
        row for row in reversed(file.columns.entries.to_pylist()) if row["type"] == EntryType.COMMIT
    )
    with (directory / file.name).open("r+b") as log:
        log.seek(commit["offset"] + 5)
        log.write(bytes([commit["flags"] | 0x10]))
    plan = plan_erasure(directory, PlanRequest())
    kept = named(plan, file.name).kept
    assert kept[Cause.OUTCOME_UNKNOWN].entries >= 1
    assert set(planned(plan)) <= set(planned(plans["closed"]))


def test_hard_linked_protected_and_young_files_are_left_alone(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    os.link(directory / "00000000.jdb", directory.parent / "snapshot")
    plan = plan_erasure(directory, PlanRequest(protected={1: "Backup-7"}, created_before_ms=1795163065000))
    assert named(plan, "00000000.jdb").causes == (Cause.HARD_LINKED,)
    assert named(plan, "00000001.jdb").causes == (Cause.PROTECTED, Cause.TOO_YOUNG)
    assert named(plan, "00000001.jdb").detail[Cause.PROTECTED] == "Backup-7"
    assert named(plan, "00000002.jdb").causes == (Cause.TOO_YOUNG,)
    assert planned(plan) == {}
    assert named(plan, "00000001.jdb").kept[Cause.PROTECTED].entries == 2337


def test_files_with_records_of_a_comparator_are_left_alone(plans: dict[str, Plan]) -> None:
    for file in plans["comparator"].files:
        assert Cause.COMPARATOR in file.causes
        assert file.detail[Cause.COMPARATOR] == "db2"
    assert planned(plans["comparator"]) == {}


@pytest.mark.parametrize(
    ("switches", "reasons"),
    [
        (Switches(erase_all_obsolete_entries=True, deleted_databases=False), set(Reason) - {1, 9}),
        (Switches(erase_all_obsolete_entries=False, known_obsolete_entries=False), {2}),
        (
            Switches(erase_all_obsolete_entries=False, deleted_databases=False, known_obsolete_entries=False),
            set(),
        ),
    ],
)
def test_switched_off_kinds_stay_and_are_counted(
    samples: dict[str, Sample], plans: dict[str, Plan], switches: Switches, reasons: set[Reason]
) -> None:
    plan = plan_erasure(samples["closed"].path, PlanRequest(switches=switches))
    everything = planned(plans["closed"])
    assert planned(plan) == {place: reason for place, reason in everything.items() if reason in reasons}
    kept = [file.kept[Cause.SWITCHED_OFF].entries for file in plan.files[:-1] if file.kept]
    assert sum(kept) == len(everything) - len(planned(plan))


def test_known_obsolete_alone_erases_what_tells_itself_and_what_je_has_listed(
    samples: dict[str, Sample], plans: dict[str, Plan]
) -> None:
    switches = Switches(erase_all_obsolete_entries=False, deleted_databases=False)
    found = planned(plan_erasure(samples["closed"].path, PlanRequest(switches=switches)))
    everything = planned(plans["closed"])
    telling = {Reason.DELETED_RECORD, Reason.EMBEDDED, Reason.DUPLICATE}
    assert {place for place, reason in everything.items() if reason in telling} <= set(found)
    assert Reason.DELETED_DATABASE not in found.values()
    listed = {reason for reason in found.values() if reason not in telling}
    assert listed <= {Reason.SUPERSEDED, Reason.ABORTED, Reason.OLD_NODE}
    assert listed


def test_expired_records_go_only_when_asked_and_unreached(samples: dict[str, Sample]) -> None:
    # 2300-01-01: all that can expire has.
    late = 10_413_792_000_000
    plan = plan_erasure(samples["halted"].path, PlanRequest(now_ms=late))
    kept = sum(
        file.kept[Cause.EXPIRED_NOT_ENABLED].entries
        for file in plan.files
        if Cause.EXPIRED_NOT_ENABLED in file.kept
    )
    assert Reason.EXPIRED not in planned(plan).values()
    asked = planned(plan_erasure(samples["halted"].path, PlanRequest(now_ms=late, erase_expired=True)))
    expired = {place for place, reason in asked.items() if reason == Reason.EXPIRED}
    assert len(expired) <= kept
    assert set(asked) - expired == set(planned(plan))
    reached = reached_by_any_slot(samples["halted"])
    assert not expired & reached


def reached_by_any_slot(sample: Sample) -> set[Place]:
    """What slots of the newest version of each node name; more than a walk from the roots would reach."""
    newest: dict[tuple[int, int], list[int]] = {}
    for file in sample.files():
        for entry in oracle.walk(file.read_bytes()):
            if "node" in entry:
                node = entry["node"]
                newest[node["db"], node["node"]] = [
                    lsn for _, lsn, state, _ in node["slots"] if not state & 0x19
                ]
    return {
        (f"{lsn >> 32:08x}.jdb", lsn & 0xFFFFFFFF) for lsns in newest.values() for lsn in lsns if lsn >= 0
    }


def test_planning_writes_nothing(samples: dict[str, Sample], copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}
    plan_erasure(directory, PlanRequest())
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}
    assert after == before
