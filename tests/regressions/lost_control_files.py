"""Somebody takes the control file of an environment away, and a backup comes that makes it anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from app.db import Database
from app.protection.control import Environment, Quiet, sync
from app.protection.rows import ProtectionKind
from app.protection.service import NewProtection, create_protection, prove_no_writer
from app.settings import Settings
from app.stores.rows import Store
from spark.targets.files.control_file import NAME
from tests.app.fake_clock import FakeClock
from tests.app.protection.conftest import CALLER


def remove(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


@dataclass
class Backup:
    """One that begins while the hands are at work in a file of a store.

    Attributes:
        proofs: whether it was promised the file, and whether nobody was said to write.
    """

    database: Database
    settings: Settings
    clock: FakeClock
    store: Store
    directory: Path
    proofs: list[bool] = field(default_factory=list)

    def begin(self, number: int, deed: Callable[[Path], None]) -> None:
        """Come after the control file has gone by a deed, and want the file of this number."""
        deed(self.directory / NAME)
        environment = Environment(self.store.id, self.directory)
        new = NewProtection(ProtectionKind.BACKUP, "nightly", timedelta(hours=1), numbers=[number])
        with self.database.transaction() as db:
            row = create_protection(db, self.store.id, new, caller=CALLER, now=self.clock.now())
        sync(self.database, environment, clock=self.clock)
        self.proofs.append(Quiet(self.database, environment, row.id, [number]).step())
        self.proofs.append(self.finds_nobody(99))

    def finds_nobody(self, epoch: int) -> bool:
        """Whether nobody is said to write there."""
        return prove_no_writer(
            self.database, self.settings, self.store, epoch=epoch, deadline_s=0, clock=self.clock
        )
