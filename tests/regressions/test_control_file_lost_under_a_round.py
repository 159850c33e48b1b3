"""The control file of an environment was removed while a round was between its look at the stop counter and
its write. A backup made the file anew, had the lock of every file, since a new file has no locks, and was
answered 201; then the round's write came, the last one before it noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.db import Database
from app.settings import Settings
from app.stores.rows import Store
from spark.erase.calls.calls import RefusalCode
from spark.targets.files.control_file import NAME
from tests.app.fake_clock import FakeClock
from tests.app.protection.conftest import CALLER, make_store  # noqa: F401 -- a fixture
from tests.regressions.environments import write_history
from tests.regressions.lost_control_files import Backup, remove, rename
from tests.spark.erase.hands_at_work import Meddling, claim, overwrite, plan, rounds_of


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
    backup = Backup(database, settings, clock, store, directory)
    [call] = rounds_of(directory, file)
    # Between the look at the counter and the write: the writer is at work, and has its locks.
    overwrite(call, layer=Meddling(at=1, deed=lambda: backup.begin(file.number, deed)))
    assert backup.proofs == [False, False]
    assert backup.finds_nobody(100)


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
