"""Replicas under other hands: made anew beside writers, put back before an agreement, consumers gone back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from app.db import Database
from app.replication.agreements.service import register_missing
from app.replication.replica.replicas import (
    close_idle_replicas,
    compare_with_memory,
    note_own_max,
    opened_replica,
    remember,
    remember_incarnation,
)
from app.replication.rows import AgreementState
from app.replication.supplier import copying as supplier_copy
from app.settings import Settings
from app.stores.models import StoreCreate
from app.stores.rows import Store
from app.stores.service import create_store
from spark.formats.replica import tables_of
from spark.replication.agreements import acknowledge, floors, read_agreements, register_agreement, take_back
from spark.replication.records import ReplicaStatus, Snapshot, local_schema
from spark.replication.replica import replica as replica_module
from spark.replication.replica.local_write import LocalRequest, write_group
from spark.replication.replica.replica import Expected, find_replica, lock_replica, save_replica, snapshot
from spark.targets.connection import Connection
from spark.targets.errors import TargetLockTimeout
from tests.app.agreements import agreement_of
from tests.app.fake_clock import FakeClock
from tests.spark.replication.replica_tables import NOW_S, csn, make_tables, opened, postgresql_target


@pytest.fixture
def store(sqlite_database: Database, settings: Settings, clock: FakeClock, tmp_path: Path) -> Iterator[Store]:
    request = StoreCreate.model_validate(
        {"id": "r", "kind": "REPLICA", "rid": 1, "url": f"sqlite:///{tmp_path / 'r.db'}"}
    )
    with sqlite_database.transaction() as db:
        made = create_store(db, request, settings=settings, database=sqlite_database, now=clock.now())
    yield made
    close_idle_replicas()


def _write(database: Database, conn: Connection, clock: FakeClock, expected: Expected) -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"database": b"db", "key": b"key", "value": b"value"}], schema=local_schema()
    )
    now = clock.now()
    written = write_group(conn, [LocalRequest(batch)], now_s=int(now.timestamp()), expected=expected)
    with database.transaction() as db:
        note_own_max(db, "r", written.own_max, now=now)


def _make_anew(database: Database, conn: Connection) -> None:
    """As the release of a total initialisation, and a recovery, leave target and metadata."""
    with conn.transaction():
        row, _ = lock_replica(conn, tables_of(conn))
        save_replica(conn, tables_of(conn), replace(row, incarnation="inc_new"))
        own_max = replica_module.own_max_of(conn, tables_of(conn))
        remember_incarnation(database, "r", incarnation="inc_new", own_max=own_max)


def test_a_writer_whose_memory_is_older_than_an_initialisation_does_not_mark_the_replica(
    sqlite_database: Database, settings: Settings, store: Store, clock: FakeClock
) -> None:
    with opened_replica(sqlite_database, settings, store) as conn:
        _write(sqlite_database, conn, clock, remember(sqlite_database, conn, "r"))
        expected = remember(sqlite_database, conn, "r")
        _make_anew(sqlite_database, conn)
        _write(sqlite_database, conn, clock, expected)
        row = find_replica(conn)
        assert row is not None
        assert (row.status, row.incarnation) == (ReplicaStatus.ONLINE, "inc_new")


def test_a_first_use_that_meets_the_end_of_an_initialisation_does_not_mark_the_replica(
    sqlite_database: Database,
    settings: Settings,
    store: Store,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened_replica(sqlite_database, settings, store) as conn:
        _write(sqlite_database, conn, clock, remember(sqlite_database, conn, "r"))
        known = remember(sqlite_database, conn, "r")
        _make_anew(sqlite_database, conn)
        monkeypatch.setattr("app.replication.replica.replicas.remember", lambda *_: known)
        assert compare_with_memory(sqlite_database, conn, "r") is ReplicaStatus.ONLINE


def test_a_target_that_was_put_back_is_marked_all_the_same(
    sqlite_database: Database, settings: Settings, store: Store, clock: FakeClock
) -> None:
    with opened_replica(sqlite_database, settings, store) as conn:
        _write(sqlite_database, conn, clock, remember(sqlite_database, conn, "r"))
        with conn.transaction():
            conn.execute(f"delete from {tables_of(conn).ruv}")
        assert compare_with_memory(sqlite_database, conn, "r") is ReplicaStatus.RESTORED


def _agreed(database: Database, clock: FakeClock, agreement_id: str, state: AgreementState) -> None:
    now = clock.now()
    with database.transaction() as db:
        row = agreement_of("r", now, id=agreement_id, state=state, consumer_store=agreement_id)
        db.add(row)


def test_a_target_that_was_put_back_to_before_an_agreement_knows_it_again_before_it_is_trimmed(
    sqlite_database: Database, settings: Settings, store: Store, clock: FakeClock
) -> None:
    for agreement_id, state in (
        ("agr_a", AgreementState.REGISTERED),
        ("agr_b", AgreementState.REGISTERED),
        ("agr_c", AgreementState.REMOVED),
    ):
        _agreed(sqlite_database, clock, agreement_id, state)
    with opened_replica(sqlite_database, settings, store) as conn:
        register_agreement(conn, "agr_a", now_s=NOW_S)
        acknowledge(conn, "agr_a", {1: csn(5, 1)})
        assert register_missing(sqlite_database, conn, "r") == ["agr_b"]
        floor = floors(conn, now_s=NOW_S).of(1)
        assert floor is not None
        assert (floor.upto, floor.held_by) == (None, ("agr_b",))
        assert register_missing(sqlite_database, conn, "r") == []


def test_a_removal_that_died_before_the_target_heard_of_it_holds_no_floor_for_ever(
    sqlite_database: Database, settings: Settings, store: Store, clock: FakeClock
) -> None:
    """The metadata had answered the DELETE; that answer was repeated, and the target told nothing."""
    _agreed(sqlite_database, clock, "agr_a", AgreementState.REMOVED)
    with opened_replica(sqlite_database, settings, store) as conn:
        register_agreement(conn, "agr_a", now_s=NOW_S)
        register_agreement(conn, "agr_unknown", now_s=NOW_S)  # of newer metadata, perhaps
        assert register_missing(sqlite_database, conn, "r") == []
        removed = {each.agreement_id: each.removed_at_s for each in read_agreements(conn)}
        assert removed["agr_a"] is not None
        assert removed["agr_unknown"] is None
        assert register_missing(sqlite_database, conn, "r") == []
        again = {each.agreement_id: each.removed_at_s for each in read_agreements(conn)}
        assert again == removed


def test_a_consumer_that_was_put_back_takes_its_acknowledgement_back(
    sqlite_database: Database, settings: Settings, store: Store
) -> None:
    with opened_replica(sqlite_database, settings, store) as conn:
        for agreement_id in ("agr_a", "agr_b"):
            register_agreement(conn, agreement_id, now_s=NOW_S)
            acknowledge(conn, agreement_id, {1: csn(5, 1), 2: csn(9, 2), 3: csn(4, 3)})
        assert take_back(conn, "agr_a", {1: csn(7, 1), 2: csn(8, 2)}) == [2, 3]
        first, second = read_agreements(conn)
        assert first.acknowledged == {1: csn(5, 1), 2: csn(8, 2)}
        assert second.acknowledged == {1: csn(5, 1), 2: csn(9, 2), 3: csn(4, 3)}
        assert take_back(conn, "agr_a", {1: csn(7, 1), 2: csn(8, 2)}) == []


@pytest.mark.postgresql
def test_a_page_of_a_copy_is_not_emptied_between_its_vectors_and_its_entries(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = postgresql_target(postgresql_url)
    refused: list[TargetLockTimeout] = []
    with opened(target) as conn, opened(target) as other:
        make_tables(conn)
        with conn.transaction():
            conn.execute(
                f"insert into {tables_of(conn).generator}"
                " (one, sampled_s, local_offset_s, remote_offset_s, sequence) values (1, 0, 0, 0, 0)"
            )
            conn.execute(
                f"insert into {tables_of(conn).entries} (database, key, value, csn, is_tombstone)"
                " values ('db', 'key', 'value', :csn, false)",
                {"csn": str(csn(1, 1))},
            )

        def seen_and_emptied(reader: Connection) -> Snapshot:
            seen = snapshot(reader)
            try:
                with other.transaction():
                    other.execute(f"truncate {tables_of(other).entries}")
            except TargetLockTimeout as error:
                refused.append(error)
            return seen

        monkeypatch.setattr(supplier_copy, "snapshot", seen_and_emptied)
        pages = supplier_copy._batches(
            conn,
            generation=csn(0, 1),
            begun={},
            after=None,
            rows_max=10,
            bytes_max=100_000,
            bound=supplier_copy.PageBound(None),
        )
        assert [batch.rows for batch in pages] == [1]
    assert refused
