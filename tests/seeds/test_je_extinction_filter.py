"""The document "JE ExtinctionFilter": each test quotes the sentence that it proves.

"Ours" marks where the document speaks of JE's own process, and Lethe does the same beside it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lethe_client import ExtinctionBundle

from app.clock import SystemClock
from app.db import Database
from app.extinction.errors import ExtinctionFilterMissing, ExtinctionNotAvailable
from app.extinction.models import ExtinctionRequest
from app.extinction.queries import read_extinction
from app.extinction.records import insert_row, note_logged, note_progress
from app.extinction.rows import ExtinctionState
from app.extinction.service import check_target, commit_at_target, read_request
from app.extinction.sizing import hint_of
from app.extinction.verdicts import view_of
from app.kit.ids import new_id
from app.replication.replica.replicas import close_idle_replicas, find_expected, opened_replica, writer_turn
from app.settings import Settings
from app.stores.models import ExtinctionFilterMode, StoreKind
from app.stores.rows import Store
from lethe_samples.je_writer.packed import two_part_key
from migrations.upgrade import upgrade
from spark.erase.rule.extinct import primary_key
from spark.formats.extinction import Extinction, ExtinctionIndex, ExtinctionStatus
from spark.formats.replica import tables_of
from spark.replication.agreements import register_agreement
from spark.replication.records import local_schema
from spark.replication.replica.local_write import LocalRequest, write_group
from tests.app.extinction.kept_views import forget_views
from tests.spark.extinction.cases import World, naive_status, near, random_extinction, random_key

EXTINCT, MAYBE = ExtinctionStatus.EXTINCT, ExtinctionStatus.MAYBE_EXTINCT
NOT_EXTINCT = ExtinctionStatus.NOT_EXTINCT
CLOCK = SystemClock()
ENTRIES = 1_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path / 'lethe.db'}")
    upgrade(made)
    yield made
    forget_views()
    close_idle_replicas()
    made.close()


def _store(database: Database, **fields: Any) -> Store:
    now = CLOCK.now()
    store = Store(id="orders", created_at=now, updated_at=now, **fields)
    with database.transaction() as db:
        db.add(store)
    return store


@pytest.fixture
def replica(database: Database, settings: Settings, tmp_path: Path) -> Store:
    """A replica with entries `k000000` and on."""
    url = f"sqlite:///{tmp_path / 'replica.db'}"
    store = _store(database, kind=StoreKind.REPLICA, rid=1, url=url, table_prefix="replica_")
    keys = [b"k%06d" % number for number in range(ENTRIES)]
    columns = {"database": [b"orders"] * ENTRIES, "key": keys, "value": [b"v"] * ENTRIES}
    request = LocalRequest(pa.RecordBatch.from_pydict(columns, schema=local_schema()))
    with opened_replica(database, settings, store) as conn, writer_turn(conn):
        expected = find_expected(database, store.id)
        assert expected is not None
        write_group(conn, [request], now_s=int(CLOCK.now().timestamp()), expected=expected)
    return store


def _environment(database: Database, tmp_path: Path, mode: ExtinctionFilterMode) -> Store:
    return _store(database, kind=StoreKind.JE, path=str(tmp_path), extinction_filter=mode)


def _request(**fields: Any) -> ExtinctionRequest:
    body = {"databases": ["users"], "label": "l", "confirm_keys_never_reused": True}
    return ExtinctionRequest.model_validate(body | fields)


def test_filter_must_be_there_before_records_are_discarded(database: Database, tmp_path: Path) -> None:
    """The document: "A non-null extinction filter must be specified before calling
    Environment.discardExtinctRecords."
    """
    store = _environment(database, tmp_path, ExtinctionFilterMode.NONE)
    with pytest.raises(ExtinctionFilterMissing) as refused:
        read_request(store, _request(), new_id("ext"))
    detail = refused.value.detail
    places = [
        detail.index(step) for step in ("1. the application stops", "2. its Extinction", "3. only then")
    ]
    assert places == sorted(places)


def test_only_a_single_entry_is_logged(database: Database, settings: Settings, replica: Store) -> None:
    """The document: "Only a single entry is logged and replicated when calling
    Environment.discardExtinctRecords"
    """

    def changelog() -> list[tuple[str, int]]:
        with opened_replica(database, settings, replica) as conn:
            table = tables_of(conn).changelog
            found = conn.execute(f"select kind, count(*) from {table} group by kind order by kind")
        return [(str(kind), int(count)) for kind, count in found]

    assert changelog() == [("CHANGE", ENTRIES)]
    whole = Extinction(new_id("ext"), frozenset({b"orders"}), b"k", b"l")
    commit_at_target(database, settings, replica, whole, now=CLOCK.now())
    assert changelog() == [("CHANGE", ENTRIES), ("EXTINCTION", 1)]


def test_small_sets_are_not_recommended() -> None:
    """The document: "using record extinction is not recommended for discarding many, very small sets of
    records (for example, discarding millions of sets of 100 records or less)."
    """
    hint = hint_of(100)
    assert hint is not None
    assert "not recommended for discarding many, very small sets" in hint
    assert hint_of(101) is None


def test_call_names_a_range_a_filter_and_databases() -> None:
    """The document: "Each call to Environment.discardExtinctRecords specifies a key range, along with an
    optional filter, in a set of one ore more databases."
    """
    body = _request(
        databases=["b", "a"], start_key="Yg==", end_key="ZA==", filter={"not": {"prefix": "Y2M="}}
    )
    store = Store(id="s", kind=StoreKind.JE, extinction_filter=ExtinctionFilterMode.INSTALLED)
    found = read_request(store, body, "ext_1")
    verdicts = {key: found.covers(b"a", key) for key in (b"a", b"b", b"c", b"cc", b"cca", b"d")}
    assert verdicts == {b"a": False, b"b": True, b"c": True, b"cc": False, b"cca": False, b"d": False}
    assert found.covers(b"b", b"c")
    assert not found.covers(b"c", b"c")


def test_every_previous_call_stays_extinct_or_maybe() -> None:
    """The document: "must return either EXTINCT or MAYBE_EXTINCT for all record keys specified in all
    previous calls to Environment.discardExtinctRecords."
    """
    dice = random.Random(18)
    keys = [random_key(dice) for _ in range(20)]
    calls: list[Extinction] = []
    gone: set[tuple[bytes, bytes]] = set()
    for number in range(40):
        calls.append(random_extinction(dice, keys, number))
        world = World(tuple(calls), ())
        bundle, index = ExtinctionBundle.parse(world.bundle()), ExtinctionIndex(calls)
        places = [(name, key) for name in sorted(calls[-1].databases) for key in (*keys, near(dice, keys[0]))]
        gone |= {place for place in places if naive_status(world, *place) == "EXTINCT"}
        assert {index.status(*place) for place in gone} <= {EXTINCT}
        assert {bundle.status(*place) for place in gone} <= {"EXTINCT"}
    assert len(gone) > 20


def test_status_that_is_unknown_for_a_time_is_maybe(
    database: Database, settings: Settings, replica: Store
) -> None:
    """The document: "MAYBE_EXTINCT when Environment.discardExtinctRecords may have been called for a given
    key, but the status of the key is temporarily unknown to the application."
    """
    extinction = Extinction(new_id("ext"), frozenset({b"orders"}), b"a", b"b")
    with database.transaction() as db:
        insert_row(db, replica.id, extinction, state=ExtinctionState.RESERVED, now=CLOCK.now())
    index = view_of(database, settings, replica, starting=False, now=CLOCK.now()).index
    assert index.status_many(b"orders", [b"a1", b"k1"]) == [MAYBE, NOT_EXTINCT]
    commit_at_target(database, settings, replica, extinction, now=CLOCK.now())
    index = view_of(database, settings, replica, starting=False, now=CLOCK.now()).index
    assert index.status_many(b"orders", [b"a1", b"k1"]) == [EXTINCT, NOT_EXTINCT]


def test_startup_answers_maybe(database: Database, settings: Settings, replica: Store) -> None:
    """The document: "During startup when this metadata has not yet been read from the Database,
    ExtinctionFilter.ExtinctionStatus.MAYBE_EXTINCT should be returned."
    """
    view = view_of(database, settings, replica, starting=True, now=CLOCK.now())
    assert view.index.status(b"orders", b"k1") == MAYBE
    assert [each.code for each in view.bundle.maybe_because] == ["STARTING"]


def test_filter_may_always_say_maybe(database: Database, settings: Settings, tmp_path: Path) -> None:
    """The document: "it is possible to call Environment.discardExtinctRecords and implement a
    getExtinctionStatus method that always returns ExtinctionFilter.ExtinctionStatus.MAYBE_EXTINCT."
    """
    store = _environment(database, tmp_path, ExtinctionFilterMode.ALWAYS_MAYBE)
    extinction = read_request(store, _request(), new_id("ext"))
    with database.transaction() as db:
        row = insert_row(db, store.id, extinction, state=ExtinctionState.RESERVED, now=CLOCK.now())
        note_logged(db, row, now=CLOCK.now())
    view = view_of(database, settings, store, starting=False, now=CLOCK.now())
    assert view.index.status_many(b"users", [b"k"]) == [MAYBE]
    assert view.index.status_many(b"others", [b"k"]) == [MAYBE]


def test_extinction_is_active_until_its_tasks_are_complete(database: Database, tmp_path: Path) -> None:
    """The document: "isRecordExtinctionActive(long) may be useful for determining when related tasks are
    complete on a given node."
    """
    store = _environment(database, tmp_path, ExtinctionFilterMode.INSTALLED)
    extinction = read_request(store, _request(), new_id("ext"))
    active = []
    with database.transaction() as db:
        row = insert_row(db, store.id, extinction, state=ExtinctionState.RESERVED, now=CLOCK.now())
        active.append(read_extinction(row, store).active)
        note_logged(db, row, now=CLOCK.now())
        active.append(read_extinction(row, store).active)
        note_progress(db, row, job_id="job_1", records=5, byte_count=50)
        active.append(read_extinction(row, store).active)
        note_progress(db, row, job_id="job_1", records=500, byte_count=5_000, done_at=CLOCK.now())
        active.append(read_extinction(row, store).active)
    assert active == [True, True, True, False]


def test_extinction_waits_until_all_nodes_know_it(
    database: Database, settings: Settings, replica: Store
) -> None:
    """The document: "In a replicated environment, Environment.discardExtinctRecords may not be called until
    all nodes have been upgraded to JE 18.1 or later"; "isRecordExtinctionAvailable() method can be used for
    determining this in advance."
    """
    check_target(database, settings, replica, ["b3JkZXJz"])
    with opened_replica(database, settings, replica) as conn, writer_turn(conn):
        register_agreement(conn, "agr_unheard", now_s=1)
    with pytest.raises(ExtinctionNotAvailable) as refused:
        check_target(database, settings, replica, ["b3JkZXJz"])
    expected = {"role": "CONSUMER", "peer": "agr_unheard", "rid": None, "heard": False}
    assert refused.value.extra["lacking"] == [expected]


def test_key_of_a_database_with_duplicates_is_the_record_s_data() -> None:
    """The document: "key - is the primary key of the record. If dups is true, this is the record's data and
    is assumed to be a primary key."
    """
    assert primary_key(two_part_key(b"secondary key", b"primary key")) == b"primary key"
