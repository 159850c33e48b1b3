"""Whole files leave a log as JE's cleaner makes them leave: what lives in them is written again first."""

from pathlib import Path

from lethe_samples.je_writer.cleaning import clean_file
from lethe_samples.je_writer.environment import Environment
from spark.erase.calls.request import PlanRequest
from spark.erase.plan.plan import plan_erasure
from spark.formats.je.log import EntryType
from tests.oracles.je_log import walk


def written(directory: Path, records: int = 60) -> Environment:
    """One database over several files, every record updated once."""
    environment = Environment(directory, file_bytes_max=6_000, created_ms=1_795_163_064_859)
    environment.create("users", node_capacity=16)
    for number in range(records * 2):
        txn = environment.begin()
        environment.put(txn, "users", b"u%d" % (number % records), b"value %d " % number * 4)
        environment.commit(txn)
    return environment


def test_cleaned_file_is_gone_and_nothing_misses_it(tmp_path: Path) -> None:
    environment = written(tmp_path)
    before = sorted(environment.databases["users"].records())
    number = environment.log.number - 1
    assert clean_file(environment, number)
    assert clean_file(environment, 0)
    environment.log.flip()
    environment.close()
    assert sorted(environment.databases["users"].records()) == before
    names = {path.name for path in tmp_path.glob("*.jdb")}
    assert not names & {"00000000.jdb", f"{number:08x}.jdb"}
    plan = plan_erasure(tmp_path, PlanRequest())
    assert (plan.missing, plan.gone, plan.vetoed) == ((), (), ())
    migrated = [
        entry["ln"]["key"]
        for path in tmp_path.glob("*.jdb")
        for entry in walk(path.read_bytes())
        if entry["type"] == EntryType.UPD_LN
    ]
    assert migrated
    assert set(migrated) <= {key for key, _ in before}


def test_reserved_file_is_known_to_the_plan(tmp_path: Path) -> None:
    environment = written(tmp_path)
    assert clean_file(environment, 1, reserve=True)
    environment.log.flip()
    environment.close()
    plan = plan_erasure(tmp_path, PlanRequest())
    assert [file.columns.number for file in plan.files if file.reserved] == [1]


def test_file_that_a_transaction_may_return_to_stays(tmp_path: Path) -> None:
    environment = written(tmp_path)
    slot = environment.databases["users"].tree.find(b"u1")
    assert slot is not None
    number = slot.lsn >> 32
    txn = environment.begin()
    environment.delete(txn, "users", b"u1")
    assert not clean_file(environment, number)
    assert not clean_file(environment, environment.log.number)
    environment.abort(txn)
    assert clean_file(environment, number)
    assert b"u1" in {key for key, _ in environment.databases["users"].records()}


def test_few_changes_are_logged_as_a_delta_and_many_as_a_whole_node(tmp_path: Path) -> None:
    environment = Environment(tmp_path, created_ms=1_795_163_064_859)
    environment.create("users")
    for number in range(40):
        environment.put(None, "users", b"u%02d" % number, b"v" * 40)
    environment.checkpoint()
    environment.put(None, "users", b"u07", b"w" * 40)
    environment.checkpoint()
    for number in range(30):
        environment.put(None, "users", b"u%02d" % number, b"x" * 40)
    environment.close()
    nodes = [
        (entry["type"], len(entry["node"]["slots"]))
        for entry in walk((tmp_path / "00000000.jdb").read_bytes())
        if "node" in entry and entry["node"]["db"] == environment.databases["users"].id
    ]
    bins = [(kind, slots) for kind, slots in nodes if kind != EntryType.IN]
    assert bins == [(EntryType.BIN, 0), (EntryType.BIN, 40), (EntryType.BIN_DELTA, 1), (EntryType.BIN, 40)]
