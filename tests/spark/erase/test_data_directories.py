"""A log in data directories is read, planned, erased and protected as the same log in one directory is."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark.erase.calls.calls import (
    Costs,
    DeleteReservedCall,
    Mode,
    PlanAnswer,
    RefusalCode,
    Step,
    VerifyAnswer,
    VerifyCall,
)
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogInDataDirectories, LogRefused, NotAnEnvironment, RestoreRequired
from spark.erase.overwrite.reserved import delete_reserved
from spark.erase.plan.plan import plan_erasure
from spark.erase.plan.plan_answer import of_plan
from spark.erase.plan.spread import plan_spread
from spark.erase.reading.directory import Identity, file_names
from spark.erase.unit import do
from spark.targets.files.control_file import ControlFile
from spark.targets.files.log_place import log_path
from tests.spark.erase.data_directories import gathered, spread_over
from tests.spark.erase.hands_at_work import (
    EPOCH,
    Ending,
    Killed,
    Traced,
    claim,
    erase,
    overwrite,
    plan,
    rounds_of,
)
from tests.spark.erase.live_environments import NO_GRACE, write_environment
from tests.spark.erase.live_environments import plan as plan_live
from tests.spark.erase.random_environments import random_environment
from tests.spark.erase.spread_here import SpreadHere

NOWHERE = Identity(0, 0, 0, 0, 0)


def comparable(answer: PlanAnswer) -> PlanAnswer:
    """A plan without what two copies of a log differ in."""
    files = tuple(replace(each, identity=NOWHERE) for each in answer.files)
    return replace(answer, files=files, costs=Costs())


def planned(directory: Path) -> PlanAnswer | str:
    try:
        return comparable(of_plan(plan_erasure(directory, PlanRequest())))
    except LogRefused as refused:
        return refused.code


def two_of(tmp_path: Path, seed: int) -> tuple[Path, Path]:
    """The same random log in one directory and in one to five data directories."""
    one, many = tmp_path / f"one-{seed}", tmp_path / f"many-{seed}"
    one.mkdir()
    random_environment(one, seed, size=120)
    shutil.copytree(one, many)
    return one, spread_over(many, random.Random(seed).randint(1, 5))


def check(seed: int, tmp_path: Path) -> int:
    one, many = two_of(tmp_path, seed)
    expected = planned(one)
    assert planned(many) == expected, seed
    if not isinstance(expected, PlanAnswer) or not sum(each.entry_count for each in expected.files):
        return 0
    if seed % 4 == 0:
        assert comparable(plan_spread(many, PlanRequest(), SpreadHere())) == expected, seed
    if seed % 3:
        return sum(each.entry_count for each in expected.files)
    for directory in (one, many):
        claim(directory)
        erase(directory)
    assert gathered(many) == gathered(one), seed
    assert not list(many.glob("*.jdb")), "nothing is made beside the data directories"
    return sum(each.entry_count for each in expected.files)


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 15), *(pytest.param(first, 60, marks=pytest.mark.long) for first in range(0, 1_020, 60))],
)
def test_random_logs_are_planned_and_erased_as_in_one_directory(
    first: int, count: int, tmp_path: Path
) -> None:
    erased = [check(seed, tmp_path) for seed in range(first, first + count)]
    assert sum(erased) > 2_000 * count // 60
    assert sum(entries > 0 for entries in erased) > count // 3


def test_live_plan_is_that_of_one_directory(tmp_path: Path) -> None:
    write_environment(tmp_path / "one").close()
    shutil.copytree(tmp_path / "one", tmp_path / "many")
    spread_over(tmp_path / "many", 3)
    one, many = (plan_live(tmp_path / name, NO_GRACE) for name in ("one", "many"))
    assert [each.erase for each in many.files] == [each.erase for each in one.files]
    assert sum(each.erase.num_rows for each in many.files) > 20


def test_writer_that_ends_anywhere_leaves_a_log_that_is_finished(tmp_path: Path) -> None:
    """Between any two system calls of a round in a file of a data directory."""
    _, many = two_of(tmp_path, 7)
    claim(many)
    file = max(plan(many).files, key=lambda each: each.entry_count)
    path = log_path(many, file.number)
    assert path.parent.name.startswith("data")
    call, original, traced = next(rounds_of(many, file)), path.read_bytes(), Traced()
    assert overwrite(call, traced).step == Step.DONE
    done = gathered(many)
    for at in range(1, traced.calls + 1):
        path.write_bytes(original)
        identity = replace(call.identity, mtime_ns=path.stat().st_mtime_ns)
        with pytest.raises(Killed):
            overwrite(replace(call, identity=identity), Ending(at=at))
        erase(many)
        assert gathered(many)[path.name] == done[path.name]


def test_verify_reads_them_again(tmp_path: Path) -> None:
    _, many = two_of(tmp_path, 3)
    answer = do(VerifyCall(str(many)))
    assert isinstance(answer, VerifyAnswer)
    assert answer.refusal is None


def test_reserved_file_is_deleted_in_its_data_directory(tmp_path: Path) -> None:
    write_environment(tmp_path).close()
    spread_over(tmp_path, 2)
    claim(tmp_path)
    file = plan(tmp_path).files[1]
    call = DeleteReservedCall(str(tmp_path), file.number, EPOCH, file.identity)
    killed_at = Ending(at=1)
    with pytest.raises(Killed):
        delete_reserved(call, layer=killed_at, clock=lambda: 0.0)
    assert delete_reserved(replace(call, was_begun=True), layer=Traced(), clock=lambda: 0.0).deleted
    assert not list(tmp_path.rglob("00000001.*"))
    assert len(list(tmp_path.rglob("*.jdb"))) == len(plan(tmp_path).files)


def test_control_file_takes_owner_and_mode_of_the_newest_log_file(tmp_path: Path) -> None:
    write_environment(tmp_path).close()
    spread_over(tmp_path, 3)
    newest = max(tmp_path.rglob("*.jdb"), key=lambda path: path.name)
    newest.chmod(0o660)
    with ControlFile.open(tmp_path, create=True):
        pass
    assert (tmp_path / "lethe.control").stat().st_mode & 0o777 == 0o660


def move_one(directory: Path) -> None:
    path = next(iter(sorted((directory / "data001").glob("*.jdb"))))
    path.rename(directory / "data002" / path.name)


def put_one_above(directory: Path) -> None:
    path = next(iter(sorted((directory / "data002").glob("*.jdb"))))
    path.rename(directory / path.name)


def lose_one(directory: Path) -> None:
    shutil.rmtree(directory / "data002")


def add_one(directory: Path) -> None:
    (directory / "data004").mkdir()


def link_one(directory: Path) -> None:
    (directory / "data002").rename(directory.parent / "elsewhere")
    (directory / "data002").symlink_to(directory.parent / "elsewhere")


@pytest.mark.parametrize("damage", [move_one, put_one_above, lose_one, add_one, link_one])
def test_directories_that_JE_would_not_take_are_refused(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    directory = tmp_path / "je"
    write_environment(directory).close()
    spread_over(directory, 3)
    before = gathered(directory)
    damage(directory)
    with pytest.raises(LogInDataDirectories) as refused:
        file_names(directory)
    assert "data00" in refused.value.detail
    assert sorted(gathered(directory)) == sorted(set(before) & set(gathered(directory)))


def test_empty_directories_of_that_name_are_nobodys_log(tmp_path: Path) -> None:
    write_environment(tmp_path).close()
    names = file_names(tmp_path)
    for name in ("data001", "data002", "data-x"):
        (tmp_path / name).mkdir()
    assert file_names(tmp_path) == names
    assert log_path(tmp_path, 0) == tmp_path / "00000000.jdb"
    assert log_path(tmp_path, 0x7FFF) == tmp_path / "00007fff.jdb"
    for path in tmp_path.glob("*.jdb"):
        path.unlink()
    with pytest.raises(NotAnEnvironment):
        file_names(tmp_path)


def test_restore_that_did_not_end_is_seen_in_a_data_directory(tmp_path: Path) -> None:
    write_environment(tmp_path).close()
    spread_over(tmp_path, 2)
    (tmp_path / "data001" / "7fffffff.jdb").touch()
    with pytest.raises(RestoreRequired):
        file_names(tmp_path)


def test_file_of_another_round_is_locked_by_its_number(tmp_path: Path) -> None:
    """Control file and locks go by numbers: where the file lies makes no difference."""
    _, many = two_of(tmp_path, 4)
    claim(many)
    file = max(plan(many).files, key=lambda each: each.entry_count)
    with ControlFile.open(many, create=False) as control:
        assert control.change(lambda record: replace(record, stop=record.stop + 1)) is not None
    call = next(rounds_of(many, file, mode=Mode.CLOSED))
    (log_path(many, file.number)).chmod(0o600)
    answer = overwrite(replace(call, epoch=EPOCH - 1))
    assert answer.refusal is not None
    assert answer.refusal.code is RefusalCode.EPOCH_PASSED
