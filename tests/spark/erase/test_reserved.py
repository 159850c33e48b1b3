"""Files that JE has put aside: which of them hold nothing any more, and how they are deleted."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lethe_samples.je_writer.cleaning import clean_file
from lethe_samples.je_writer.environment import Environment
from spark.erase.calls.calls import (
    DeleteReservedAnswer,
    DeleteReservedCall,
    PlannedFile,
    RefusalCode,
)
from spark.erase.overwrite.environment_lock import try_lock
from spark.erase.overwrite.reserved import delete_reserved
from spark.formats.je.log import file_name
from spark.targets.files.control_record import ProtectedRange
from tests.spark.erase.hands_at_work import (
    Ending,
    Failing,
    Killed,
    Traced,
    claim,
    contents,
    erase,
    plan,
    protect,
    raise_stop,
)
from tests.spark.erase.live_records import live_records

CLEANED = 1


def written(directory: Path, *, migrate: bool = True) -> Path:
    """An environment of some files, of which JE's cleaner has put one aside."""
    directory.mkdir()
    environment = Environment(directory, file_bytes_max=20_000, created_ms=1_795_163_000_000)
    environment.create("users")
    for turn in range(3):
        for key in range(100):
            environment.put(None, "users", b"key%03d" % (key * (turn + 1) % 130), bytes([65 + turn]) * 100)
    environment.checkpoint()
    if migrate:
        assert clean_file(environment, CLEANED, reserve=True)
    else:
        environment.reserve(CLEANED)
    environment.checkpoint()
    environment.log.close()
    claim(directory)
    return directory


def cleaned(directory: Path) -> PlannedFile:
    return next(file for file in plan(directory).files if file.number == CLEANED)


def delete(
    directory: Path, file: PlannedFile, layer: Traced | None = None, *, epoch: int = 7
) -> DeleteReservedAnswer:
    call = DeleteReservedCall(str(directory), file.number, epoch, file.identity)
    return delete_reserved(call, layer=layer or Traced(), clock=lambda: 0.0)


def test_reserved_file_that_holds_nothing_is_barren_and_can_be_deleted(tmp_path: Path) -> None:
    directory = written(tmp_path / "je")
    answer, live = plan(directory), live_records(directory)
    assert [file.number for file in answer.files if file.reserved] == [CLEANED]
    assert [file.number for file in answer.files if file.barren] == [CLEANED]
    before = contents(directory)
    layer = Traced()
    deleted = delete(directory, cleaned(directory), layer)
    assert (deleted.refusal, deleted.deleted) == (None, True)
    assert [what for what, _, _, _ in layer.seen] == ["rename", "fsync", "unlink", "fsync"]
    assert {layer.paths[of] for what, of, _, _ in layer.seen if what == "fsync"} == {"je"}
    assert deleted.costs.fsyncs == 2
    assert sorted(before.keys() - contents(directory).keys()) == [file_name(CLEANED)]
    assert list(directory.glob("*.del")) == []
    assert live_records(directory) == live
    erase(directory)
    assert live_records(directory) == live
    again = delete(directory, next(file for file in answer.files if file.barren))
    assert again.refusal is not None
    assert (again.refusal.code, again.deleted) == (RefusalCode.ALREADY_DELETED, False)


def test_reserved_file_that_was_erased_is_still_barren(tmp_path: Path) -> None:
    directory = written(tmp_path / "je")
    erase(directory)
    file = cleaned(directory)
    assert (file.entry_count, file.reserved, file.barren) == (0, True, True)
    assert delete(directory, file).deleted


def test_reserved_file_that_still_holds_a_live_record_is_not_barren(tmp_path: Path) -> None:
    directory = written(tmp_path / "je", migrate=False)
    file = cleaned(directory)
    assert (file.reserved, file.barren) == (True, False)


def test_file_that_is_not_reserved_is_not_barren(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    claim(directory)
    erase(directory)
    assert not any(file.reserved or file.barren for file in plan(directory).files)


def assert_kept(directory: Path, answer: DeleteReservedAnswer, code: RefusalCode) -> None:
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.deleted) == (code, False)
    assert (directory / file_name(CLEANED)).exists()


def test_deletion_asks_all_that_a_round_asks(tmp_path: Path) -> None:
    directory = written(tmp_path / "je")
    file = cleaned(directory)
    path = directory / file_name(CLEANED)
    assert_kept(directory, delete(directory, file, epoch=8), RefusalCode.EPOCH_PASSED)
    lock = try_lock(directory)
    assert lock is not None
    with lock:
        assert_kept(directory, delete(directory, file), RefusalCode.ENVIRONMENT_IN_USE)
    os.link(path, tmp_path / "snapshot")
    assert_kept(directory, delete(directory, file), RefusalCode.HARD_LINKED)
    (tmp_path / "snapshot").unlink()
    status = path.stat()
    os.utime(path)
    assert_kept(directory, delete(directory, file), RefusalCode.FILE_TOUCHED)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    protect(directory, ProtectedRange("prt_a", "BACKUP", 0, CLEANED))
    assert_kept(directory, delete(directory, file), RefusalCode.PROTECTED)


def test_stop_keeps_the_file(tmp_path: Path) -> None:
    directory = written(tmp_path / "je")

    class Stopping(Traced):
        def stat(self, path: Path) -> os.stat_result:
            raise_stop(directory)
            return super().stat(path)

    assert_kept(directory, delete(directory, cleaned(directory), Stopping()), RefusalCode.STOPPED)


@pytest.mark.parametrize("at", [1, 2])
def test_sync_of_the_directory_that_fails_is_unproven(tmp_path: Path, at: int) -> None:
    directory = written(tmp_path / "je")
    layer = Failing(kind="fsync", at=at)
    answer = delete(directory, cleaned(directory), layer)
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.deleted) == (RefusalCode.UNPROVEN, False)
    assert layer.seen[-1][0] == ["rename", "unlink"][at - 1]


def test_deletion_ended_between_any_two_calls_leaves_a_legal_log(tmp_path: Path) -> None:
    traced = Traced()
    assert delete(written(tmp_path / "whole"), cleaned(tmp_path / "whole"), traced).deleted
    for at in range(1, traced.calls + 1):
        directory = written(tmp_path / f"je{at}")
        live = live_records(directory)
        with pytest.raises(Killed):
            delete(directory, cleaned(directory), Ending(at=at))
        names = {path.name for path in directory.iterdir()}
        assert not {file_name(CLEANED), f"{CLEANED:08x}.del"} <= names
        assert plan(directory).torn_at is None
        assert live_records(directory) == live
