"""Rows, control file, writers, crashes and damage in any order: what was promised is never written to.

The writers here follow the protocol of a round and nothing else: lock the file's byte, read epoch, ranges and
stop under it, compare stop before each write. What they write is a counter beside each file.
"""

from __future__ import annotations

import atexit
import contextlib
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from app.db import Database
from app.protection.control import Environment, Quiet
from app.protection.errors import EpochAhead
from app.protection.reconciliation import keep_protections
from app.protection.rows import ProtectionKind
from app.protection.service import (
    NewProtection,
    claim_environment,
    create_protection,
    end_protection,
    get_protection,
)
from app.settings import Settings
from app.stores.models import ExtinctionFilterMode, StoreKind, StoreMode
from app.stores.rows import Store
from migrations.upgrade import upgrade
from spark.targets.files.control_errors import ControlError
from spark.targets.files.control_file import NAME, ControlFile
from spark.targets.files.control_record import ControlRecord
from tests.app.fake_clock import FakeClock
from tests.app.protection.conftest import CALLER

FILES = 4
STEPS = 120
PROTECTORS_MAX = 3
MEMORY = Path("/dev/shm")
WEIGHTS = {
    "claim": 1,
    "begin_round": 8,
    "write": 12,
    "end_round": 3,
    "protect": 4,
    "step": 8,
    "end": 4,
    "restart": 1,
    "damage": 1,
}


def scratch() -> Path:
    """In memory where there is such a place: no test here is about a medium."""
    return Path(tempfile.mkdtemp(prefix="lethe-model-", dir=MEMORY if MEMORY.is_dir() else None))


@cache
def template() -> Path:
    """A metadata database at head, made once."""
    path = scratch() / "lethe.db"
    atexit.register(shutil.rmtree, path.parent)
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    with database.engine.connect() as connection:  # a plain copy misses what still stands in the log
        connection.exec_driver_sql("commit")
        connection.exec_driver_sql("pragma wal_checkpoint(truncate)")
        connection.exec_driver_sql("begin")
    database.close()
    return path


@dataclass
class Writer:
    """A round at work: between its lock and its end it may be asleep for as long as it likes."""

    number: int
    epoch: int
    control: ControlFile | None = None
    stop: int = 0

    def lock(self, directory: Path) -> bool:
        """Whether a round has begun."""
        try:
            control = ControlFile.open(directory, create=False)
        except ControlError:
            return False
        if control.try_lock_file(self.number, exclusive=True):
            with contextlib.suppress(ControlError):
                record = control.read()
                if record.epoch == self.epoch and not record.covering(self.number):
                    self.control, self.stop = control, record.stop
                    return True
        control.close()
        return False

    def may_write(self) -> bool:
        assert self.control is not None
        return self.control.stop_counter() == self.stop

    def leave(self) -> None:
        assert self.control is not None
        self.control.close()


@dataclass
class Protector:
    """A request on its way to its promise, or with it."""

    protection_id: str
    numbers: set[int]
    quiet: Quiet
    promised: dict[int, int] = field(default_factory=dict)
    is_promised: bool = False


class Walk:
    """One environment, one metadata, any number of writers and protectors."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.root = scratch()
        self.directory = self.root / "env"
        self.directory.mkdir()
        for number in range(FILES):
            (self.directory / f"{number:08x}.jdb").write_bytes(b"log")
        self.clock = FakeClock()
        shutil.copyfile(template(), self.root / "lethe.db")
        self.database = Database(f"sqlite:///{self.root / 'lethe.db'}", clock=self.clock)
        self.settings = Settings(data_dir=self.root)
        now = self.clock.now()
        self.store = Store(
            id="orders",
            kind=StoreKind.JE,
            path=str(self.directory),
            mode=StoreMode.CLOSED,
            extinction_filter=ExtinctionFilterMode.NONE,
            created_at=now,
            updated_at=now,
        )
        with self.database.transaction() as db:
            db.add(self.store)
        self.environment = Environment("orders", self.directory)
        self.epoch = 0
        self.writes = dict.fromkeys(range(FILES), 0)
        self.writers: list[Writer] = []
        self.protectors: list[Protector] = []
        self.promises = self.refused = 0
        self.claim()

    def close(self) -> None:
        for writer in self.writers:
            writer.leave()
        self.database.close()
        shutil.rmtree(self.root)

    def go(self, steps: int) -> None:
        """Do this and that, and look after each of it."""
        for _ in range(steps):
            [name] = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
            getattr(self, name)()
            self.check()

    def claim(self) -> None:
        """A cycle is claimed, perhaps while an older one still writes."""
        self.epoch += 1
        with contextlib.suppress(EpochAhead):
            claim_environment(self.database, self.settings, self.store, epoch=self.epoch, clock=self.clock)

    def begin_round(self) -> None:
        writer = Writer(self.random.randrange(FILES), self.epoch - self.random.choice([0, 0, 0, 1]))
        if writer.lock(self.directory):
            self.writers.append(writer)
        else:
            self.refused += 1

    def write(self) -> None:
        """One write of a round, or its end where it is told to stop; all the time in between it slept."""
        if not self.writers:
            return
        writer = self.random.choice(self.writers)
        if writer.may_write():
            self.writes[writer.number] += 1
        else:
            self.writers.remove(writer)
            writer.leave()

    def end_round(self) -> None:
        """It is done, or its process dies: the lock is free either way."""
        if self.writers:
            self.writers.pop(self.random.randrange(len(self.writers))).leave()

    def protect(self) -> None:
        """The row is committed; the process may die before the next step, and never come to it."""
        if len(self.protectors) >= PROTECTORS_MAX:
            return
        numbers = sorted(self.random.sample(range(FILES), self.random.randint(1, 2)))
        new = NewProtection(ProtectionKind.BACKUP, "test", timedelta(hours=1), numbers=numbers)
        with self.database.transaction() as db:
            row = create_protection(db, "orders", new, caller=CALLER, now=self.clock.now())
        quiet = Quiet(self.database, self.environment, row.id, numbers)
        self.protectors.append(Protector(row.id, set(numbers), quiet))

    def step(self) -> None:
        """A step of a request that waits; with the proof its promise is given."""
        waiting = [each for each in self.protectors if not each.is_promised]
        if waiting and (protector := self.random.choice(waiting)).quiet.step():
            protector.is_promised = True
            protector.promised = {number: self.writes[number] for number in protector.numbers}
            self.promises += 1

    def end(self) -> None:
        """The row says ENDED; that the range goes is housekeeping's."""
        if self.protectors:
            protector = self.protectors.pop(self.random.randrange(len(self.protectors)))
            with self.database.transaction() as db:
                row = get_protection(db, "orders", protector.protection_id, lock=True)
                end_protection(db, row, now=self.clock.now())

    def restart(self) -> None:
        """A process comes back: rows and control file are brought in step."""
        keep_protections(self.database, self.settings, clock=self.clock)

    def damage(self) -> None:
        """A torn control file, also under writers at work: it is rebuilt from the rows."""
        path = self.directory / NAME
        path.write_bytes(b"\xff" * path.stat().st_size)
        self.restart()
        self.claim()

    def check(self) -> None:
        """What was promised is not written to."""
        for protector in self.protectors:
            for number, count in protector.promised.items():
                assert self.writes[number] == count, f"{number} was written to after its promise"


def walked(seed: int) -> Walk:
    walk = Walk(seed)
    try:
        walk.go(STEPS)
    finally:
        walk.close()
    return walk


@pytest.mark.parametrize("first", [0, 4, pytest.param(8, marks=pytest.mark.long)])
def test_nothing_promised_is_written_to_in_any_order(first: int) -> None:
    walks = [walked(seed) for seed in range(first, first + 4)]
    assert sum(walk.promises for walk in walks) > 8
    assert sum(walk.refused for walk in walks) > 20
    assert sum(sum(walk.writes.values()) for walk in walks) > 20


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_150))
def test_nothing_promised_is_written_to_in_many_orders(seed: int) -> None:
    walked(seed)


def test_walks_notice_a_writer_that_looks_at_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself: a wrong protocol must not pass."""
    monkeypatch.setattr(ControlRecord, "covering", lambda _record, _number: ())
    with pytest.raises(AssertionError, match="after its promise"):
        [walked(seed) for seed in range(20)]
