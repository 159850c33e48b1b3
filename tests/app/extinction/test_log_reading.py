"""What JE itself has discarded is known before any key is NOT_EXTINCT.

An INSTALLED store whose own log held a committed discard answered NOT_EXTINCT, `everything_maybe: false`,
until a plan, a cycle or a count had read the log; a discard that JE committed later stayed unseen until the
next such read. And a range that JE discards in a database with duplicates is of the database's own keys: it
was applied to primary keys, so that `cust15` was EXTINCT after a discard of [cust1, cust2), and the primary
key that was discarded NOT_EXTINCT.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from app.clock import SystemClock
from app.db import Database
from app.extinction import log_reading
from app.extinction.log_reading import LogReading, accept_gap, read_by_child
from app.extinction.verdicts import View, view_of
from app.settings import Settings
from app.stores.rows import Store
from lethe_samples.je_writer.environment import Environment
from spark.erase.calls.count_calls import CountAnswer, CountCall
from spark.erase.unit import do
from spark.formats.je.extinct_scan import ExtinctScan
from tests.app.extinction.kept_views import forget_views

CREATED_MS = 1_795_163_000_000
KEYS = [b"key%02d" % number for number in range(40)]


def read_here(call: CountCall) -> CountAnswer:
    """As a child process reads it."""
    answer = do(call)
    assert isinstance(answer, CountAnswer)
    return answer


@dataclass
class Running:
    """An environment that JE has open, and a store that looks at it."""

    database: Database
    settings: Settings
    directory: Path
    clock: SystemClock = field(default_factory=SystemClock)
    discarded: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    calls: int = 0
    read: Callable[[CountCall], CountAnswer] | None = None
    is_open: bool = True

    def __post_init__(self) -> None:
        self.directory.mkdir()
        self.je = Environment(self.directory, file_bytes_max=4_000, created_ms=CREATED_MS)
        self.users = self.je.create("users")
        self.je.create("by-name", dups=True)
        self.je.checkpoint()
        log_reading._seen.clear()
        forget_views()

    def register(self, **fields: object) -> None:
        now = self.clock.now()
        row = Store(
            id="je",
            kind="JE",
            path=str(self.directory),
            mode="CLOSED",
            extinction_filter="INSTALLED",
            created_at=now,
            updated_at=now,
        )
        row.sqlmodel_update(fields)
        with self.database.transaction() as db:
            db.add(row)

    @property
    def store(self) -> Store:
        with self.database.reading() as db:
            return db.get_one(Store, "je")

    def flush(self) -> None:
        """JE writes what it has logged."""
        if self.is_open:
            self.je.log._write_file()

    def look(self) -> list[str]:
        """What the service does every few seconds."""
        self.flush()
        later = self.clock.now() + timedelta(hours=1)
        return LogReading(self.database, self.settings, later, read=self.read or read_here).run()

    def view(self) -> View:
        self.flush()
        return view_of(self.database, self.settings, self.store, starting=False, now=self.clock.now())

    def status(self, *keys: bytes, database: bytes = b"users") -> list[str]:
        return [str(each) for each in self.view().index.status_many(database, list(keys))]

    def because(self) -> set[str]:
        return {each.code for each in self.view().bundle.maybe_because}

    def scan(self, start: bytes | None, end: bytes | None, *databases: int) -> ExtinctScan:
        return ExtinctScan(tuple(databases) or (self.users.id,), start, end, None, "by JE")

    def discard(self, start: bytes | None, end: bytes | None, *databases: int, txn: object = None) -> None:
        """A call of discardExtinctRecords by the application."""
        self.calls += 1
        held = txn or self.je.begin()
        self.je.discard(held, self.calls, self.scan(start, end, *databases))  # type: ignore[arg-type]
        if txn is None:
            self.je.commit(held)  # type: ignore[arg-type]
            self.discarded.append((start, end))

    def is_discarded(self, key: bytes) -> bool:
        return any((a is None or a <= key) and (b is None or key < b) for a, b in self.discarded)


@pytest.fixture
def running(sqlite_database: Database, settings: Settings, tmp_path: Path) -> Running:
    return Running(sqlite_database, settings, tmp_path / "je")


def test_discard_from_before_the_registration_is_never_denied(running: Running) -> None:
    running.read = read_by_child
    running.discard(b"key10", b"key20")
    running.register()
    assert running.status(b"key15", b"key25") == ["MAYBE_EXTINCT", "MAYBE_EXTINCT"]
    assert running.because() == {"LOG_NOT_READ"}
    assert running.view().bundle.everything_maybe
    running.look()
    assert running.status(b"key15", b"key25") == ["EXTINCT", "NOT_EXTINCT"]
    assert not running.view().bundle.everything_maybe


def test_discard_that_je_commits_later_is_seen_at_once(running: Running) -> None:
    running.register()
    running.look()
    assert running.status(b"key15") == ["NOT_EXTINCT"]
    running.je.put(None, "users", b"key15", b"x")
    assert running.status(b"key15") == ["NOT_EXTINCT"]
    running.discard(b"key10", b"key20")
    assert running.status(b"key15", b"key25") == ["MAYBE_EXTINCT", "MAYBE_EXTINCT"]
    assert running.look() == ["je"]
    assert running.status(b"key15", b"key25") == ["EXTINCT", "NOT_EXTINCT"]
    assert running.look() == []


def test_discard_of_an_open_transaction_leaves_everything_maybe_until_it_ends(running: Running) -> None:
    running.register()
    running.look()
    kept, undone = running.je.begin(), running.je.begin()
    running.discard(b"key10", b"key20", txn=kept)
    running.discard(b"key30", None, txn=undone)
    running.look()
    assert running.status(b"key15", b"key35") == ["MAYBE_EXTINCT", "MAYBE_EXTINCT"]
    running.je.commit(kept)
    running.look()
    assert running.status(b"key15", b"key35") == ["MAYBE_EXTINCT", "MAYBE_EXTINCT"]
    running.je.abort(undone)
    running.look()
    assert running.status(b"key15", b"key35") == ["EXTINCT", "NOT_EXTINCT"]


def test_range_in_a_database_with_duplicates_tells_nothing_of_primary_keys(running: Running) -> None:
    by_name = running.je.databases["by-name"]
    running.discard(b"cust1", b"cust2", by_name.id, running.users.id)
    running.register()
    running.look()
    assert running.status(b"cust15", b"z9", database=b"by-name") == ["MAYBE_EXTINCT", "MAYBE_EXTINCT"]
    assert running.status(b"cust15", b"z9") == ["EXTINCT", "NOT_EXTINCT"]
    assert running.because() == {"SECONDARY_RANGE"}
    running.discard(None, None, by_name.id)
    running.look()
    assert running.status(b"cust15", b"z9", database=b"by-name") == ["EXTINCT", "EXTINCT"]


def test_files_that_were_cleaned_unread_leave_a_gap_that_an_admin_closes(running: Running) -> None:
    running.register()
    running.look()
    before = sorted(path.name for path in running.directory.glob("*.jdb"))
    running.discard(b"key10", b"key20")
    for number in range(120):
        running.je.put(None, "users", b"later%03d" % number, b"x" * 100)
    running.je.checkpoint()
    files = sorted(path.name for path in running.directory.glob("*.jdb"))
    assert len(files) - len(before) >= 3
    for name in files[: len(before) + 1]:
        (running.directory / name).unlink()
    assert "MAYBE_EXTINCT" in running.status(b"key15", b"key25")
    running.look()
    assert running.because() == {"LOG_GAP"}
    assert running.status(b"key15", b"key25") == ["MAYBE_EXTINCT", "MAYBE_EXTINCT"]
    with running.database.transaction() as db:
        accept_gap(db, running.store, now=running.clock.now())
    running.look()
    assert running.because() == set()


def test_log_that_was_put_back_is_read_anew(running: Running, tmp_path: Path) -> None:
    running.register()
    running.look()
    for number in range(60):
        running.je.put(None, "users", b"later%03d" % number, b"x" * 100)
    running.look()
    assert running.status(b"key15") == ["NOT_EXTINCT"]
    running.is_open = False
    last = sorted(running.directory.glob("*.jdb"))[-1]
    copy = last.read_bytes()
    last.unlink()
    last.write_bytes(copy[:-40])
    assert running.status(b"key15") == ["MAYBE_EXTINCT"]


def test_log_that_only_others_reach_is_not_known_here(running: Running) -> None:
    running.register(runs_on=["zone-b"])
    running.look()
    assert running.status(b"key15") == ["MAYBE_EXTINCT"]
    assert "zone-b" in running.view().bundle.maybe_because[0].detail


def _act(running: Running, dice: random.Random, open_txns: list[tuple[object, bytes, bytes]]) -> None:
    """One thing that JE does."""
    what = dice.randrange(12)
    low, high = sorted(dice.sample(KEYS, 2))
    if what < 3:
        for _ in range(dice.randrange(1, 12)):
            running.je.put(None, "users", dice.choice(KEYS), b"x" * dice.randrange(10, 300))
    elif what < 5 and running.calls < 100:
        running.discard(low, high)
    elif what == 5 and running.calls < 100:
        txn = running.je.begin()
        running.discard(low, high, txn=txn)
        open_txns.append((txn, low, high))
    elif what < 8 and open_txns:
        txn, low, high = open_txns.pop(dice.randrange(len(open_txns)))
        if dice.random() < 0.5:
            running.je.commit(txn)  # type: ignore[arg-type]
            running.discarded.append((low, high))
        else:
            running.je.abort(txn)  # type: ignore[arg-type]
    elif what == 8 and not open_txns:
        running.je.checkpoint()
    elif what >= 9:
        running.look()


def _check_interleaving(running: Running, seed: int) -> int:
    """Random acts and questions; returns how many keys were judged for certain."""
    dice, certain = random.Random(seed), 0
    open_txns: list[tuple[object, bytes, bytes]] = []
    running.register()
    for _ in range(25):
        _act(running, dice, open_txns)
        for key, said in zip(KEYS, running.status(*KEYS), strict=True):
            if said == "NOT_EXTINCT":
                assert not running.is_discarded(key), (seed, key)
            if said == "EXTINCT":
                assert running.is_discarded(key), (seed, key)
            certain += said != "MAYBE_EXTINCT"
    return certain


MakeRunning = Callable[[int], Running]


@pytest.fixture
def make(sqlite_template: Path, settings: Settings, tmp_path: Path) -> MakeRunning:
    def build(seed: int) -> Running:
        path = tmp_path / f"{seed}.db"
        path.write_bytes(sqlite_template.read_bytes())
        return Running(Database(f"sqlite:///{path}"), settings, tmp_path / f"je-{seed}")

    return build


@pytest.mark.parametrize("seed", range(6))
def test_no_answer_is_wrong_in_random_interleavings(make: MakeRunning, seed: int) -> None:
    running = make(seed)
    try:
        assert _check_interleaving(running, seed) > 0
    finally:
        running.database.close()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_answer_is_wrong_in_a_thousand_random_interleavings(make: MakeRunning) -> None:
    certain = 0
    for seed in range(1_000, 2_000):
        running = make(seed)
        certain += _check_interleaving(running, seed)
        running.database.close()
    assert certain > 100_000
