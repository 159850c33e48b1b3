"""The control file of an environment was removed while a reserved file was being deleted, between the look at
the stop counter and the renaming. A backup made the file anew, had the lock of every file, and was answered
201; then the log file that it had been promised was gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.db import Database
from app.settings import Settings
from app.stores.rows import Store
from spark.erase.calls.calls import DeleteReservedCall, RefusalCode
from spark.erase.overwrite.reserved import delete_reserved
from spark.targets.files.control_file import NAME
from tests.app.fake_clock import FakeClock
from tests.app.protection.conftest import CALLER, make_store  # noqa: F401 -- a fixture
from tests.regressions.environments import write_history
from tests.regressions.lost_control_files import Backup, remove, rename
from tests.spark.erase.hands_at_work import EPOCH, Traced, claim, plan


@dataclass
class Meanwhile(Traced):
    """Does something before the renaming, or before the unlinking."""

    before: str = "rename"
    deed: Callable[[], None] = lambda: None

    def rename(self, old: Path, new: Path) -> None:
        if self.before == "rename":
            self.deed()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        if self.before == "unlink":
            self.deed()
        super().unlink(path)


@pytest.mark.parametrize("deed", [remove, rename])
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_nothing_is_promised_while_a_deletion_holds_its_file(
    database: Database,
    settings: Settings,
    clock: FakeClock,
    tmp_path: Path,
    make_store: Callable[..., Store],  # noqa: F811
    deed: Callable[[Path], None],
) -> None:
    directory = tmp_path / "environment"
    directory.mkdir()
    write_history(directory)
    claim(directory)
    file = plan(directory).files[1]
    store = make_store(directory)
    backup = Backup(database, settings, clock, store, directory)
    call = DeleteReservedCall(str(directory), file.number, EPOCH, file.identity)
    delete_reserved(call, layer=Meanwhile(deed=lambda: backup.begin(file.number, deed)), clock=lambda: 0.0)
    assert backup.proofs == [False, False]
    assert backup.finds_nobody(100)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_nobody_is_silent_whose_file_is_renamed_and_not_unlinked_yet(
    database: Database,
    settings: Settings,
    clock: FakeClock,
    tmp_path: Path,
    make_store: Callable[..., Store],  # noqa: F811
) -> None:
    directory = tmp_path / "environment"
    directory.mkdir()
    write_history(directory)
    claim(directory)
    file = plan(directory).files[1]
    store = make_store(directory)
    (directory / "ffffffff.del").touch()
    backup = Backup(database, settings, clock, store, directory)

    def abort() -> None:
        backup.proofs.append(backup.finds_nobody(99))

    call = DeleteReservedCall(str(directory), file.number, EPOCH, file.identity)
    delete_reserved(call, layer=Meanwhile(before="unlink", deed=abort), clock=lambda: 0.0)
    assert backup.proofs == [False]
    assert backup.finds_nobody(100)


@pytest.mark.parametrize("deed", [remove, rename])
def test_deletion_that_opens_its_file_after_the_control_file_is_gone_deletes_nothing(
    tmp_path: Path, deed: Callable[[Path], None]
) -> None:
    write_history(tmp_path)
    claim(tmp_path)
    file = plan(tmp_path).files[1]

    class Lost(Traced):
        def open(self, path: Path, flags: int) -> int:
            if path.suffix == ".jdb":
                deed(tmp_path / NAME)
            return super().open(path, flags)

    call = DeleteReservedCall(str(tmp_path), file.number, EPOCH, file.identity)
    answer = delete_reserved(call, layer=Lost(), clock=lambda: 0.0)
    assert answer.refusal is not None
    assert answer.refusal.code == RefusalCode.STOPPED
    assert (tmp_path / f"{file.number:08x}.jdb").exists()
