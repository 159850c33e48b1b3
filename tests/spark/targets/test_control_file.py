"""The control file, byte by byte: what is read, what is refused, what is mended."""

import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from spark.targets.files.control_errors import (
    ControlFileFull,
    ControlFileInvalid,
    ControlFileMissing,
    MediumRefused,
    NotRegular,
    PermissionRefused,
)
from spark.targets.files.control_file import NAME, RECORD_BYTE, ControlFile
from spark.targets.files.control_record import FILE_BYTES, SLOT_OFFSETS, ControlRecord, ProtectedRange
from spark.targets.files.medium import Medium
from spark.targets.files.system_calls import SystemCalls
from tests.spark.targets.control_directory import (
    BACKUP,
    SCAN,
    counter,
    make_environment,
    names,
    newest_slot,
    put_counter,
    put_slot,
    slot,
    tear,
    write_at,
)
from tests.spark.targets.released import released


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_environment(tmp_path / "env")


def protect(directory: Path, *ranges: ProtectedRange, epoch: int = 0) -> ControlRecord:
    with ControlFile.open(directory, create=True) as file:
        record = file.change(lambda now: now.protecting(*ranges).claimed(epoch))
    assert record is not None
    return record


def test_first_open_makes_a_file_like_the_newest_log_file(directory: Path) -> None:
    newest = directory / "0000000a.jdb"
    newest.write_bytes(b"log")
    newest.chmod(0o664)

    with ControlFile.open(directory, create=True) as file:
        record = file.read()

    status = (directory / NAME).stat()
    assert record == ControlRecord(1, 0, 1, status.st_dev, directory.stat().st_ino, status.st_ino)
    assert stat.S_IMODE(status.st_mode) == 0o664
    assert (status.st_uid, status.st_gid) == (newest.stat().st_uid, newest.stat().st_gid)
    assert status.st_size == FILE_BYTES
    assert names(directory) == ["00000000.jdb", "0000000a.jdb", NAME]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_and_group_are_those_of_the_newest_log_file(directory: Path) -> None:
    os.chown(directory / "00000000.jdb", 1234, 4321)

    ControlFile.open(directory, create=True).close()

    status = (directory / NAME).stat()
    assert (status.st_uid, status.st_gid) == (1234, 4321)


def test_change_is_seen_by_every_descriptor_and_bears_the_next_generation(directory: Path) -> None:
    with ControlFile.open(directory, create=True) as file, ControlFile.open(directory, create=False) as other:
        record = file.change(lambda now: now.protecting(BACKUP))

        assert record == other.read() == file.read()
        assert record is not None
        assert (record.generation, record.stop, record.ranges) == (2, 2, (BACKUP,))
        assert other.stop_counter() == 2


def test_changes_alternate_between_the_slots(directory: Path) -> None:
    with ControlFile.open(directory, create=True) as file:
        for generation in range(2, 8):
            before = slot(directory, newest_slot(directory))
            record = file.change(lambda now: now.protecting(BACKUP))
            assert record is not None
            assert record.generation == generation
            assert slot(directory, 1 - newest_slot(directory)) == before


@pytest.mark.parametrize(
    ("edit", "raised"),
    [
        (lambda now: now, 0),
        (lambda now: now.protecting(SCAN), 1),
        (lambda now: released(now, BACKUP.id), 0),
        (lambda now: now.claimed(8), 1),
        (lambda now: replace(now, stop=now.stop + 5), 5),
        (lambda now: replace(now.protecting(SCAN), stop=now.stop + 1), 1),
    ],
)
def test_what_forbids_to_write_raises_stop_and_what_allows_does_not(directory, edit, raised) -> None:  # type: ignore[no-untyped-def]
    before = protect(directory, BACKUP, epoch=7)
    with ControlFile.open(directory, create=False) as file:
        after = file.change(edit)
        assert after is not None
        assert after.stop == before.stop + raised == file.stop_counter()


@pytest.mark.parametrize("field", ["epoch", "stop"])
def test_edit_that_lowers_a_counter_is_a_bug_and_changes_nothing(directory: Path, field: str) -> None:
    before = protect(directory, BACKUP, epoch=7)
    with ControlFile.open(directory, create=False) as file:
        with pytest.raises(AssertionError, match=f"{field} never sinks"):
            file.change(lambda now: replace(now, **{field: 1}))
        assert file.read() == before
        assert file.change(lambda now: now) is not None, "the lock was given back"


def test_edit_is_no_place_to_forge_an_identity(directory: Path) -> None:
    before = protect(directory)
    with ControlFile.open(directory, create=False) as file:
        after = file.change(lambda now: replace(now, own_inode=1, directory_inode=2, generation=50))
    assert after == replace(before, generation=before.generation + 1)


def test_change_while_another_one_changes_is_none(directory: Path) -> None:
    with ControlFile.open(directory, create=True) as file, ControlFile.open(directory, create=False) as other:
        answers: list[ControlRecord | None] = []

        def meanwhile(now: ControlRecord) -> ControlRecord:
            answers.append(other.change(lambda now: now))
            return now

        assert file.change(meanwhile) is not None
        assert answers == [None]
        assert other.change(lambda now: now) is not None


def test_more_ranges_than_fit_are_refused_and_the_old_record_stays(directory: Path) -> None:
    many = [ProtectedRange(f"prt_{n}", "SCAN", n, n) for n in range(1001)]
    before = protect(directory, *many[:1000])
    with ControlFile.open(directory, create=False) as file:
        with pytest.raises(ControlFileFull, match="holds 1000"):
            file.change(lambda now: now.protecting(many[1000]))
        assert file.read() == before


def test_torn_newer_slot_leaves_the_older_record_in_force(directory: Path) -> None:
    # A crash in the middle of a write: the counter was not yet raised.
    before = protect(directory, BACKUP, epoch=3)
    tear(directory, 1 - newest_slot(directory))
    with ControlFile.open(directory, create=False) as file:
        assert file.read() == before
        after = file.change(lambda now: now.protecting(SCAN))
    assert after is not None
    assert after.ranges == (BACKUP, SCAN)


def test_lost_slot_in_force_is_found_by_the_counter(directory: Path) -> None:
    """The older slot is whole and says less: to believe it would give protected files away."""
    protect(directory, BACKUP)
    protect(directory, SCAN)
    tear(directory, newest_slot(directory))

    with pytest.raises(ControlFileInvalid, match="stop is 3, its record says 2"):
        ControlFile.open(directory, create=True)


def test_both_slots_damaged_is_invalid_and_rebuilt_from_what_the_caller_knows(directory: Path) -> None:
    before = protect(directory, BACKUP, epoch=3)
    tear(directory, 0)
    tear(directory, 1)
    with pytest.raises(ControlFileInvalid, match="neither of its slots"):
        ControlFile.open(directory, create=True)

    record = ControlFile.rebuild(directory, [SCAN], epoch=3)

    assert record is not None
    assert (record.epoch, record.ranges) == (3, (SCAN,))
    assert record.stop > before.stop, "the counter was still to be read"
    with ControlFile.open(directory, create=False) as file:
        assert file.read() == record
        assert file.stop_counter() == record.stop


def test_higher_generation_is_in_force_wherever_it_lies(directory: Path) -> None:
    now = protect(directory)
    for low, high in ((0, 1), (1, 0)):
        put_slot(directory, low, replace(now, generation=2**61))
        put_slot(directory, high, replace(now, generation=2**61 + 1, ranges=(BACKUP,)))
        with ControlFile.open(directory, create=False) as file:
            assert file.read().ranges == (BACKUP,)
            assert file.change(lambda now: now.protecting(SCAN)) is not None
        assert slot(directory, high) == replace(now, generation=2**61 + 1, ranges=(BACKUP,))
        put_counter(directory, now.stop)


def test_copy_is_invalid_and_rebuilt_without_the_ranges_of_the_original(
    directory: Path, tmp_path: Path
) -> None:
    before = protect(directory, BACKUP, epoch=9)
    copy = tmp_path / "restored"
    shutil.copytree(directory, copy)
    with pytest.raises(ControlFileInvalid, match="a copy"):
        ControlFile.open(copy, create=True)

    record = ControlFile.rebuild(copy, [SCAN], epoch=4)

    assert record is not None
    assert (record.ranges, record.epoch) == ((SCAN,), 9)
    assert record.stop > before.stop
    assert record.generation > before.generation
    with ControlFile.open(copy, create=False) as file:
        assert file.read() == record
    with ControlFile.open(directory, create=False) as file:
        assert file.read() == before


def test_hard_linked_snapshot_is_invalid_in_its_own_directory(directory: Path, tmp_path: Path) -> None:
    protect(directory, BACKUP)
    snapshot = make_environment(tmp_path / "snapshot")
    os.link(directory / NAME, snapshot / NAME)

    with pytest.raises(ControlFileInvalid, match="a copy"):
        ControlFile.open(snapshot, create=False)
    ControlFile.open(directory, create=False).close()


@pytest.mark.parametrize("size", [0, 1, 7, 4096, SLOT_OFFSETS[0] + 20, SLOT_OFFSETS[1] - 1])
def test_truncated_file_is_invalid_or_reads_what_is_left_and_is_whole_again_when_rebuilt(
    directory: Path, size: int
) -> None:
    protect(directory, BACKUP, epoch=2)  # generation 2, in slot 1
    os.truncate(directory / NAME, size)
    with pytest.raises(ControlFileInvalid):
        ControlFile.open(directory, create=True)

    record = ControlFile.rebuild(directory, [BACKUP], epoch=2)

    assert record is not None
    assert (directory / NAME).stat().st_size == FILE_BYTES
    with ControlFile.open(directory, create=False) as file:
        assert file.read() == record
        assert file.change(lambda now: now.protecting(SCAN)) is not None


def test_rebuild_of_a_valid_file_keeps_its_ranges_and_lowers_nothing(directory: Path) -> None:
    before = protect(directory, BACKUP, epoch=9)

    record = ControlFile.rebuild(directory, [SCAN], epoch=4)

    assert record is not None
    assert (record.epoch, record.ranges) == (9, (BACKUP, SCAN))
    assert record.stop == before.stop + 1


def test_rebuild_makes_a_missing_file(directory: Path) -> None:
    record = ControlFile.rebuild(directory, [BACKUP], epoch=6)
    assert record is not None
    with ControlFile.open(directory, create=False) as file:
        assert file.read() == record


def test_rebuild_while_another_one_changes_is_none(directory: Path) -> None:
    with ControlFile.open(directory, create=True) as file:
        answers: list[ControlRecord | None] = []

        def meanwhile(now: ControlRecord) -> ControlRecord:
            answers.append(ControlFile.rebuild(directory, [SCAN], epoch=1))
            return now

        file.change(meanwhile)
    assert answers == [None]


def test_counter_behind_its_record_is_raised_by_whoever_reads(directory: Path) -> None:
    # A protector was killed between the slot and the counter.
    record = protect(directory, BACKUP)
    put_counter(directory, record.stop - 1)

    with ControlFile.open(directory, create=False) as file:
        assert file.stop_counter() == record.stop
        assert file.read() == record


def test_counter_behind_its_record_is_left_alone_while_somebody_changes(directory: Path) -> None:
    record = protect(directory, BACKUP)
    with (
        ControlFile.open(directory, create=False) as other,
        ControlFile.open(directory, create=False) as file,
    ):
        put_counter(directory, record.stop - 1)
        assert other._calls.try_exclusive(other._fd, RECORD_BYTE)

        assert file.read() == record
        assert file.stop_counter() != record.stop, "a writer that remembers the record's stop writes nothing"


def test_counter_of_a_file_that_is_gone_is_of_nobody(directory: Path) -> None:
    with ControlFile.open(directory, create=True) as file:
        os.replace(shutil.copy(directory / NAME, directory / "other"), directory / NAME)
        assert file.stop_counter() == -1

    ControlFile.rebuild(directory, [], epoch=0)
    with ControlFile.open(directory, create=False) as file:
        os.unlink(directory / NAME)
        assert file.stop_counter() == -1

    with ControlFile.open(directory, create=True) as file:
        os.truncate(directory / NAME, 0)
        assert file.stop_counter() == -1


def test_missing_file_is_missing_and_nothing_is_made(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ControlFileMissing):
        ControlFile.open(directory, create=False)
    assert names(directory) == ["00000000.jdb"]
    with pytest.raises(ControlFileMissing):
        ControlFile.open(tmp_path / "nowhere", create=True)
    with pytest.raises(ControlFileMissing):
        ControlFile.open(directory / "00000000.jdb", create=True)


def test_directory_without_a_log_has_no_owner_to_take(tmp_path: Path) -> None:
    with pytest.raises(PermissionRefused, match="no log file"):
        ControlFile.open(tmp_path, create=True)
    (tmp_path / "7fffffff.jdb").write_bytes(b"")
    with pytest.raises(PermissionRefused, match="no log file"):
        ControlFile.open(tmp_path, create=True)
    assert names(tmp_path) == ["7fffffff.jdb"]


def test_link_pipe_or_folder_of_its_name_is_refused(directory: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"mine")
    (directory / NAME).symlink_to(elsewhere)
    with pytest.raises(NotRegular):
        ControlFile.open(directory, create=True)
    with pytest.raises(NotRegular):
        ControlFile.rebuild(directory, [], epoch=1)
    assert elsewhere.read_bytes() == b"mine"
    elsewhere.unlink()
    with pytest.raises(NotRegular):
        ControlFile.open(directory, create=True)
    assert not elsewhere.exists(), "a dangling link is not followed either"
    (directory / NAME).unlink()
    os.mkfifo(directory / NAME)
    with pytest.raises(NotRegular):
        ControlFile.open(directory, create=True)
    (directory / NAME).unlink()
    (directory / NAME).mkdir()
    with pytest.raises(NotRegular):
        ControlFile.open(directory, create=True)


def test_file_locks_conflict_between_control_files_and_end_with_them(directory: Path) -> None:
    with ControlFile.open(directory, create=True) as file, ControlFile.open(directory, create=False) as other:
        assert file.try_lock_file(7, exclusive=True)
        assert not other.try_lock_file(7, exclusive=False)
        assert other.try_lock_file(8, exclusive=True)
        file.unlock_file(7)
        assert other.try_lock_file(7, exclusive=False)
        assert file.try_lock_file(7, exclusive=False)
        file.close()
        assert other.try_lock_file(7, exclusive=True)
        assert other.change(lambda now: now) is not None


class OnNetwork(SystemCalls):
    """System calls of a machine where everything is mounted over the network."""

    def medium_of(self, directory: Path) -> Medium:
        return Medium("nfs4", "host:/", is_network=True, is_copy_on_write=False)


def test_directory_on_a_network_file_system_is_refused_before_anything_is_made(directory: Path) -> None:
    with pytest.raises(MediumRefused, match="lies on nfs4"):
        ControlFile.open(directory, create=True, calls=OnNetwork())
    with pytest.raises(MediumRefused, match="lies on nfs4"):
        ControlFile.rebuild(directory, [], epoch=1, calls=OnNetwork())
    assert NAME not in names(directory)


def test_garbage_in_the_counter_is_found(directory: Path) -> None:
    protect(directory, BACKUP)
    write_at(directory, 0, b"\xff" * 8)
    with pytest.raises(ControlFileInvalid, match="stop is"):
        ControlFile.open(directory, create=False)
    record = ControlFile.rebuild(directory, [], epoch=0)
    assert record is not None
    assert record.ranges == (BACKUP,)
    assert counter(directory) == record.stop
