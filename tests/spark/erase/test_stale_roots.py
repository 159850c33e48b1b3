"""Environments written by JE 25.3 under load, with its cleaner at work, were refused as TREE_BROKEN, wrongly.

A checkpoint of JE writes the dirty nodes and one level above them, not the tree up to its root. Recovery puts
the highest ones in the place of older versions. The walk from the newest root met such an older version, and
below it a BIN whose file the cleaner had deleted, rightly.

Beside a running JE nodes are decided by an older checkpoint. A database that had been there then was gone
since, with files of its tree, and with the file that told so. And a database that was truncated keeps its
MapLN for a while, though nobody keeps its tree.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from lethe_samples.je_writer.cleaning import clean_file
from lethe_samples.je_writer.environment import Environment
from lethe_samples.je_writer.items import CheckpointEndItem, write_checkpoint_end, write_checkpoint_start
from lethe_samples.je_writer.tree import Node
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import TreeBroken
from spark.erase.plan.plan import plan_erasure
from spark.formats.je.log import FLAG_PROVISIONAL, EntryType, file_name, lsn_file, lsn_offset
from tests.spark.erase.live_environments import (
    MINUTE_MS,
    NO_GRACE,
    begin,
    plan,
    planned,
    write_versions,
)


def write_deep_tree(directory: Path) -> Environment:
    environment = begin(directory)
    environment.create("deep", node_capacity=4)
    write_versions(environment, range(60), name="deep")
    environment.checkpoint()
    return environment


def lowest(environment: Environment) -> tuple[Node, Node]:
    """A BIN and its parent, which is not the root."""
    root = environment.databases["deep"].tree.root
    assert root is not None
    parent = root
    while not parent.children[0].is_bin:
        parent = parent.children[0]
    assert parent is not root
    return parent.children[0], parent


def checkpoint_below_the_root(environment: Environment) -> None:
    """Write a BIN and its parent again, as a checkpoint of JE does."""
    database = environment.databases["deep"]
    node, parent = lowest(environment)
    now_ms = environment.log.now_ms
    start = environment._append(EntryType.CKPT_START, write_checkpoint_start(now_ms, 99, "api"))
    database.nodes._log_bin(node, database.tree, provisional=FLAG_PROVISIONAL)
    database.nodes._log_upper(parent, database.tree, provisional=0)
    end = CheckpointEndItem("api", now_ms, start, None, start, 99, 0, 0, 0)
    environment._append(EntryType.CKPT_END, write_checkpoint_end(end))


def erase_entry(directory: Path, lsn: int, size: int) -> None:
    with (directory / file_name(lsn_file(lsn))).open("r+b") as file:
        file.seek(lsn_offset(lsn) + 4)
        file.write(bytes([EntryType.ERASED]))
        file.seek(lsn_offset(lsn) + 14)
        file.write(bytes(size - 14))


@pytest.mark.parametrize("replaced", [True, False])
def test_hole_below_a_node_is_legal_only_where_recovery_replaces_the_node(
    tmp_path: Path, replaced: bool
) -> None:
    environment = write_deep_tree(tmp_path)
    node, _ = lowest(environment)
    lsn, size = node.lsn, node.size
    if replaced:
        checkpoint_below_the_root(environment)
    environment.crash()
    erase_entry(tmp_path, lsn, size)
    if not replaced:
        with pytest.raises(TreeBroken) as broken:
            plan_erasure(tmp_path, PlanRequest())
        assert (broken.value.file, broken.value.offset) == (file_name(lsn_file(lsn)), lsn_offset(lsn))
        return
    assert plan_erasure(tmp_path, PlanRequest()).gone == (lsn,)


def clean(environment: Environment, number: int) -> None:
    environment.log.now_ms += MINUTE_MS
    assert clean_file(environment, number)


def test_database_that_was_there_at_the_older_checkpoint_may_have_holes(tmp_path: Path) -> None:
    environment = begin(tmp_path)
    environment.create("gone")
    write_versions(environment, range(25), name="gone")
    environment.checkpoint()
    root = environment.databases["gone"].tree.root
    assert root is not None
    node = root.children[0]
    write_versions(environment, range(100))
    environment.databases["gone"].mapped = False
    environment.checkpoint()
    settled_ms = environment.log.now_ms
    write_versions(environment, range(100))
    txn = environment.begin()
    environment.drop(txn, "gone")
    environment.commit(txn)
    told_in = environment.log.number
    write_versions(environment, range(100))
    environment.log.now_ms += 9 * MINUTE_MS
    environment.checkpoint()
    clean(environment, lsn_file(node.lsn))
    clean(environment, told_in)
    environment.crash()
    terms = replace(NO_GRACE, node_grace_ms=environment.log.now_ms - settled_ms - MINUTE_MS)
    assert planned(plan(tmp_path, terms))


def test_database_that_was_truncated_may_have_holes(tmp_path: Path) -> None:
    environment = begin(tmp_path)
    environment.create("cut")
    write_versions(environment, range(25), name="cut")
    environment.checkpoint()
    root = environment.databases["cut"].tree.root
    assert root is not None
    node = root.children[0]
    txn = environment.begin()
    environment.truncate(txn, "cut", finish=False)
    environment.commit(txn)
    write_versions(environment, range(100))
    environment.checkpoint()
    environment.crash()
    erase_entry(tmp_path, node.lsn, node.size)
    assert node.lsn in plan_erasure(tmp_path, PlanRequest()).gone
