"""What a plan says that a checkpoint would free, against what is freed once the writer has made one."""

import shutil
from pathlib import Path
from random import Random

import pytest

from lethe_samples.je_writer.environment import Environment
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import NoCheckpoint
from spark.erase.plan.plan import Plan, plan_erasure
from spark.erase.reasons import Reason, Switches
from tests.spark.erase.live_environments import CREATED_MS, write_environment, write_versions

KEYS = 30


def grown(seed: int, directory: Path) -> Environment:
    """Versions, deletions, embedded values and aborts, with checkpoints between; the last part has none."""
    chance = Random(seed)
    directory.mkdir()
    environment = Environment(
        directory, file_bytes_max=chance.choice((2_000, 6_000, 100_000)), created_ms=CREATED_MS
    )
    environment.create("records")
    live: set[bytes] = set()
    for _ in range(chance.randint(0, 3)):
        live = write_some(environment, chance, live)
        environment.checkpoint()
    write_some(environment, chance, live)
    return environment


def write_some(environment: Environment, chance: Random, live: set[bytes]) -> set[bytes]:
    """Some transactions; the keys that are there afterwards."""
    for _ in range(chance.randint(5, 60)):
        txn, left = environment.begin(), set(live)
        for _ in range(chance.randint(1, 4)):
            key = b"key-%03d" % chance.randrange(KEYS)
            if key in left and chance.random() < 0.3:
                environment.delete(txn, "records", key)
                left.discard(key)
            else:
                environment.put(txn, "records", key, b"v" * chance.choice((3, 30, 90)))
                left.add(key)
        if chance.random() < 0.15:
            environment.abort(txn)
        else:
            environment.commit(txn)
            live = left
    return live


def lns(plan: Plan) -> int:
    return sum(
        amount.entries
        for file in plan.files
        for reason, amount in file.erased.items()
        if reason != Reason.OLD_NODE
    )


def all_erased(plan: Plan) -> int:
    return sum(file.erase.num_rows for file in plan.files)


def told(plan: Plan) -> int:
    return sum(file.after_checkpoint.entries for file in plan.files)


def check(seed: int, tmp_path: Path) -> int:
    """The writer's own checkpoint in a new file: all that was told is free then, and of LNs nothing else."""
    environment = grown(seed, tmp_path / str(seed))
    before = tmp_path / f"{seed}-before"
    environment.log.flip()
    shutil.copytree(environment.log.directory, before)
    first = plan_of(before)
    environment.checkpoint()
    environment.close()
    second = plan_of(environment.log.directory)
    if first is None:
        return 0
    assert second is not None
    assert all_erased(first) + told(first) <= all_erased(second), seed
    freed_nodes = all_erased(second) - lns(second)
    assert lns(second) >= all_erased(first) + told(first) - freed_nodes, seed
    assert told(second) == 0 or second.files[-1].columns.number == second.checkpoint.first_active >> 32, seed
    return told(first)


def plan_of(directory: Path) -> Plan | None:
    """None: no checkpoint has ended yet."""
    try:
        return plan_erasure(directory, PlanRequest())
    except NoCheckpoint:
        return None


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 20), *(pytest.param(first, 60, marks=pytest.mark.long) for first in range(0, 1_020, 60))],
)
def test_checkpoint_frees_what_was_told_of_random_logs(first: int, count: int, tmp_path: Path) -> None:
    freed = [check(seed, tmp_path) for seed in range(first, first + count)]
    assert sum(freed) > 1_000 * count // 60
    assert sum(entries > 0 for entries in freed) > count // 2


def test_file_that_something_else_holds_is_not_told(tmp_path: Path) -> None:
    environment = write_environment(tmp_path / "je")
    write_versions(environment, range(25))
    environment.close()
    numbers = [file.columns.number for file in plan_erasure(tmp_path / "je", PlanRequest()).files]
    held = plan_erasure(tmp_path / "je", PlanRequest(protected=dict.fromkeys(numbers, "Backup-7")))
    assert told(held) == 0


def test_switched_off_reasons_are_not_told(tmp_path: Path) -> None:
    environment = grown(5, tmp_path / "je")
    environment.crash()
    none = Switches(
        deleted_databases=True,
        extinct_records=False,
        known_obsolete_entries=False,
        erase_all_obsolete_entries=False,
    )
    assert told(plan_erasure(tmp_path / "je", PlanRequest(switches=none))) == 0
