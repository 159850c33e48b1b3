"""Channels with a retention of their own: a purge OUTGOING leaves what the oracle says, row for row."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spark.purge.plan import plan_outgoing
from spark.purge.statements import PurgeSpec
from spark.targets.connection import connect
from tests.oracles.symmetricds import CUTOFF, Place, create, empty, load, random_database, session, snapshot
from tests.oracles.symmetricds_channels import expected_by_channel
from tests.oracles.symmetricds_engines import named_place
from tests.spark.purge.outgoing_run import OutgoingRun

TABLES = ("data", "data_event", "outgoing_batch")


@pytest.fixture(params=["sqlite-3.x", "postgresql-3.x", "mariadb-3.x"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Empty tables."""
    found = named_place(
        request.param,
        directory=tmp_path,
        server_url=lambda dialect: str(request.getfixturevalue(f"{dialect}_url")),
    )
    create(found)
    return found


def hold(place: Place, seed: int) -> int:
    """One random database; how many rows went."""
    rng = Random(seed)
    empty(place)
    rows = random_database(rng, "3.x")
    for row in rows["data"]:
        row["channel_id"] = rng.choice(["default", "sale", "gone", None])
    load(place, rows)
    before = snapshot(place)
    own = {
        channel: place.encode(CUTOFF + timedelta(hours=rng.choice([-40, -3, 0, 2, 30])))
        for channel in rng.sample(["default", "sale", "o'neil"], rng.choice([1, 2, 3]))
    }
    expected = expected_by_channel(before, place.encode(CUTOFF), own)
    cutoff: Any = place.encode(CUTOFF)
    spec = PurgeSpec(cutoff, mark_stranded=False, of_channels=tuple(sorted(own.items())))
    counts = {table: len(before[table]) - len(expected[table]) for table in TABLES}
    run = OutgoingRun(place, spec, rows=rng.choice([7, 20_000, 20_000]))
    with closing(connect(run.target, application_name="plan", read_only=True)) as conn:
        plan = plan_outgoing(conn, spec, now=cutoff)
    assert {item.table.removeprefix("sym_"): item.rows_to_remove for item in plan.tables} == counts, seed
    run.run()
    assert snapshot(place) == expected, f"seed {seed}"
    return sum(counts.values())


def test_each_row_goes_by_the_time_of_its_channel(place: Place) -> None:
    """Twenty-eight over the three engines."""
    seeds = range(20 if place.dialect == "sqlite" else 4)
    assert sum(hold(place, seed) for seed in seeds) > 5 * len(seeds)


def test_channel_that_is_not_there_is_told(place: Place) -> None:
    load(place, random_database(Random(1), "3.x"))
    cutoff: Any = place.encode(CUTOFF)
    spec = PurgeSpec(cutoff, of_channels=(("sale", cutoff), ("sales", cutoff)))
    target = OutgoingRun(place, spec).target

    def told() -> list[tuple[str, int, tuple[int | str, ...]]]:
        with closing(connect(target, application_name="plan", read_only=True)) as conn:
            found = plan_outgoing(conn, spec).warnings
        return [(each.table, each.count, each.sample) for each in found if each.code == "CHANNEL_UNKNOWN"]

    with session(place) as database:
        database.run("drop table if exists sym_channel", {})
    assert told() == []
    with session(place) as database:
        database.run("create table sym_channel (channel_id varchar(128) primary key)", {})
        database.run("insert into sym_channel values ('sale')", {})
    try:
        assert told() == [("sym_channel", 1, ("sales",))]
    finally:
        with session(place) as database:
            database.run("drop table sym_channel", {})


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_row_of_many_databases_goes_by_the_time_of_its_channel(place: Place) -> None:
    """A thousand over the three engines."""
    for seed in range(10_000, 10_600 if place.dialect == "sqlite" else 10_200):
        hold(place, seed)
