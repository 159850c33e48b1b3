"""Two stores named one environment, the second by a symbolic link. A backup through the first one held its
files when the control file was lost. The eraser of the second store made it anew, with the ranges of its own
store only, claimed the environment, and could have written to files that the backup was copying.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from app.db import Database
from app.protection.control import Environment, sync
from app.protection.rows import ProtectionKind
from app.protection.service import NewProtection, claim_environment, create_protection
from app.settings import Settings
from app.stores.rows import Store
from spark.targets.files.control_file import NAME, ControlFile
from tests.app.fake_clock import FakeClock
from tests.app.protection.conftest import CALLER, directory, make_store  # noqa: F401 -- fixtures


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"x" * 200_000)])
def test_control_file_made_anew_by_one_store_has_the_ranges_of_the_other(
    database: Database,
    settings: Settings,
    clock: FakeClock,
    directory: Path,  # noqa: F811
    make_store: Callable[..., Store],  # noqa: F811
    damage: Callable[[Path], object],
) -> None:
    link = directory.parent / "link"
    link.symlink_to(directory)
    kept, other = make_store(directory, "kept"), make_store(link, "other")
    make_store(directory.parent, "elsewhere")
    new = NewProtection(ProtectionKind.BACKUP, "nightly", timedelta(hours=1), numbers=[1, 2])
    with database.transaction() as db:
        row = create_protection(db, kept.id, new, caller=CALLER, now=clock.now())
    sync(database, Environment(kept.id, directory.resolve()), clock=clock)
    damage(directory / NAME)
    claim_environment(database, settings, other, epoch=7, clock=clock)
    with ControlFile.open(directory, create=False) as control:
        record = control.read()
    assert record.epoch == 7
    assert [held.id for held in record.covering(1)] == [row.id]
    assert record.covering(3) == ()
