"""The document "SymmetricDS Purge Process in 2.x", Incoming Purge and Data Gap Purge, sentence by sentence.

Each test asks the service for a purge over HTTP and holds every row of every table against the oracle, and
what is left against keys written down by hand.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.ground import in_the_past
from tests.oracles.symmetricds import CUTOFF, Place, Rows, build, create, load, snapshot
from tests.oracles.symmetricds_incoming import noted_purge
from tests.oracles.symmetricds_rows import OLD, PURGED_UP_TO, YOUNG, noted_gaps, noted_incoming, noted_rows
from tests.seeds.purging import TABLES, Purging, assert_purged, clock_now, up_to_cutoff

INSTANT = timedelta(seconds=1)  # a DATETIME of MariaDB knows no shorter one

EVERY_SECOND = {f"job.purge.{job}.cron": "* * * * * *" for job in ("outgoing", "incoming", "datagaps")}


def purge(purging: Purging, place: Place, kind: str, rows: Rows, **fields: Any) -> Rows:
    """Build, purge up to CUTOFF, hold against the oracle; returns what is left."""
    parameters = fields.pop("parameters", {})
    build(place, in_the_past(rows))
    before = snapshot(place)
    store = purging.store(place, parameters=parameters)
    job = purging.purge(store, kind, **up_to_cutoff(place), **fields)
    assert_purged(place, kind, before, job)
    return snapshot(place)


def batches_of(rows: Rows) -> list[tuple[int, str]]:
    """Keys of the incoming batches."""
    return [(row["batch_id"], row["node_id"]) for row in rows["incoming_batch"]]


def starts_of(rows: Rows) -> list[int]:
    """Keys of the gaps, all different in their starts."""
    return [row["start_id"] for row in rows["data_gap"]]


def test_each_of_the_three_purges_is_a_job_that_leaves_the_tables_of_the_others(
    purging: Purging, place: Place
) -> None:
    """The document: "There are three purge jobs that run in the background: Outgoing Purge, Incoming Purge,
    Data Gap Purge". Every row in the gap is routed: one with others stays.
    """
    events = [(1, 1), (2, 1)]
    rows = {
        **noted_rows(place.version, data={1: OLD, 2: OLD}, events=events, batches=[(1, "OK", OLD)]),
        **noted_incoming([(1, "n1", "OK", OLD)]),
        **noted_gaps(place.version, {1: (True, OLD)}),
    }
    build(place, in_the_past(rows))
    store = purging.store(place)
    for kind, tables in reversed(TABLES.items()):
        before = snapshot(place)
        job = purging.purge(store, kind, **up_to_cutoff(place))
        assert_purged(place, kind, before, job)
        after = snapshot(place)
        assert {table for table in after if after[table] != before[table]} <= set(tables)
        assert after[tables[0]] != before[tables[0]]


def test_incoming_batches_older_than_the_retention_are_deleted(purging: Purging, place: Place) -> None:
    """The document: "Incoming purge deletes from sym_incoming_batch that is older than the
    purge.retention.minutes."
    """
    create(place)
    now, minute = clock_now(), timedelta(minutes=1)
    load(
        place,
        noted_incoming([(1, "n1", "OK", now - 62 * minute), (2, "n1", "OK", now - 58 * minute)]),
    )
    store = purging.store(place, parameters={"purge.retention.minutes": 60})
    assert purging.purge(store, "INCOMING")["result"]["removed"] == {"incoming_batch": 1}
    assert batches_of(snapshot(place)) == [(2, "n1")]


def test_range_of_a_node_ends_at_its_own_oldest_and_newest_old_batch(purging: Purging, place: Place) -> None:
    """The document: "First, a range is retrieved: select node_id, min(batch_id), max(batch_id) from
    sym_incoming_batch where create_time < ? and status = 'OK' group by node_id"
    """
    n1 = [
        (10, "n1", "OK", YOUNG),  # below the range
        (11, "n1", "OK", OLD),
        (12, "n1", "OK", YOUNG),  # younger than the cut-off, inside the range: goes
        (13, "n1", "OK", None),  # without a time, inside the range: goes
        (14, "n1", "OK", OLD),
        (15, "n1", "OK", CUTOFF),  # above the range
        (16, "n1", "ER", OLD),  # does not widen it
        (17, "n1", "OK", None),
    ]
    n2 = [(11, "n2", "OK", YOUNG), (12, "n2", "OK", YOUNG), (90, "n2", "OK", CUTOFF - INSTANT)]
    n3 = [(12, "n3", "OK", YOUNG), (13, "n3", None, OLD)]
    left = purge(purging, place, "INCOMING", noted_incoming([*n1, *n2, *n3]))
    assert batches_of(left) == [
        (10, "n1"),
        (11, "n2"),
        (12, "n2"),
        (12, "n3"),
        (13, "n3"),
        (15, "n1"),
        (16, "n1"),
        (17, "n1"),
    ]


@pytest.mark.parametrize("size", [1, 7])
def test_any_sub_range_leaves_the_same_batches(purging: Purging, place: Place, size: int) -> None:
    """The document: "The following SQL is run multiple times for a sub-range that is specified by
    job.purge.max.num.batches.to.delete.in.tx for each node range until each is purged."
    """
    batches: list[Any] = [
        (number * step, node, "ER" if number % 5 == 0 else "OK", OLD if number < 20 else YOUNG)
        for node, step in (("n1", 1), ("n2", 400), ("N3", 1))
        for number in range(1, 24)
    ]
    parameters = {"job.purge.max.num.batches.to.delete.in.tx": size}
    left = purge(purging, place, "INCOMING", noted_incoming(batches), parameters=parameters)
    assert len(left["incoming_batch"]) == 3 * (3 + 4)


def test_incoming_batches_that_are_not_ok_stay(purging: Purging, place: Place) -> None:
    """The document: "delete from sym_incoming_batch where batch_id between ? and ? and node_id = ? and
    status = 'OK'": ignored batches stay too, unlike those of the outgoing purge.
    """
    others = ["IG", "ER", "LD", "NE", "SK", "XX", "RS", None]
    rows = noted_incoming(
        [(1, "n1", "OK", OLD)]
        + [(number, "n1", status, OLD) for number, status in enumerate(others, 2)]
        + [(99, "n1", "OK", OLD)]
    )
    left = purge(purging, place, "INCOMING", rows)
    assert [row["status"] for row in left["incoming_batch"]] == others


def test_names_of_nodes_are_compared_as_the_database_compares_them(purging: Purging, place: Place) -> None:
    """The document: "... node_id = ?": on MariaDB 'a' and 'A ' are one node with one range, elsewhere two."""
    rows = noted_incoming(
        [(1, "a", "OK", OLD), (2, "A ", "OK", YOUNG), (3, "a", "OK", OLD), (4, "o'n \"%s", "OK", OLD)]
    )
    left = purge(purging, place, "INCOMING", rows)
    assert batches_of(left) == ([] if place.dialect == "mariadb" else [(2, "A ")])


def test_data_gaps_older_than_their_own_retention_are_deleted(purging: Purging, place: Place) -> None:
    """The document: "The data gap purge deletes from sym_data_gap where data is older than
    routing.data.reader.type.gap.retention.period.minutes."
    """
    create(place)
    now, minute = clock_now(), timedelta(minutes=1)
    gaps = {10: (True, now - 62 * minute), 20: (True, now - 58 * minute)}
    load(place, noted_gaps(place.version, gaps))
    parameters = {
        "routing.data.reader.type.gap.retention.period.minutes": 60,
        "purge.retention.minutes": 10,  # is not theirs
    }
    store = purging.store(place, parameters=parameters)
    assert purging.purge(store, "DATA_GAP")["result"]["removed"] == {"data_gap": 1}
    assert starts_of(snapshot(place)) == [20]


def test_live_gaps_and_gaps_of_the_cutoff_or_younger_stay(purging: Purging, place: Place) -> None:
    """The document: "delete from sym_data_gap where last_update_time < ? and status != 'GP'"; since 3.9 there
    is is_expired instead, and create_time alone (facts, sections 1 and 5; design, Purge).
    """
    gaps = {
        10: (True, OLD),
        20: (True, CUTOFF - INSTANT),
        30: (True, CUTOFF),
        40: (True, YOUNG),
        50: (False, OLD),
        60: (False, YOUNG),
        71: (True, OLD),
        82: (True, OLD),
    }
    left = purge(purging, place, "DATA_GAP", noted_gaps(place.version, gaps))
    assert starts_of(left) == [30, 40, 50, 60]


@pytest.mark.parametrize("loose", [True])
def test_gap_without_a_state_stays(purging: Purging, place: Place, loose: bool) -> None:
    """The document: "... and status != 'GP'": unknown for NULL; so is is_expired = 1."""
    gap = {"end_id": 99, "create_time": OLD}
    states = (None, 0, 1) if place.version == "3.x" else (None, "GP", "OK")
    column = "is_expired" if place.version == "3.x" else "status"
    times = {"last_update_time": OLD} if place.version == "2.x" else {}
    create(place, loose=loose)
    gaps = [{"start_id": start, **gap, **times, column: state} for start, state in enumerate(states, 1)]
    noted = {"context": noted_purge(PURGED_UP_TO)} if place.version == "3.x" else {}
    load(place, in_the_past({"data_gap": gaps, **noted}))
    before = snapshot(place)
    job = purging.purge(purging.store(place), "DATA_GAP", **up_to_cutoff(place))
    assert_purged(place, "DATA_GAP", before, job)
    assert starts_of(snapshot(place)) == [1, 2]


def test_gaps_that_share_their_start_are_told_apart(purging: Purging, place: Place) -> None:
    """Facts, section 1: the key of sym_data_gap is (start_id, end_id)."""
    noted = noted_gaps(place.version, dict.fromkeys((10, 20, 30), (True, OLD)))
    made = noted["data_gap"]
    live = noted_gaps(place.version, dict.fromkeys((10, 20, 30), (False, OLD)))["data_gap"]
    more = [{**row, "end_id": end} for row in made for end in (row["start_id"], row["start_id"] + 50_000)]
    kept = [{**row, "end_id": row["end_id"] + 1} for row in live]
    left = purge(purging, place, "DATA_GAP", {**noted, "data_gap": [*made, *more, *kept]}, max_rows_in_tx=1)
    assert [(row["start_id"], row["end_id"]) for row in left["data_gap"]] == [(10, 15), (20, 25), (30, 35)]


@pytest.mark.parametrize("kind", ["INCOMING", "DATA_GAP"])
def test_empty_tables_are_purged_to_nothing(purging: Purging, place: Place, kind: str) -> None:
    """An empty range: min and max are NULL, no statement is run."""
    left = purge(purging, place, kind, {})
    assert left[TABLES[kind][0]] == []


@pytest.mark.long  # for half a minute it only waits for the service's own rhythm
def test_start_purge_job_starts_the_jobs_by_itself(purging: Purging, tmp_path: Path) -> None:
    """The document: "The automatic startup of these jobs are all controlled by the same parameter:
    start.purge.job."; 3.8 split it (facts, section 3).
    """
    switched_on: dict[str, set[str]] = {
        "start.purge.job": {"OUTGOING", "INCOMING", "DATA_GAP"},
        "start.purge.outgoing.job": {"OUTGOING", "DATA_GAP"},
        "start.purge.incoming.job": {"INCOMING"},
        "": set(),
    }
    grounds = {}
    for switch in switched_on:
        place = Place(f"sqlite:///{tmp_path}/{switch or 'off'}.db", "2.x")
        build(place, _long_ago())
        store = purging.store(place, parameters=EVERY_SECOND | ({switch: True} if switch else {}))
        grounds[switch] = (place, store)
    for switch, (place, store) in grounds.items():
        kinds = switched_on[switch]
        begun = purging.purges(store, of_kinds=len(kinds))
        assert {job["params"]["kind"] for job in begun} == kinds
        assert {job["requested_by"] for job in begun} <= {"tick"}
        before = _long_ago()
        purged = {table for table, rows in snapshot(place).items() if len(rows) < len(before.get(table, []))}
        assert purged == {table for kind in kinds for table in TABLES[kind]}
        purging.suspend(store)


def _long_ago() -> Rows:
    """Rows of each purge that every retention has let go."""
    old = clock_now() - timedelta(days=30)
    batches = [(1, "OK", old), (2, "OK", old)]
    return {
        **noted_rows("2.x", data={1: old, 2: old}, events=[(1, 1)], batches=batches),
        **noted_incoming([(1, "n1", "OK", old)]),
        **noted_gaps("2.x", {1: (True, old)}),
    }
