"""Rows and control file in step: after crashes between the two, copies, damage, and ranges of nobody."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from app.db import Database
from app.protection.control import Environment, Quiet, sync, try_sync
from app.protection.errors import EnvironmentNotHere, EnvironmentUnusable, EpochAhead
from app.protection.reconciliation import keep_protections
from app.protection.service import (
    claim_environment,
    end_protection,
    get_protection,
    prove_no_writer,
    release_files,
)
from app.settings import Settings
from app.stores.errors import StoreKindWrong
from app.stores.models import StoreKind
from app.stores.rows import Store
from spark.targets.files.control_file import NAME, ControlFile
from spark.targets.files.control_record import ControlRecord, ProtectedRange
from tests.app.fake_clock import FakeClock
from tests.app.protection.conftest import ON_SQLITE
from tests.app.protection.test_service import protect


def record_of(directory: Path) -> ControlRecord:
    with ControlFile.open(directory, create=False) as control:
        return control.read()


def ranges_in(directory: Path) -> set[tuple[str, int, int | None]]:
    return {(held.id, held.first, held.last) for held in record_of(directory).ranges}


def end(database: Database, store: Store, protection_id: str) -> None:
    with database.transaction() as db:
        end_protection(db, get_protection(db, store.id, protection_id, lock=True), now=database.now(db))


def test_range_comes_after_its_row_and_goes_after_its_end(
    database: Database, store: Store, environment: Environment, clock: FakeClock
) -> None:
    held = protect(database, store, numbers=[1, 2, 4])
    sync(database, environment, clock=clock, raise_stop=True)
    assert ranges_in(environment.directory) == {(held.id, 1, 2), (held.id, 4, 4)}
    end(database, store, held.id)
    assert ranges_in(environment.directory) != set()
    sync(database, environment, clock=clock)
    assert ranges_in(environment.directory) == set()


def test_crash_between_row_and_range_is_mended_by_the_next_beat(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    held = protect(database, store, numbers=[2])
    keep_protections(database, settings, clock=clock)
    assert ranges_in(environment.directory) == {(held.id, 2, 2)}
    end(database, store, held.id)  # and the process dies before the range goes
    keep_protections(database, settings, clock=clock)
    assert ranges_in(environment.directory) == set()
    with database.reading() as db:
        assert not get_protection(db, store.id, held.id).control_due
    generation = record_of(environment.directory).generation
    keep_protections(database, settings, clock=clock)
    assert record_of(environment.directory).generation == generation, "nothing to do, and nothing was written"


@ON_SQLITE
def test_lease_runs_out_and_its_range_goes(
    database: Database,
    make_store: Callable[..., Store],
    directory: Path,
    settings: Settings,
    clock: FakeClock,
) -> None:
    store = make_store(directory)
    protect(database, store, numbers=[2], lease=timedelta(seconds=30))
    keep_protections(database, settings, clock=clock)
    assert len(ranges_in(directory)) == 1
    clock.advance(31)
    keep_protections(database, settings, clock=clock)
    assert ranges_in(directory) == set()


def test_range_of_nobody_stays_and_is_reported(
    database: Database, store: Store, environment: Environment, clock: FakeClock
) -> None:
    with ControlFile.open(environment.directory, create=True) as control:
        control.change(lambda record: record.protecting(ProtectedRange("prt_foreign", "BACKUP", 0, None)))
    with capture_logs() as logs:
        sync(database, environment, clock=clock)
    assert ranges_in(environment.directory) == {("prt_foreign", 0, None)}
    assert [entry["ids"] for entry in logs if entry["log_level"] == "warning"] == [["prt_foreign"]]


def test_range_of_another_store_on_the_same_directory_stays(
    database: Database,
    store: Store,
    make_store: Callable[..., Store],
    environment: Environment,
    clock: FakeClock,
) -> None:
    twin = make_store(Path(store.path or ""), "twin")
    held = protect(database, twin, numbers=[3])
    sync(database, Environment(twin.id, environment.directory), clock=clock)
    sync(database, environment, clock=clock)
    assert ranges_in(environment.directory) == {(held.id, 3, 3)}


def test_copied_environment_forgets_ranges_made_for_another_place(
    database: Database,
    store: Store,
    make_store: Callable[..., Store],
    environment: Environment,
    settings: Settings,
    tmp_path: Path,
    clock: FakeClock,
) -> None:
    protect(database, store, numbers=[3])
    sync(database, environment, clock=clock)
    copy = tmp_path / "copy"
    shutil.copytree(environment.directory, copy)
    twin = make_store(copy, "twin")
    claim_environment(database, settings, twin, epoch=4, clock=clock)
    assert ranges_in(copy) == set()
    assert record_of(copy).epoch == 4


def test_damaged_or_removed_control_file_is_rebuilt_from_rows_with_its_epoch(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    held = protect(database, store, numbers=[3])
    claim_environment(database, settings, store, epoch=7, clock=clock)
    path = environment.directory / NAME
    for damage in (lambda: path.write_bytes(b"\xff" * path.stat().st_size), path.unlink):
        damage()
        keep_protections(database, settings, clock=clock)
        assert ranges_in(environment.directory) == {(held.id, 3, 3)}
        assert record_of(environment.directory).epoch == 7


def test_epoch_that_is_ahead_refuses_the_claim(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    with ControlFile.open(environment.directory, create=True) as control:
        control.change(lambda record: record.claimed(9))
    for epoch in (8, 9):  # the same number is another's too: nobody here has noted a claim of it
        with pytest.raises(EpochAhead):
            claim_environment(database, settings, store, epoch=epoch, clock=clock)
    claim_environment(database, settings, store, epoch=10, clock=clock)
    assert record_of(environment.directory).epoch == 10


def test_quiet_is_proved_only_once_the_round_in_work_has_ended(
    database: Database, store: Store, environment: Environment
) -> None:
    held = protect(database, store, numbers=[1, 2])
    quiet = Quiet(database, environment, held.id, [1, 2])
    with ControlFile.open(environment.directory, create=True) as writer:
        stop = writer.stop_counter()
        assert writer.try_lock_file(2, exclusive=True)
        assert not quiet.step()
        assert quiet.busy == [2]
        assert writer.stop_counter() > stop, "the writer sees it before its next write"
        writer.unlock_file(2)
        assert quiet.step()
        assert quiet.was_busy
        assert [row.id for row in writer.read().covering(2)] == [held.id]


def test_range_lost_while_waiting_is_written_again_and_all_files_are_asked_again(
    database: Database, store: Store, environment: Environment
) -> None:
    held = protect(database, store, numbers=[1, 2])
    quiet = Quiet(database, environment, held.id, [1, 2])
    with ControlFile.open(environment.directory, create=True) as writer:
        assert writer.try_lock_file(2, exclusive=True)
        assert not quiet.step()
        (environment.directory / NAME).unlink()
        assert not quiet.step()
        assert quiet.busy == [1, 2]
    assert quiet.step()
    assert ranges_in(environment.directory) == {(held.id, 1, 2)}


def test_repeated_proof_raises_stop_although_the_range_stands(
    database: Database, store: Store, environment: Environment
) -> None:
    held = protect(database, store, numbers=[1])
    assert Quiet(database, environment, held.id, [1]).step()
    stop = record_of(environment.directory).stop
    assert Quiet(database, environment, held.id, [1]).step()
    assert record_of(environment.directory).stop > stop


def test_control_file_held_by_somebody_is_an_answer_not_a_wait(
    database: Database, store: Store, environment: Environment
) -> None:
    held = protect(database, store, numbers=[1])
    quiet = Quiet(database, environment, held.id, [1])
    with ControlFile.open(environment.directory, create=True) as other:

        def edit(record: ControlRecord) -> ControlRecord:
            assert try_sync(database, environment) is None
            assert not quiet.step()
            return record

        other.change(edit)
    assert quiet.step()


def test_no_writer_is_proved_only_when_every_byte_was_had(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    with ControlFile.open(environment.directory, create=True) as writer:
        assert writer.try_lock_file(4, exclusive=True)
        assert not prove_no_writer(database, settings, store, epoch=3, deadline_s=2, clock=clock)
        writer.unlock_file(4)
        assert prove_no_writer(database, settings, store, epoch=5, deadline_s=2, clock=clock)
        assert writer.read().epoch == 5


def test_released_file_leaves_the_control_file(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    held = protect(database, store, numbers=[1, 2, 3])
    sync(database, environment, clock=clock)
    with database.transaction() as db:
        release_files(db, get_protection(db, store.id, held.id), [2], now=database.now(db))
    keep_protections(database, settings, clock=clock)
    assert ranges_in(environment.directory) == {(held.id, 1, 1), (held.id, 3, 3)}


def test_stores_that_this_process_cannot_work_on_are_refused_by_name(
    database: Database,
    make_store: Callable[..., Store],
    directory: Path,
    settings: Settings,
    tmp_path: Path,
    clock: FakeClock,
) -> None:
    away = make_store(tmp_path / "away", "away")
    with pytest.raises(EnvironmentNotHere, match="is not there"):
        claim_environment(database, settings, away, epoch=1, clock=clock)
    elsewhere = make_store(directory, "elsewhere", runs_on=["zone-b"])
    with pytest.raises(EnvironmentNotHere, match="zone-b"):
        claim_environment(database, settings, elsewhere, epoch=1, clock=clock)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(EnvironmentUnusable):
        claim_environment(database, settings, make_store(empty, "empty"), epoch=1, clock=clock)
    other = Store(id="shop", kind=StoreKind.SYMMETRICDS, created_at=clock.now(), updated_at=clock.now())
    with pytest.raises(StoreKindWrong):
        claim_environment(database, settings, other, epoch=1, clock=clock)
