"""Hands on Spark against hands in a child process: the same answers, the same bytes; what is lost is told."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark.erase.calls.calls import (
    Costs,
    DeleteReservedCall,
    HeaderTimesCall,
    PlanCall,
    PrepareCall,
    ProveCall,
    RefusalCode,
    VerifyCall,
)
from spark.erase.calls.request import PlanRequest
from spark.erase.hands.child import ChildHands
from spark.erase.hands.hands import Hands, HandsLost
from spark.erase.overwrite.environment_lock import try_lock
from spark.erase.reading.directory import identity_of
from spark.erase.run import SparkHands
from spark.erase.unit import do
from spark.erase.verified import FileToVerify
from spark.pool.pool import SparkPool
from tests.spark.erase.conftest import Sample
from tests.spark.erase.dying import Deadly
from tests.spark.erase.hands_at_work import claim, contents, rounds_of


@pytest.fixture
def hands(pool: SparkPool) -> Iterator[SparkHands]:
    with SparkHands(pool.lease(job_id="erasure", job_class="BULK")) as lent:
        yield lent


@pytest.fixture
def child() -> Iterator[ChildHands]:
    lent = ChildHands()
    yield lent
    lent.close()


def plain(answer: Any) -> Any:
    """An answer without what it has cost, and without what differs between two copies of the same files."""
    answer = replace(answer, costs=Costs())
    if hasattr(answer, "files"):
        files = [replace(each, identity=None) if hasattr(each, "identity") else each for each in answer.files]
        files = [replace(each, mtime_ns=0) if hasattr(each, "mtime_ns") else each for each in files]
        answer = replace(answer, files=tuple(files))
    return replace(answer, mtime_ns=0) if hasattr(answer, "mtime_ns") else answer


def whole_erasure(hands: Hands, directory: Path) -> list[Any]:
    """Every call that an erasure makes, one after the other."""
    where = str(directory)
    claim(directory)
    found: list[Any] = [hands.header_times(HeaderTimesCall(where, 0, 10))]
    plan = hands.plan(PlanCall(where, PlanRequest()))
    found.append(plan)
    for file in plan.files:
        if not file.entry_count:
            continue
        prepared = hands.prepare(PrepareCall(where, file.number, file.identity, file.entries))
        rounds = [hands.round(call) for call in rounds_of(directory, file, rows=2_000)]
        call = ProveCall(where, file.number, file.identity, file.entries, prepared.sha256_expected)
        found += [prepared, *rounds, hands.prove(call)]
    last = plan.files[-1]
    found.append(hands.delete_reserved(DeleteReservedCall(where, last.number, 99, last.identity)))
    files = tuple(FileToVerify(file.number, file.identity.size, True, file.entries) for file in plan.files)
    found.append(hands.verify(VerifyCall(where, files)))
    return found


def test_erasure_on_spark_answers_and_writes_as_one_in_a_child(
    samples: dict[str, Sample], tmp_path: Path, hands: SparkHands, child: ChildHands
) -> None:
    copies = [copied(samples["closed"], tmp_path / name) for name in ("spark", "child")]
    on_spark, in_child = whole_erasure(hands, copies[0]), whole_erasure(child, copies[1])
    assert [plain(each) for each in on_spark] == [plain(each) for each in in_child]
    assert contents(copies[0]) == contents(copies[1]) != contents(samples["closed"].path)
    assert all(each.is_proved for each in on_spark if hasattr(each, "is_proved"))
    assert sum(len(each.costs.fsync_s) for each in on_spark) > 0
    assert on_spark[-2].refusal.code == RefusalCode.EPOCH_PASSED
    assert (on_spark[-1].refusal, on_spark[-1].reached, on_spark[-1].unerased) == (None, (), ())
    assert hands.repeats == 0


def copied(sample: Sample, directory: Path) -> Path:
    directory.mkdir()
    for file in sample.files():
        (directory / file.name).write_bytes(file.read_bytes())
    return directory


def test_plan_on_spark_is_the_inline_one(copy_of: Callable[[str], Path], hands: SparkHands) -> None:
    for name in ("crash", "replicated", "halted"):
        call = PlanCall(str(copy_of(name)), PlanRequest())
        assert plain(hands.plan(call)) == plain(do(call))


def test_refusals_of_a_plan_are_answers(copy_of: Callable[[str], Path], hands: SparkHands) -> None:
    directory = copy_of("closed")
    with (directory / "00000001.jdb").open("r+b") as file:
        file.seek(5_000)
        file.write(b"\xff\x00\xff")
    refusal = hands.plan(PlanCall(str(directory), PlanRequest())).refusal
    assert refusal is not None
    assert (refusal.code, refusal.file) == (RefusalCode.LOG_REFUSED, "00000001.jdb")
    lock = try_lock(directory)
    assert lock is not None
    with lock:
        refusal = hands.plan(PlanCall(str(directory), PlanRequest())).refusal
    assert refusal is not None
    assert refusal.code == RefusalCode.ENVIRONMENT_IN_USE


def test_killed_hands_are_lost_for_good_and_their_slot_is_given_back(
    copy_of: Callable[[str], Path], pool: SparkPool
) -> None:
    given_back = threading.Event()
    lease = pool.lease(job_id="erasure", job_class="BULK")
    lent = SparkHands(lease, given_back=given_back.set)
    call = PlanCall(str(copy_of("swept")), PlanRequest())
    killer = threading.Timer(0.1, lent.kill)
    killer.start()
    with pytest.raises(HandsLost):
        plan_for(lent, call, 30.0)
    with pytest.raises(HandsLost, match="killed"):
        lent.header_times(HeaderTimesCall(call.directory, 0, 10))
    assert not given_back.is_set()
    lent.close()
    lent.close()
    assert given_back.is_set()


def plan_for(lent: SparkHands, call: PlanCall, seconds: float) -> None:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        lent.plan(call)


def test_worker_that_dies_in_a_call_that_only_reads_is_replaced_and_counted(
    copy_of: Callable[[str], Path], hands: SparkHands
) -> None:
    directory = copy_of("closed")
    found = hands.header_times(HeaderTimesCall(Deadly(directory), 0, 10))
    assert [each.number for each in found.files] == [0, 1, 2, 3]
    assert (directory.parent / "died").exists()
    assert hands.repeats == 1


def test_worker_that_dies_in_a_round_loses_the_hands_and_nothing_is_done_twice(
    copy_of: Callable[[str], Path], hands: SparkHands
) -> None:
    """A second attempt would find the file touched by the first one, and give it up as changed by others."""
    directory = copy_of("closed")
    claim(directory)
    before = contents(directory)
    file = hands.plan(PlanCall(str(directory), PlanRequest())).files[0]
    [call, *_] = rounds_of(directory, file)
    with pytest.raises(HandsLost, match="would have repeated a call that writes"):
        hands.round(replace(call, directory=Deadly(directory)))
    assert (directory.parent / "died").exists()
    assert contents(directory) == before
    assert identity_of((directory / "00000000.jdb").stat()) == file.identity
