"""Verification of an erased environment: silent where all is well, loud where something in use is gone."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lethe_samples.je_writer.environment import Environment
from spark.erase.calls.calls import Costs, RefusalCode, VerifyAnswer, VerifyCall
from spark.erase.calls.request import PlanRequest
from spark.erase.hands.child import ChildHands
from spark.erase.overwrite.verify import verify
from spark.erase.plan.plan import gather_facts, plan_erasure
from spark.erase.reading.log import newest_checkpoint, read_log
from spark.erase.run import SparkHands
from spark.erase.unit import do
from spark.erase.verified import FileToVerify
from spark.formats.je.log import LN_TYPES, NODE_TYPES, file_name, lsn_file, lsn_offset
from spark.pool.pool import SparkPool
from tests.spark.erase.damage import in_use, zero_out
from tests.spark.erase.hands_at_work import claim, erase
from tests.spark.erase.live_eraser import Eraser
from tests.spark.erase.live_runs import NODE_GRACE_MS
from tests.spark.erase.random_environments import random_environment
from tests.spark.erase.spread_here import SpreadHere
from tests.spark.erase.test_live_kills import each_run

PASSES = 3


def verified(directory: Path, *files: FileToVerify) -> VerifyAnswer:
    """By the one call that hands do; a spread one finds the same."""
    call = VerifyCall(str(directory), files)
    answer = do(call)
    assert isinstance(answer, VerifyAnswer)
    assert verify(call, SpreadHere()) == answer
    return answer


def told(directory: Path) -> tuple[FileToVerify, ...]:
    """Erase all that can be, and say of each file what a cycle would."""
    claim(directory)
    answer = erase(directory)
    return tuple(FileToVerify(file.number, file.identity.size, True, file.entries) for file in answer.files)


def test_records_of_a_file_that_was_taken_away_are_counted_with_its_number(tmp_path: Path) -> None:
    environment = Environment(tmp_path, file_bytes_max=20_000, created_ms=1_795_163_000_000)
    environment.create("users")
    for key in range(400):
        environment.put(None, "users", b"key%04d" % key, bytes(100))
    environment.checkpoint()
    environment.checkpoint()
    environment.log.close()
    assert (verified(tmp_path).missing_count, verified(tmp_path).missing_in) == (0, {})
    (tmp_path / file_name(0)).unlink()
    found = verified(tmp_path)
    assert found.refusal is None
    assert found.missing_in == {0: found.missing_count}
    assert found.missing_count > 100


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["closed", "crash", "swept", "halted"])
def test_erased_environment_has_nothing_to_say(copy_of: Callable[[str], Path], name: str) -> None:
    directory = copy_of(name)
    files = told(directory)
    found = verified(directory, *files)
    assert (found.refusal, found.reached, found.unerased) == (None, (), ())
    assert {each.number: each.sha256 for each in found.files} == {
        each.number: sha256(directory / file_name(each.number)) for each in files
    }
    assert sum(each.erased_count for each in found.files) > 0


@pytest.mark.parametrize("seed", range(5))
def test_random_environment_has_nothing_to_say_after_its_erasure(tmp_path: Path, seed: int) -> None:
    random_environment(tmp_path, seed, size=250)
    files = told(tmp_path)
    found = verified(tmp_path, *files)
    assert (found.refusal, found.reached, found.unerased) == (None, (), ())


def test_record_in_use_that_is_erased_is_found(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    files = told(directory)
    [first, *_, last] = in_use(directory, frozenset(LN_TYPES))
    zero_out(directory, first)
    zero_out(directory, last)
    found = verified(directory, *files)
    assert (found.reached, found.reached_count) == ((first, last), 2)
    assert found.unerased_count == 0
    again = plan_erasure(directory, PlanRequest())
    assert again.erased_reached == (first, last)


def test_tree_node_in_use_that_is_erased_is_refused_by_name(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    lsn = in_use(directory, frozenset(NODE_TYPES))[-1]
    zero_out(directory, lsn)
    found = verified(directory)
    assert found.refusal is not None
    assert (found.refusal.code, found.refusal.ref) == (RefusalCode.LOG_REFUSED, "TREE_BROKEN")
    assert (found.refusal.file, found.refusal.offset) == (file_name(lsn_file(lsn)), lsn_offset(lsn))


def test_version_that_an_undo_would_fetch_is_found(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("crash")
    with read_log(directory, verify=False) as log:
        facts = gather_facts(log, newest_checkpoint(log))
        tail = [(file.number, row) for file in log.files for row in file.lns.to_pylist()]
        offsets = {file.number: file.entries["offset"].to_pylist() for file in log.files}
    wanted = {
        row["abort_lsn"]
        for number, row in tail
        if (number << 32) + offsets[number][row["entry"]] >= facts.first_active
        and row["abort_lsn"] > 0
        and not row["flags"] & 1
        and row["abort_data_bytes"] < 0
    }
    there = [lsn for lsn in sorted(wanted) if lsn in set(facts.entries.lsn.tolist())]
    assert there, "the sample has no such entry"
    zero_out(directory, there[0])
    assert there[0] in verified(directory).reached


def test_entry_that_is_not_erased_though_planned_is_found(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    answer = plan_erasure(directory, PlanRequest())
    before = (directory / answer.files[0].name).read_bytes()
    files = told(directory)
    offset = answer.files[0].erase["offset"][5].as_py()
    with (directory / answer.files[0].name).open("r+b") as file:
        file.seek(offset)
        file.write(before[offset : offset + 14])
        size = int.from_bytes(before[offset + 10 : offset + 14], "little")
        file.seek(offset)
        file.write(before[offset : offset + 22 + size])
    found = verified(directory, *files)
    assert (offset in found.unerased, found.unerased_count) == (True, 1)
    assert found.reached_count == 0


def test_file_that_is_gone_is_not_among_the_answers(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    files = told(directory)
    os.unlink(directory / "00000000.jdb")
    found = verified(directory, *files)
    if found.refusal is None:
        assert [each.number for each in found.files] == [each.number for each in files[1:]]
    else:
        assert found.refusal.ref == "TREE_BROKEN"


def test_log_that_grows_meanwhile_is_read_as_far_as_it_was(
    copy_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copy_of("closed")
    files = told(directory)
    call = VerifyCall(str(directory), files)
    still = do(call)

    class Growing(SpreadHere):
        """Somebody writes at the end of the log as soon as it was surveyed."""

        def each(self, function: object, arguments: object) -> list[object]:
            with (directory / file_name(files[-1].number)).open("ab") as file:
                file.write(b"\0" * 7)
            return super().each(function, arguments)  # type: ignore[arg-type]

    found = verify(call, Growing())
    assert found.moved
    assert replace(found, moved=False, files=(), costs=Costs()) == replace(still, files=(), costs=Costs())
    assert [each.sha256 for each in found.files] == [each.sha256 for each in still.files]


def test_no_environment_is_refused(tmp_path: Path) -> None:
    found = verified(tmp_path)
    assert found.refusal is not None
    assert found.refusal.ref == "NOT_AN_ENVIRONMENT"


@pytest.mark.long
def test_child_and_spark_find_the_same(copy_of: Callable[[str], Path], pool: SparkPool) -> None:
    directory = copy_of("closed")
    files = told(directory)
    zero_out(directory, in_use(directory, frozenset(LN_TYPES))[0])
    call = VerifyCall(str(directory), files)
    child = ChildHands()
    with SparkHands(pool.lease(job_id="verify", job_class="BULK")) as hands:
        answers = [child.verify(call), hands.verify(call), do(call)]
    child.close()
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].reached_count == 1


def test_log_that_is_erased_beside_its_writer_has_nothing_to_say(tmp_path: Path) -> None:
    answers = []
    for run in each_run(tmp_path, 3, seed=900):
        eraser = Eraser(run.directory, NODE_GRACE_MS)
        for _ in range(PASSES):
            eraser.make_pass()
            answers.append(do(VerifyCall(str(run.directory))))
        run.kill()
        answers.append(do(VerifyCall(str(run.directory))))
        assert answers[-1].refusal is None
    for answer in answers:
        assert answer.refusal is None or answer.refusal.code == RefusalCode.LOG_MOVED
        assert answer.reached == ()
    assert any(answer.moved for answer in answers)
    assert sum(file.erased_count for answer in answers for file in answer.files) > 0
