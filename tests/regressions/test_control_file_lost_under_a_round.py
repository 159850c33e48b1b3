"""The control file of an environment was removed while a round was between its look at the stop counter and
its write. A backup made the file anew, had the lock of every file, since a new file has no locks, and was
answered 201; then the round's write came, the last one before it noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from app.db import Database
from app.protection.control import Environment, Quiet, sync
from app.protection.rows import ProtectionKind
from app.protection.service import NewProtection, create_protection, prove_no_writer
from app.settings import Settings
from app.stores.rows import Store
from spark.erase.calls.calls import RefusalCode
from spark.targets.files.control_file import NAME
from tests.app.fake_clock import FakeClock
from tests.app.protection.conftest import CALLER, make_store  # noqa: F401 -- a fixture
from tests.regressions.environments import write_history
from tests.spark.erase.hands_at_work import Meddling, claim, overwrite, plan, rounds_of


def remove(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


@pytest.mark.parametrize("deed", [remove, rename])
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_nothing_is_promised_while_a_round_holds_the_file_that_it_writes(
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
    file = next(each for each in plan(directory).files if each.entry_count)
    store = make_store(directory)
    environment = Environment(store.id, directory)
    proofs: list[bool] = []

    def back_up() -> None:
        """As between the look at the counter and the write: the writer is at work, and has its locks."""
        deed(directory / NAME)
        new = NewProtection(ProtectionKind.BACKUP, "nightly", timedelta(hours=1), numbers=[file.number])
        with database.transaction() as db:
            row = create_protection(db, store.id, new, caller=CALLER, now=clock.now())
        sync(database, environment, clock=clock)
        proofs.append(Quiet(database, environment, row.id, [file.number]).step())
        silent = prove_no_writer(database, settings, store, epoch=99, deadline_s=0, clock=clock)
        proofs.append(silent)

    [call] = rounds_of(directory, file)
    overwrite(call, layer=Meddling(at=1, deed=back_up))
    assert proofs == [False, False]
    assert prove_no_writer(database, settings, store, epoch=100, deadline_s=0, clock=clock)


@pytest.mark.parametrize("deed", [remove, rename])
def test_round_that_opens_its_file_after_the_control_file_is_gone_writes_nothing(
    tmp_path: Path, deed: Callable[[Path], None]
) -> None:
    write_history(tmp_path)
    claim(tmp_path)
    file = next(each for each in plan(tmp_path).files if each.entry_count)
    [call] = rounds_of(tmp_path, file)
    layer = Meddling(at=0, deed=lambda: deed(tmp_path / NAME) if (tmp_path / NAME).exists() else None)
    answer = overwrite(call, layer=layer)
    assert answer.refusal is not None
    assert (answer.refusal.code, layer.writes) == (RefusalCode.STOPPED, 0)
