"""The document "SymmetricDS Purge Process in 2.x", Outgoing Purge, sentence by sentence.

Each test runs an engine on a real database and holds what is left against the oracle (every column of every
row) and against keys written down by hand. The engine "literal" is the document's own statements.
"""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.symmetricds import (
    CUTOFF,
    VERSIONS,
    Place,
    Rows,
    Version,
    build,
    expected_after_purge,
    reference_database,
    removed_keys,
    snapshot,
    stranded_batches,
)
from tests.oracles.symmetricds_engines import Engine
from tests.oracles.symmetricds_rows import OLD, YOUNG, Reference, noted_rows, read_reference

NEWEST = 900


def database(place: Place, data: Any, events: Any, batches: Any) -> Rows:
    """Rows from notes, see noted_rows."""
    return noted_rows(place.version, data=data, events=events, batches=batches)


def purge(place: Place, rows: Rows, engine: Engine, **options: Any) -> tuple[dict[str, Any], Rows]:
    """Build, run, hold against the oracle; return the removed keys and what is left."""
    build(place, rows)
    before = snapshot(place)
    engine(place, CUTOFF, **options)
    after = snapshot(place)
    choices = {name: options[name] for name in ("strict", "stranded") if name in options}
    assert after == expected_after_purge(before, place.encode(CUTOFF), collation=place.collation, **choices)
    return removed_keys(place, before, after), after


def keys_of(removed: dict[str, Any]) -> tuple[list[int], list[tuple[int, int]], list[tuple[int, str]]]:
    """The removed (data_id), (data_id, batch_id), (batch_id, node_id)."""
    return (
        [key[0] for key in removed["data"]],
        [key[:2] for key in removed["data_event"]],
        removed["outgoing_batch"],
    )


def test_delivered_and_old_rows_are_deleted_from_all_three_tables(place: Place, engine: Engine) -> None:
    """The document: "Outgoing purge deletes captured and routed data from sym_data, sym_data_event, and
    sym_outgoing_batch that has already been delivered and is older than the purge.retention.minutes."
    """
    rows = database(
        place,
        {1: OLD, 2: OLD, 3: OLD, NEWEST: YOUNG},
        [(1, 10), (2, 11), (3, 12), (NEWEST, NEWEST)],
        [(10, "OK", OLD), (11, "NE", OLD), (12, "IG", OLD), (NEWEST, "NE", YOUNG)],
    )
    removed, _ = purge(place, rows, engine)
    assert keys_of(removed) == ([1, 3], [(1, 10), (3, 12)], [(10, "n1"), (12, "n1")])


def test_batches_of_nodes_not_enabled_are_marked_ok_at_any_age(place: Place, engine: Engine) -> None:
    """The document: "If a node is no longer enabled and there is data queued up for it, then those
    batches are marked as OK so the subsequent purge will clean up the captured data"
    """
    nodes = {10: "off", 11: "absent", 12: "-1", 13: "unset", 14: "n1", 15: "off", NEWEST: "off"}
    batches = [
        (b, "IG" if b == 15 else "ER", YOUNG if b in (13, NEWEST) else OLD, n) for b, n in nodes.items()
    ]
    data = dict.fromkeys([*range(1, 7), NEWEST], OLD)
    events = [*zip(range(1, 7), range(10, 16), strict=True), (NEWEST, NEWEST)]
    removed, after = purge(place, database(place, data, events, batches), engine)
    assert {row["batch_id"]: row["status"] for row in after["outgoing_batch"]} == {14: "ER", NEWEST: "OK"}
    assert keys_of(removed)[0] == [1, 2, 3, 4, 6]


def test_stranded_step_leaves_null_status_alone(place: Place, engine: Engine) -> None:
    """The document: "... and status != 'OK'": unknown for NULL."""
    rows = database(place, {1: OLD, NEWEST: OLD}, [(1, 10)], [(10, None, OLD, "off"), (11, "ER", OLD, "off")])
    _, after = purge(place, rows, engine)
    assert [row["status"] for row in after["outgoing_batch"]] == [None, "OK"]


def test_stranded_step_skipped_keeps_the_backlog_of_disabled_nodes(place: Place, engine: Engine) -> None:
    """Not the document's: the switch that the design puts in front of "First, stranded batches are
    updated."
    """
    rows = database(place, {1: OLD, NEWEST: OLD}, [(1, 10)], [(10, "ER", OLD, "off"), (NEWEST, "OK", OLD)])
    removed, after = purge(place, rows, engine, stranded="SKIP")
    assert keys_of(removed) == ([], [], [])
    assert after["outgoing_batch"][0]["status"] == "ER"


def test_newest_data_row_stays(place: Place, engine: Engine) -> None:
    """The document: "select min(data_id), max(data_id) from sym_data where data_id < (select
    max(data_id) from sym_data)"
    """
    rows = database(place, {1: OLD, 2: OLD}, [(1, 10), (2, 10)], [(10, "OK", OLD), (NEWEST, "OK", OLD)])
    removed, _ = purge(place, rows, engine)
    assert keys_of(removed)[0] == [1]


def test_data_row_captured_at_the_cutoff_or_without_time_stays(place: Place, engine: Engine) -> None:
    """The document: "... and create_time < :CUTOFF_TIME" """
    instant = timedelta(milliseconds=1)
    data = {
        1: CUTOFF - instant,
        2: CUTOFF,
        3: CUTOFF + instant,
        4: None,
        5: datetime(1999, 1, 1),
        NEWEST: OLD,
    }
    rows = database(place, data, [(key, 10) for key in data], [(10, "OK", YOUNG), (NEWEST, "OK", YOUNG)])
    removed, _ = purge(place, rows, engine)
    assert keys_of(removed)[0] == [1, 5]


def test_unrouted_data_row_stays(place: Place, engine: Engine) -> None:
    """The document: "... and data_id in (select e.data_id from sym_data_event e where e.data_id between
    :MIN and :MAX)"
    """
    rows = database(place, {1: OLD, 2: OLD, NEWEST: OLD}, [(2, 10)], [(10, "OK", OLD), (NEWEST, "OK", OLD)])
    removed, _ = purge(place, rows, engine)
    assert keys_of(removed)[0] == [2]


@pytest.mark.parametrize("status", ["NE", "QY", "SE", "LD", "ER", "RQ", "RT", "RS", "XX", "LS", "ZZ"])
def test_data_row_in_any_undelivered_batch_stays(tmp_path: Path, engine: Engine, status: str) -> None:
    """The document: "... and data_id not in (... e.batch_id in (select batch_id from sym_outgoing_batch
    where status not in ('OK','IG')))": one undelivered batch of several protects, however far away its
    id is.
    """
    place = Place(f"sqlite:///{tmp_path}/target.db")
    rows = database(
        place,
        {1: OLD, 2: OLD, NEWEST: OLD},
        [(1, 10), (1, 11), (1, 800), (2, 10)],
        [(10, "OK", OLD), (11, "IG", OLD), (800, status, YOUNG), (NEWEST, "OK", YOUNG)],
    )
    removed, _ = purge(place, rows, engine)
    assert keys_of(removed)[:2] == ([2], [(1, 10), (1, 11), (2, 10)])


def test_null_status_and_missing_batch_do_not_protect(place: Place, engine: Engine) -> None:
    """The document: "... status not in ('OK','IG')": unknown for NULL, and no row at all where the batch
    is missing.
    """
    rows = database(
        place,
        {1: OLD, 2: OLD, NEWEST: OLD},
        [(1, 11), (2, 12), (2, 10)],
        [(10, "OK", OLD), (11, None, OLD), (13, "OK", OLD), (NEWEST, "OK", YOUNG)],
    )
    removed, _ = purge(place, rows, engine)
    assert keys_of(removed) == ([1, 2], [(1, 11), (2, 10), (2, 12)], [(10, "n1"), (13, "n1")])


def test_strict_lets_null_status_protect_data_and_events(place: Place, engine: Engine) -> None:
    """Not the document's: facts, section 7, rule 6, "NULL status must protect"."""
    rows = database(
        place,
        {1: OLD, 2: OLD, NEWEST: OLD},
        [(1, 11), (2, 10)],
        [(10, "OK", OLD), (11, None, OLD), (13, "OK", OLD), (NEWEST, "OK", YOUNG)],
    )
    removed, _ = purge(place, rows, engine, strict=True)
    assert keys_of(removed) == ([2], [(2, 10)], [(10, "n1"), (13, "n1")])


def test_batch_range_ends_at_the_newest_old_batch_below_the_newest_of_all(
    place: Place, engine: Engine
) -> None:
    """The document: "We get the range of batch_ids to purge: select min(batch_id), max(batch_id) from
    sym_outgoing_batch where create_time < ? and status in ('OK','IG') and batch_id < (select
    max(batch_id) from sym_outgoing_batch)"
    """
    rows = database(
        place,
        {NEWEST: OLD},
        [(b, b) for b in (10, 11, 12, 13, 14, 15)],
        [
            (10, "OK", YOUNG),
            (11, "OK", OLD),
            (12, "OK", None),
            (13, "IG", OLD),
            (14, "OK", CUTOFF),
            (15, "OK", OLD),
        ],
    )
    removed, _ = purge(place, rows, engine)
    # 12 has no time, but lies inside; 15 is old, but the newest of all.
    assert keys_of(removed)[2] == [(11, "n1"), (12, "n1"), (13, "n1")]


def test_events_inside_the_range_go_unless_their_batch_is_undelivered(place: Place, engine: Engine) -> None:
    """The document: "delete from sym_data_event where batch_id not in (select batch_id from
    sym_outgoing_batch where batch_id between :MIN and :MAX and status not in ('OK','IG')) and batch_id
    between :MIN and :MAX"
    """
    rows = database(
        place,
        {NEWEST: OLD},
        [(1, 9), (1, 10), (1, 11), (1, 12), (1, 13), (1, 14), (1, 15)],
        [(10, "OK", OLD), (11, "ER", OLD), (13, "OK", YOUNG), (14, "OK", OLD), (NEWEST, "OK", OLD)],
    )
    removed, _ = purge(place, rows, engine)
    # 9 and 15 lie outside, 12 has no batch, 13 is younger than the cut-off.
    assert keys_of(removed)[1] == [(1, 10), (1, 12), (1, 13), (1, 14)]


def test_batch_that_still_has_an_event_stays(tmp_path: Path, engine: Engine) -> None:
    """The document: "delete from sym_outgoing_batch where status in ('OK','IG') and batch_id between
    :MIN and :MAX and batch_id not in (select batch_id from sym_data_event where batch_id between :MIN
    and :MAX)": the delivered half of a batch that two nodes share.
    """
    place = Place(f"sqlite:///{tmp_path}/target.db")
    rows = database(
        place,
        {1: OLD, 2: OLD, NEWEST: OLD},
        [(1, 10), (2, 11)],
        [
            (10, "OK", OLD, "n1"),
            (10, "ER", OLD, "n2"),
            (11, "OK", OLD, "n1"),
            (11, "OK", OLD, "n2"),
            (12, "OK", OLD, "n1"),
            (12, "ER", OLD, "n2"),
            (13, "IG", OLD, "n1"),
            (NEWEST, "OK", OLD, "n1"),
        ],
    )
    removed, _ = purge(place, rows, engine)
    # 12 has no event at all, so its delivered half goes and the other stays.
    batches = [(11, "n1"), (11, "n2"), (12, "n1"), (13, "n1")]
    assert keys_of(removed) == ([2], [(2, 11)], batches)


def test_young_row_of_a_purged_batch_loses_its_event_and_stays(place: Place, engine: Engine) -> None:
    """Facts, section 4, point 5: such a row is stranded, the algorithm can never remove it."""
    rows = database(place, {1: YOUNG, NEWEST: OLD}, [(1, 10)], [(10, "OK", OLD), (NEWEST, "OK", OLD)])
    removed, after = purge(place, rows, engine)
    assert keys_of(removed) == ([], [(1, 10)], [(10, "n1")])
    assert [row["data_id"] for row in after["data"]] == [1, NEWEST]


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 5000])
def test_any_chunk_size_leaves_the_same_rows(tmp_path: Path, engine: Engine, limit: int) -> None:
    """The document: "The following SQL is run multiple times for a sub-range that is specified by
    job.purge.max.num.data.to.delete.in.tx until the entire range is purged."
    """
    place = Place(f"sqlite:///{tmp_path}/target.db")
    ids = range(1, 40)
    rows = database(
        place,
        dict.fromkeys([*ids, NEWEST], OLD),
        [(key, batch) for key in ids for batch in (key, key + 40)],
        [*((key, "ER" if key % 5 == 0 else "OK", OLD) for key in range(1, 80)), (NEWEST, "OK", OLD)],
    )
    purge(place, rows, engine, data_limit=limit, events_limit=limit, batches_limit=limit)


@pytest.mark.parametrize("encoding", ["text", "text_ms", "text_s", "epoch_ms"])
def test_sqlite_time_as_text_or_number_leaves_the_same_rows(
    tmp_path: Path, engine: Engine, encoding: Any
) -> None:
    """Design, Purge: "SQLite: text or epoch milliseconds found out by type"."""
    place = Place(f"sqlite:///{tmp_path}/target.db", encoding=encoding)
    data = {1: OLD, 2: CUTOFF - timedelta(seconds=1), 3: CUTOFF, 4: YOUNG, 5: None, NEWEST: OLD}
    rows = database(
        place, data, [(key, key) for key in data], [(key, "OK", time) for key, time in data.items()]
    )
    removed, _ = purge(place, rows, engine)
    assert keys_of(removed)[0] == [1, 2]


def assert_removed_as_recorded(place: Place, engine: Engine, recorded: Reference) -> None:
    """Run on a filled database and compare with the recorded keys and with the oracle."""
    before = snapshot(place)
    assert sorted(stranded_batches(before)) == recorded.stranded
    engine(place, recorded.cutoff)
    after = snapshot(place)
    assert after == expected_after_purge(before, place.encode(recorded.cutoff))
    removed = keys_of(removed_keys(place, before, after))
    assert removed == (recorded.data, recorded.data_event, recorded.outgoing_batch)


@pytest.mark.parametrize("version", VERSIONS)
def test_reference_file_loses_exactly_the_recorded_keys(
    tmp_path: Path, engine: Engine, version: Version
) -> None:
    """The shared reference data: what the document's statements remove from these very files."""
    path = tmp_path / "reference.sqlite"
    shutil.copyfile(reference_database(version), path)
    assert_removed_as_recorded(Place(f"sqlite:///{path}", version), engine, read_reference(version))


def test_reference_rows_lose_exactly_the_recorded_keys(place: Place, engine: Engine) -> None:
    """The same rows in tables with the layout of SymmetricDS itself, on each engine."""
    recorded = read_reference(place.version)
    build(place, recorded.rows)
    assert_removed_as_recorded(place, engine, recorded)
