"""Hand-made oddities: what no random log shows often enough, each with what the rule says of it."""

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from spark.erase.calls.request import PlanRequest
from spark.erase.plan.plan import plan_erasure, plan_log
from spark.erase.reading.log import read_log
from spark.erase.reasons import Cause, Reason
from tests.oracles.je_liveness import judge
from tests.oracles.je_liveness_reader import read_environment
from tests.oracles.je_liveness_recovery import recover
from tests.oracles.je_log_bytes import TIME_MS, Abort, ln_item, packed
from tests.oracles.je_small_engine import SmallEngine
from tests.oracles.je_small_replica import SmallReplica
from tests.spark.erase.liveness import chosen_by, complaints, planned

HOUR_MS = 3_600_000


def prepared(seed: int = 5) -> SmallEngine:
    """An environment that has a few files and a checkpoint, and goes on."""
    engine = SmallEngine(seed)
    engine.live(6)
    for txn in list(engine.txns.values()):
        engine.end(txn, commit=True)
    return engine


def finish(engine: SmallEngine, directory: Path) -> dict[int, str]:
    """Go on until what was done lies before the checkpoint's file; what is planned, once the model agrees."""
    engine.work(60)
    engine.log.next_file()
    engine.close()
    engine.log.write(directory)
    log = read_environment(directory)
    plan = chosen_by(plan_erasure(directory, PlanRequest()))
    verdict = judge(log)
    assert recover(log).records == engine.truth()
    assert complaints(log, verdict, set(plan)) == []
    assert set(plan) == set(verdict.erasable)
    return plan


@pytest.mark.parametrize("seed", range(4))
def test_keys_that_all_have_the_same_hash_are_still_told_apart(tmp_path: Path, seed: int) -> None:
    engine = SmallEngine(seed)
    engine.live(30)
    engine.close()
    engine.log.write(tmp_path)
    log = read_environment(tmp_path)
    verdict = judge(log)
    with read_log(tmp_path, verify=True) as read:
        files = tuple(dataclasses.replace(file, lns=with_one_hash(file.lns)) for file in read.files)
        plan = plan_log(dataclasses.replace(read, files=files), PlanRequest())
    chosen = set(chosen_by(plan))
    assert complaints(log, verdict, chosen) == []
    few = verdict.erasable.keys() - chosen
    assert few
    assert {verdict.erasable[lsn] for lsn in few} == {"SUPERSEDED"}
    differing = [
        file.kept[Cause.KEYS_DIFFER].entries for file in plan.files if Cause.KEYS_DIFFER in file.kept
    ]
    assert sum(differing) > 0


def with_one_hash(lns: pa.Table) -> pa.Table:
    for name in ("hash_1", "hash_2"):
        column = pa.array([7] * lns.num_rows, pa.int64())
        lns = lns.set_column(lns.schema.get_field_index(name), name, column)
    return lns


@pytest.mark.parametrize("hours", [0, 1, 3])
def test_expired_record_goes_only_two_hours_later_and_when_asked(tmp_path: Path, hours: int) -> None:
    engine = prepared()
    tree = next(tree for tree in engine.users() if not tree.dups)
    expiry = TIME_MS // HOUR_MS + 100
    item = ln_item(34, tree.db, b"of no slot", bytes(40), expiration=-expiry)
    lsn = engine.append(34, item)
    assert lsn not in finish(engine, tmp_path)
    now_ms = (expiry + hours) * HOUR_MS
    asked = planned(tmp_path, PlanRequest(now_ms=now_ms, erase_expired=True))
    assert (lsn in asked) == (hours >= 2)
    assert lsn not in planned(tmp_path, PlanRequest(now_ms=now_ms))


@pytest.mark.parametrize("end", ["open", "aborted"])
def test_removal_of_a_map_that_did_not_commit_drops_nothing(tmp_path: Path, end: str) -> None:
    # A MapLN in a transaction, and a deletion: the database lives unless it commits.
    engine = prepared()
    tree = engine.users()[0]
    engine.last_txn += 1
    impl = packed(tree.db) + packed(len(tree.name)) + tree.name.encode() + b"\0\0" + b"\0\0" + packed(128)
    tail = impl + b"\x1a" + packed(0) + b"\1"
    item = ln_item(3, 0, str(tree.db).encode(), None, txn=engine.last_txn, abort=Abort(38), tail=tail)
    engine.log.append(3, item)
    if end == "aborted":
        engine.log.end_txn(engine.last_txn, commit=False)
    engine.map(tree)
    plan = finish(engine, tmp_path)
    log = read_environment(tmp_path)
    assert not [lsn for lsn, why in plan.items() if why == "DELETED_DATABASE" and log.at[lsn].db == tree.db]


def test_half_erased_entry_that_a_slot_still_names_is_not_finished(tmp_path: Path) -> None:
    # Only a type byte away from a live one: type 35 and 43 differ in one bit.
    engine = prepared()
    tree = next(tree for tree in engine.users() if not tree.dups)
    engine.write(tree, b"k00", bytes(range(40)))
    engine.write(tree, b"k00", bytes(range(50)))
    lsn = tree.bin_of(b"k00").slots[b"k00"].lsn
    for _ in range(40):
        engine.write(tree, b"k01", engine.chance.randbytes(60))
    engine.log.next_file()
    engine.close()
    engine.log.write(tmp_path)
    path = tmp_path / f"{lsn >> 32:08x}.jdb"
    data = bytearray(path.read_bytes())
    data[(lsn & 0xFFFFFFFF) + 4] = 43
    path.write_bytes(data)
    plan = plan_erasure(tmp_path, PlanRequest())
    assert lsn not in chosen_by(plan)
    assert plan.erased_reached == (lsn,)
    assert (lsn, Reason.UNFINISHED_ERASURE) in plan.vetoed


def test_lost_node_that_is_newer_than_the_one_in_use_does_not_cost_it(tmp_path: Path) -> None:
    # A BIN was logged for a transaction that a crash took with it: its parent never came to name it.
    engine = prepared(2)
    engine.checkpoint()
    for tree in [each for each in engine.users() if not each.dups]:
        for node in tree.bins:
            engine.orphan(tree, node)
    engine.log.next_file()
    engine.checkpoint()
    engine.log.next_file()
    engine.create("more")
    engine.checkpoint()
    engine.log.write(tmp_path)
    log = read_environment(tmp_path)
    verdict = judge(log)
    assert [lsn for lsn in verdict.vetoed if verdict.obsolete[lsn] == "OLD_NODE"]
    assert planned(tmp_path) == set(verdict.erasable)
    assert complaints(log, verdict, set(verdict.obsolete)) != []


def test_range_of_the_vlsn_index_that_did_not_commit_frees_no_file(tmp_path: Path) -> None:
    # The only record of the range was one that a crash cut off: the plan took it for true, and would have
    # erased files that replication still needs. Recovery takes such a record back.
    engine = SmallReplica(7)
    engine.live(10)
    txn = engine.begin()
    engine.truncate_index(sorted(engine.log.files)[-2], txn)
    engine.log.next_file()
    engine.checkpoint()
    engine.crash()
    engine.log.write(tmp_path)
    plan = plan_erasure(tmp_path, PlanRequest())
    assert chosen_by(plan) == {}
    assert all(Cause.VLSN_INDEX in file.causes for file in plan.files)
    assert plan.vlsn_index is not None
    assert plan.vlsn_index.range is None
