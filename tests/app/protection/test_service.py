"""Protected sets as rows: they shrink, run out, and name who holds a file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from app.db import Database
from app.protection.errors import NotPartOfProtection, ProtectionEnded, ProtectionExpired, TooManyProtections
from app.protection.queries import ACTIVE_MAX
from app.protection.rows import Protection, ProtectionKind, ProtectionState
from app.protection.service import (
    NewProtection,
    active_protections,
    create_protection,
    digest_if_current,
    digests_of,
    end_protection,
    expire_protections,
    get_protection,
    invalidate_digest,
    note_digest,
    protected_files,
    release_files,
    renew_protection,
)
from app.stores.rows import Store
from tests.app.protection.conftest import CALLER, ON_SQLITE

LEASE = timedelta(minutes=10)


def protect(database: Database, store: Store, *, lease: timedelta = LEASE, **what: object) -> Protection:
    new = NewProtection(kind=ProtectionKind.SCAN, name="test", lease=lease, **what)
    with database.transaction() as db:
        return create_protection(db, store.id, new, caller=CALLER, now=database.now(db))


def test_files_of_a_set_are_protected_until_it_ends(database: Database, store: Store) -> None:
    held = protect(database, store, numbers=[3, 1])
    with database.transaction() as db:
        now = database.now(db)
        assert {n: row.id for n, row in protected_files(db, store.id, range(5), now=now).items()} == {
            1: held.id,
            3: held.id,
        }
        end_protection(db, get_protection(db, store.id, held.id), now=now)
        assert protected_files(db, store.id, range(5), now=now) == {}


def test_set_with_an_open_end_covers_files_to_come(database: Database, store: Store) -> None:
    protect(database, store, ranges=[(3, None)])
    with database.reading() as db:
        assert sorted(protected_files(db, store.id, [2, 3, 4, 999], now=database.now(db))) == [3, 4, 999]


def test_oldest_protection_of_a_file_is_named(database: Database, store: Store) -> None:
    first = protect(database, store, numbers=[1])
    second = protect(database, store, numbers=[1, 2])
    with database.reading() as db:
        found = protected_files(db, store.id, [1, 2], now=database.now(db))
    assert {number: row.id for number, row in found.items()} == {1: first.id, 2: second.id}


def test_files_that_are_given_back_do_not_come_back(database: Database, store: Store) -> None:
    held = protect(database, store, numbers=[1, 2, 3])
    with database.transaction() as db:
        now = database.now(db)
        row = release_files(db, get_protection(db, store.id, held.id), [2, 2], now=now)
        assert (row.files, row.ranges, row.control_due) == ([1, 3], [[1, 1], [3, 3]], True)
        row = release_files(db, row, [2], now=now)
        assert row.files == [1, 3]
        assert sorted(protected_files(db, store.id, range(5), now=now)) == [1, 3]


def test_range_gives_back_single_files(database: Database, store: Store) -> None:
    held = protect(database, store, ranges=[(0, None)])
    with database.transaction() as db:
        now = database.now(db)
        row = release_files(db, get_protection(db, store.id, held.id), [0, 4], now=now)
        assert row.ranges == [[1, 3], [5, None]]
        with pytest.raises(NotPartOfProtection, match=r"00000004\.jdb"):
            release_files(db, row, [4], now=now)


@ON_SQLITE
def test_protection_past_its_lease_holds_nothing_and_cannot_be_renewed(
    database: Database, make_store: Callable[..., Store], directory: Path, clock
) -> None:
    store = make_store(directory)
    held = protect(database, store, numbers=[1], lease=timedelta(seconds=30))
    clock.advance(29)
    with database.transaction() as db:
        row = renew_protection(
            db, get_protection(db, store.id, held.id), lease=timedelta(seconds=60), now=clock.now()
        )
    assert row.lease_expires_at == clock.now() + timedelta(seconds=60)
    clock.advance(60)
    with database.transaction() as db:
        assert active_protections(db, store.id, now=clock.now()) == []
        with pytest.raises(ProtectionExpired):
            renew_protection(db, get_protection(db, store.id, held.id), lease=None, now=clock.now())
        assert [each.id for each in expire_protections(db, now=clock.now())] == [held.id]
        assert expire_protections(db, now=clock.now()) == []
        row = get_protection(db, store.id, held.id)
        assert (row.state, row.control_due) == (ProtectionState.EXPIRED, True)


def test_ended_protection_is_neither_renewed_nor_released(database: Database, store: Store) -> None:
    held = protect(database, store, numbers=[1])
    with database.transaction() as db:
        now = database.now(db)
        row = end_protection(db, get_protection(db, store.id, held.id), now=now)
        ended_at = row.ended_at
        end_protection(db, row, now=now + timedelta(seconds=1))
        assert row.ended_at == ended_at
        with pytest.raises(ProtectionEnded):
            renew_protection(db, row, lease=None, now=now)
        with pytest.raises(ProtectionEnded):
            release_files(db, row, [1], now=now)


@ON_SQLITE
def test_more_protections_than_a_control_file_holds_are_refused(
    database: Database, make_store: Callable[..., Store], directory: Path
) -> None:
    store = make_store(directory)
    for _ in range(ACTIVE_MAX):
        protect(database, store, numbers=[1])
    with pytest.raises(TooManyProtections):
        protect(database, store, numbers=[1])


def test_digest_holds_until_the_file_is_changed(database: Database, store: Store) -> None:
    with database.transaction() as db:
        now = database.now(db)
        note_digest(db, store.id, 3, sha256="ab" * 32, size=10, mtime_ns=5, now=now)
    with database.transaction() as db:
        row = digests_of(db, store.id)[3]
        assert digest_if_current(row, size=10, mtime_ns=5) == "ab" * 32
        assert digest_if_current(row, size=10, mtime_ns=6) is None
        assert row.generation == 0
        invalidate_digest(db, store.id, 3, now=now)
        invalidate_digest(db, store.id, 4, now=now)
    with database.reading() as db:
        found = digests_of(db, store.id)
    assert [(row.sha256, row.generation) for row in found.values()] == [(None, 1), (None, 1)]
