"""Environments of a few small files, and stores that name them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.protection.control import Environment
from app.stores.rows import ExtinctionFilterMode, Store, StoreKind, StoreMode
from tests.app.fake_clock import FakeClock

CALLER = Caller(token_id="tok_1", name="tester", scopes=frozenset({Scope.ADMIN}), stores=None)

ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""Where a test moves the clock of leases: PostgreSQL has its own."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with five files that bear the names of log files; nobody here reads them."""
    directory = tmp_path / "env"
    directory.mkdir()
    for number in range(5):
        (directory / f"{number:08x}.jdb").write_bytes(bytes(1000 + number))
    return directory


@pytest.fixture
def make_store(database: Database, clock: FakeClock) -> Callable[..., Store]:
    def make(directory: Path, store_id: str = "orders", **fields: object) -> Store:
        now = clock.now()
        store = Store(
            id=store_id,
            kind=StoreKind.JE,
            path=str(directory),
            mode=StoreMode.CLOSED,
            extinction_filter=ExtinctionFilterMode.NONE,
            created_at=now,
            updated_at=now,
            **fields,
        )
        with database.transaction() as db:
            db.add(store)
        return store

    return make


@pytest.fixture
def store(make_store: Callable[..., Store], directory: Path) -> Store:
    return make_store(directory)


@pytest.fixture
def environment(store: Store, directory: Path) -> Environment:
    return Environment(store.id, directory.resolve())
