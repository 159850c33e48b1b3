"""The look at what waits counts what a plain count of all rows does, on random databases."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spark.formats.symmetricds import TimeEncoding
from spark.purge.reading import backlog
from spark.purge.reading.backlog import BacklogReading, NodeSeen, read_backlog
from spark.purge.reading.catalog import layout_of, read_catalog
from spark.purge.reading.known import Known, read_known
from spark.targets.connection import connect
from tests.oracles.symmetricds import (
    CUTOFF,
    VERSIONS,
    Place,
    Rows,
    Version,
    create,
    empty,
    load,
    random_database,
    session,
)
from tests.spark.purge.outgoing_run import target_of

CASES = pytest.mark.parametrize("cases", [12, pytest.param(350, marks=pytest.mark.long)])
CHANNELS = ("sales", "items", "config", None)


def look(place: Place, **bounds: int) -> BacklogReading:
    encoding: TimeEncoding = "text" if place.dialect == "sqlite" else "timestamp"
    with connect(target_of(place), application_name="backlog", read_only=True) as conn:
        layout = layout_of(read_catalog(conn))
        return read_backlog(conn, layout, time_zone="UTC", encoding=encoding, **bounds)


def with_channels(rng: Random, rows: Rows) -> Rows:
    """Channels and error flags, of which the purges know nothing."""
    for batch in rows["outgoing_batch"]:
        batch["channel_id"] = rng.choice(CHANNELS)
        batch["error_flag"] = int(batch["status"] == "ER" or rng.random() < 0.1)
    return rows


def counted(rows: Rows) -> dict[tuple[str, str], dict[str, Any]]:
    """By the definition: every batch that is neither OK nor IG, and has a status; every event of its id."""
    events: dict[int, int] = defaultdict(int)
    for event in rows["data_event"]:
        events[event["batch_id"]] += 1
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for batch in sorted(rows["outgoing_batch"], key=lambda row: int(row["batch_id"])):
        if batch["status"] is None or batch["status"].strip() in ("OK", "IG"):
            continue
        pair = (batch["node_id"] or "", batch["channel_id"] or "")
        one = found.setdefault(
            pair,
            {
                "batches": 0,
                "errors": 0,
                "rows": 0,
                "oldest_batch": batch["batch_id"],
                "times": [],
                "status": batch["status"],
            },
        )
        one["batches"] += 1
        one["errors"] += int(batch["status"] == "ER" or batch["error_flag"] == 1)
        one["rows"] += events[batch["batch_id"]]
        one["times"].append(batch["create_time"])
    return found


def agree(place: Place, rows: Rows) -> None:
    found, wanted = look(place), counted(rows)
    assert {(each.node, each.channel) for each in found.pairs} == set(wanted)
    enabled = {row["node_id"]: row["sync_enabled"] == 1 for row in rows["node"]}
    for each in found.pairs:
        one = wanted[each.node, each.channel]
        times = [time for time in one["times"] if time is not None]
        assert (each.batches, each.errors, each.rows, each.oldest_batch, each.status) == tuple(
            one[name] for name in ("batches", "errors", "rows", "oldest_batch", "status")
        )
        assert each.oldest_at == (min(times).replace(tzinfo=UTC) if times else None)
        assert found.nodes[each.node].is_enabled == enabled.get(each.node)
    totals = (found.batches, found.errors, found.rows)
    assert totals == tuple(
        sum(one[name] for one in wanted.values()) for name in ("batches", "errors", "rows")
    )
    assert (found.pairs_total, found.is_at_least) == (len(wanted), False)


def compare(place: Place, cases: int) -> None:
    create(place)
    rng = Random(f"backlog {place.dialect} {place.version}")
    seen = 0
    for _ in range(cases):
        rows = with_channels(rng, random_database(rng, place.version))
        empty(place)
        load(place, rows)
        agree(place, rows)
        seen += bool(counted(rows))
    assert seen > cases // 2


@CASES
@pytest.mark.parametrize("version", VERSIONS)
def test_look_at_random_sqlite_databases_counts_all_that_waits(
    tmp_path: Path, version: Version, cases: int
) -> None:
    compare(Place(f"sqlite:///{tmp_path}/sym.db", version=version), cases)


@CASES
@pytest.mark.parametrize("version", VERSIONS)
def test_look_at_random_postgresql_databases_counts_all_that_waits(
    postgresql_url: str, version: Version, cases: int
) -> None:
    compare(Place(postgresql_url, version=version), cases // 2)


@CASES
def test_look_at_random_mariadb_databases_counts_all_that_waits(mariadb_url: str, cases: int) -> None:
    compare(Place(mariadb_url, version="3.x"), cases // 4)


def waiting(place: Place, batches: int, *, events: int = 0) -> None:
    create(place)
    with session(place) as target:
        target.write(
            "insert into sym_outgoing_batch (batch_id, node_id, channel_id, status, create_time)"
            " values (:batch_id, :node_id, 'c', 'NE', :create_time)",
            [
                {"batch_id": number, "node_id": f"n{number}", "create_time": place.encode(CUTOFF)}
                for number in range(1, batches + 1)
            ],
        )
        target.write(
            "insert into sym_data_event (data_id, batch_id) values (:data_id, :batch_id)",
            [{"data_id": number, "batch_id": 1} for number in range(events)],
        )


def test_more_than_is_read_is_told_as_at_least(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    waiting(place, 30, events=30)
    assert look(place, batches_max=30, rows_max=30).is_at_least is False
    fewer = look(place, batches_max=29)
    assert (fewer.is_at_least, fewer.batches) == (True, 30)
    assert look(place, rows_max=29).is_at_least is True


def test_only_so_many_pairs_are_told_those_with_the_oldest_batches(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    waiting(place, backlog.PAIRS_MAX + 7)
    found = look(place)
    assert [each.oldest_batch for each in found.pairs] == list(range(1, backlog.PAIRS_MAX + 1))
    assert (found.pairs_total, found.batches, found.is_at_least) == (107, 107, False)
    assert set(found.nodes) == {each.node for each in found.pairs}


def test_heartbeat_is_read_by_the_offset_that_the_node_told(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    waiting(place, 3)
    with session(place) as target:
        target.run("drop table if exists sym_node_host")
        target.run("create table sym_node_host (node_id text, heartbeat_time text, timezone_offset text)")
        for node, hour, offset in (("n1", 10, "+02:00"), ("n1", 9, "+02:00"), ("n2", 10, None)):
            target.run(
                "insert into sym_node_host values (:node, :time, :offset)",
                {"node": node, "time": f"2026-03-10 {hour:02}:00:00", "offset": offset},
            )
    found = look(place).nodes
    at = datetime(2026, 3, 10, 10, tzinfo=UTC)
    assert found["n1"] == NodeSeen(None, at - timedelta(hours=2))
    assert (found["n2"].heartbeat_at, found["n3"].heartbeat_at) == (at, None)


@pytest.mark.parametrize("engine", ["postgresql", "mariadb"])
def test_what_waits_is_found_by_an_index_among_many_delivered(
    engine: str, request: pytest.FixtureRequest
) -> None:
    """The condition is one of ranges: with `status not in (...)` both servers read the whole table."""
    place = Place(request.getfixturevalue(f"{engine}_url"))
    create(place)
    numbers = "generate_series(1, 20000) seq" if engine == "postgresql" else "seq_1_to_20000"
    with session(place) as target:
        target.run(
            "insert into sym_outgoing_batch (batch_id, node_id, channel_id, status, create_time)"
            " select seq, 'n', 'c', case when mod(seq, 400) = 0 then 'NE' else 'OK' end, '2020-01-01'"
            f" from {numbers}"
        )
        target.run(
            "analyze sym_outgoing_batch" if engine == "postgresql" else "analyze table sym_outgoing_batch"
        )
        text = f"explain select batch_id from sym_outgoing_batch where {backlog._WAITS} limit 200001"
        plan = " ".join(str(column) for row in target.run(text) for column in row)
    assert look(place).batches == 50
    assert "Seq Scan" not in plan, plan
    assert " ALL " not in plan, plan
    assert "idx_ob_status" in plan.replace("sym_", ""), plan


def test_names_are_those_of_the_configuration_and_of_batches(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    create(place)
    with session(place) as target:
        target.run(
            "insert into sym_node (node_id, node_group_id, external_id, sync_enabled)"
            " values ('n1', 'g', '1', 1), ('n2', 'g', '2', 0)",
            {},
        )
        target.run("drop table if exists sym_channel", {})
    with connect(target_of(place), application_name="known", read_only=True) as conn:
        known = read_known(conn, nodes=["gone", "n1"], channels=["sales"])
        bounded = read_known(conn, nodes=[], channels=[], names_max=1)
    assert known == Known(nodes=("gone", "n1", "n2"), channels=None)
    assert bounded.nodes is None
