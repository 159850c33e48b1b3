"""An environment that another metadata has worked on: who meets that tells it, whatever he came for."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.db import Database
from app.erase.recover import recover_environment
from app.errors import MetadataBusy, MetadataUnavailable
from app.jobs.running.claims import raise_epoch
from app.outbox.facts import Fact
from app.protection.control import Environment, sync
from app.protection.errors import EpochAhead
from app.protection.service import claim_environment, prove_no_writer
from app.settings import Settings
from app.stores.rows import Store
from spark.targets.files.control_file import ControlFile
from tests.app.fake_clock import FakeClock
from tests.app.hooks.outboxes import events_of, make_hook
from tests.app.protection.test_control import ranges_in
from tests.app.protection.test_service import protect


def claimed_by_others(directory: Path, epoch: int) -> None:
    with ControlFile.open(directory, create=True) as control:
        control.change(lambda record: record.claimed(epoch))


def told(database: Database) -> list[str | None]:
    return [event.store for event in events_of(database) if event.type == Fact.EPOCH_AHEAD]


def test_protection_of_an_environment_that_is_ahead_holds_and_is_told_once(
    database: Database, store: Store, environment: Environment, clock: FakeClock
) -> None:
    # The metadata is an old copy: backups begin and hold, and nobody learned that cycles will fail.
    make_hook(database)
    claimed_by_others(environment.directory, 9)
    held = protect(database, store, numbers=[1])
    for _ in range(3):
        sync(database, environment, clock=clock, raise_stop=True)
    assert ranges_in(environment.directory) == {(held.id, 1, 1)}
    assert told(database) == [store.id]


def test_environment_that_is_ours_is_not_told(
    database: Database, store: Store, environment: Environment, clock: FakeClock
) -> None:
    make_hook(database)
    with database.transaction() as db:
        raise_epoch(db, 9)
    claimed_by_others(environment.directory, 9)
    sync(database, environment, clock=clock)
    assert told(database) == []


def test_proof_of_silence_that_meets_a_greater_epoch_tells_it(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    # The job waits in ABORTING, and fails by nothing that would tell.
    make_hook(database)
    claimed_by_others(environment.directory, 9)
    for _ in range(2):
        with pytest.raises(EpochAhead):
            prove_no_writer(database, settings, store, epoch=8, deadline_s=1.0, clock=clock)
    assert told(database) == [store.id]


def test_store_that_was_recovered_is_told_again(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    make_hook(database)
    for epoch in (9, 90):
        claimed_by_others(environment.directory, epoch)
        sync(database, environment, clock=clock)
        recover_environment(database, settings, store, "ann")
        sync(database, environment, clock=clock)
    assert told(database) == [store.id, store.id]


def test_what_was_told_is_looked_for_and_not_written_again(
    database: Database, store: Store, environment: Environment, clock: FakeClock
) -> None:
    """Each step of a proof synchronises: it wrote each time, where nobody was to be told too."""
    claimed_by_others(environment.directory, 9)
    before = database.news()
    sync(database, environment, clock=clock)
    assert database.news() == before
    make_hook(database)
    sync(database, environment, clock=clock)
    before = database.news()
    sync(database, environment, clock=clock)
    assert (database.news(), told(database)) == (before, [store.id])


@pytest.mark.parametrize("error", [MetadataBusy(), MetadataUnavailable("connection refused")])
def test_metadata_that_goes_just_then_fails_no_protection(
    sqlite_database: Database,
    store: Store,
    environment: Environment,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    make_hook(sqlite_database)
    claimed_by_others(environment.directory, 9)

    def away(_self: Database, **_more: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Database, "transaction", away)
        assert sync(sqlite_database, environment, clock=clock).epoch == 9
    assert told(sqlite_database) == []
    sync(sqlite_database, environment, clock=clock)
    assert told(sqlite_database) == [store.id]


def test_epoch_that_another_metadata_has_given_too_is_not_ours(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    # Two Lethes, each new, had one directory: the first job of each had token 1, and no writer of either
    # was stopped by the other.
    claimed_by_others(environment.directory, 1)
    with pytest.raises(EpochAhead):
        claim_environment(database, settings, store, epoch=1, clock=clock)
    claim_environment(database, settings, store, epoch=2, clock=clock)
    claim_environment(database, settings, store, epoch=2, clock=clock)
