"""A plan was kept for days, and its files were compared with what had been planned: identity, size, time and
the header of every entry. Meanwhile an operator put an older backup of the environment into its place. Old
files had not changed since that backup, so the tool left them alone, with inode and time; only the end of the
log went. With it went the newer versions by which records in the old files had been obsolete. Every
comparison held, and the next round erased the only versions that the restored environment had.
"""

from pathlib import Path

import pytest

from spark.erase.calls.calls import DeleteReservedAnswer, DeleteReservedCall, PlannedFile, RefusalCode, Step
from spark.erase.reading.directory import identity_of
from spark.erase.unit import do
from spark.formats.je.log import file_name, lsn_file, lsn_offset
from tests.oracles.je_liveness_reader import read_environment
from tests.oracles.je_liveness_recovery import recover
from tests.regressions.environments import begin_history, write_versions
from tests.spark.erase.hands_at_work import EPOCH, claim, contents, overwrite, plan, rounds_of, rows_of


class History:
    """A log whose records were all written again after a backup of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = begin_history(directory)
        self.write(b"old")
        self.write(b"kept")
        self.kept = contents(directory)

    def write(self, what: bytes) -> None:
        write_versions(self.environment, what)

    def restore(self) -> None:
        """Put the backup back as rsync does: what has size and time of the copy is left alone."""
        for path in self.directory.glob("*.jdb"):
            if path.name not in self.kept:
                path.unlink()
            elif len(data := self.kept[path.name]) != path.stat().st_size:
                path.write_bytes(data)


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    claim(tmp_path)
    return made


def lsns(file: PlannedFile) -> set[int]:
    return {(file.number << 32) + row["offset"] for row in rows_of(file)}


def test_round_in_a_log_that_was_put_back_is_refused_and_its_records_live(history: History) -> None:
    history.write(b"new")
    history.environment.close()
    planned = plan(history.directory)
    history.restore()
    found = recover(read_environment(history.directory))
    # The old plan names records that live again, in a file that the restore has left alone.
    file = next(each for each in planned.files if lsns(each) & found.fetched)
    assert identity_of((history.directory / file_name(file.number)).stat()) == file.identity
    before = contents(history.directory)
    [call] = rounds_of(history.directory, file, witness=planned.witness)
    answer = overwrite(call)
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.step) == (RefusalCode.LOG_MOVED, Step.CHECK)
    assert contents(history.directory) == before


def test_round_in_a_log_that_has_grown_on_is_done(history: History) -> None:
    history.write(b"new")
    planned = plan(history.directory)
    file = next(each for each in planned.files if each.number == 1)
    history.write(b"newest")
    [call] = rounds_of(history.directory, file, witness=planned.witness)
    assert (answer := overwrite(call)).refusal is None
    assert answer.step == Step.DONE


def test_round_whose_checkpoint_the_cleaner_has_deleted_is_planned_anew(history: History) -> None:
    history.write(b"new")
    planned = plan(history.directory)
    history.write(b"newest")
    (history.directory / file_name(lsn_file(planned.checkpoint_lsn))).unlink()
    file = next(each for each in planned.files if each.number == 1)
    [call] = rounds_of(history.directory, file, witness=planned.witness)
    answer = overwrite(call)
    assert answer.refusal is not None
    assert answer.refusal.code == RefusalCode.LOG_MOVED


def test_reserved_file_of_a_log_that_was_put_back_stays(history: History) -> None:
    history.write(b"new")
    history.environment.close()
    planned = plan(history.directory)
    file = planned.files[1]
    history.restore()
    answer = do(DeleteReservedCall(str(history.directory), 1, EPOCH, file.identity, witness=planned.witness))
    assert isinstance(answer, DeleteReservedAnswer)
    assert answer.refusal is not None
    assert answer.refusal.code == RefusalCode.LOG_MOVED
    assert (history.directory / file_name(1)).exists()


def test_other_checkpoint_at_the_same_place_is_another_log(history: History) -> None:
    history.write(b"new")
    history.environment.close()
    planned = plan(history.directory)
    assert planned.witness is not None
    path = history.directory / file_name(lsn_file(planned.witness.lsn))
    data = bytearray(path.read_bytes())
    data[lsn_offset(planned.witness.lsn) + 20] ^= 1
    path.write_bytes(data)
    file = next(each for each in planned.files if each.number == 1)
    [call] = rounds_of(history.directory, file, witness=planned.witness)
    answer = overwrite(call)
    assert answer.refusal is not None
    assert answer.refusal.code == RefusalCode.LOG_MOVED
