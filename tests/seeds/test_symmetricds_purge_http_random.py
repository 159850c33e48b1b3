"""The document's three purges over HTTP on random databases: the same rows on every database and engine."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.journeys.ground import in_the_past
from tests.oracles.symmetricds import Place, Rows, create, empty, load, random_database, snapshot
from tests.oracles.symmetricds_random_incoming import random_gaps, random_incoming, with_odd_texts
from tests.seeds.purging import TABLES, Purging, assert_purged, must_be_left, up_to_cutoff

KINDS = tuple(TABLES)
SPARK_ENGINES = ("INLINE", "SPARK")
PLACES_OF_SPARK = ["sqlite-3.x", "postgresql-2.x", "mariadb-3.x"]
PLACES_INLINE = [
    pytest.param("sqlite-2.x", marks=pytest.mark.long),
    "postgresql-3.x",
    pytest.param("mariadb-2.x", marks=pytest.mark.long),
]


def random_rows(rng: Random, place: Place, kind: str, *, loose: bool) -> Rows:
    """A random database in which a kind of purge finds something to do; `loose`: see create."""
    if kind == "INCOMING":
        made = random_incoming(rng, place.version, place.collation)
    elif kind == "DATA_GAP":
        made = random_gaps(rng, place.version, loose=loose)
    else:
        made = random_database(rng, place.version)
        if rng.random() < 0.3:
            made = with_odd_texts(rng, place.version, made, place.collation)
    return in_the_past(made)


def random_options(rng: Random, kind: str) -> dict[str, Any]:
    """What a request may say of the rows; only the outgoing purge has a choice."""
    if kind != "OUTGOING":
        return {}
    return {"strict": rng.random() < 0.3, "stranded": rng.choice(["MARK", "MARK", "SKIP"])}


def run_over_http(purging: Purging, place: Place, engine: str, seeds: range, *, loose: bool = False) -> None:
    """Hold each kind against its oracle on one random database for each seed."""
    create(place, loose=loose)
    store = purging.store(place)
    for seed, kind in ((seed, kind) for seed in seeds for kind in KINDS):
        rng = Random(f"{seed}-{kind}")
        empty(place)
        load(place, random_rows(rng, place, kind, loose=loose))
        before = snapshot(place)
        options = random_options(rng, kind)
        request = {**up_to_cutoff(place), **options}
        if rng.random() < 0.3:
            plan = purging.plan(store, kind, **request)
            assert_planned(place, kind, before, plan, **options)
        job = purging.purge(
            store,
            kind,
            engine=engine,
            max_rows_in_tx=rng.choice([1, 3, 20, 5000]) if rng.random() < 0.5 else None,
            **request,
        )
        try:
            assert_purged(place, kind, before, job, **options)
        except AssertionError as exc:
            raise AssertionError(f"seed {seed}, {kind}, {place.dialect} {place.version}, {engine}") from exc
        assert job["engine"] == engine


def assert_planned(place: Place, kind: str, before: Rows, plan: dict[str, Any], **options: Any) -> None:
    """A plan tells the counts, and writes nothing."""
    planned = {row["table"].removeprefix(place.prefix): row["rows_to_remove"] for row in plan["tables"]}
    expected = must_be_left(place, kind, before, **options)
    assert planned == {table: len(before[table]) - len(expected[table]) for table in TABLES[kind]}
    assert snapshot(place) == before


@pytest.mark.parametrize("place", PLACES_OF_SPARK, indirect=True)
def test_random_databases_purged_on_spark_are_left_as_the_oracle_says(purging: Purging, place: Place) -> None:
    """Issue of the Spark session: "the same random databases, the same oracles", on Spark and on MariaDB."""
    run_over_http(purging, place, "SPARK", range(1))


@pytest.mark.parametrize("place", PLACES_INLINE, indirect=True)
def test_random_databases_over_http_are_left_as_the_oracle_says(purging: Purging, place: Place) -> None:
    """The layouts that the runs on Spark leave out; all places on both are in the long run."""
    run_over_http(purging, place, "INLINE", range(1))


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize("spark_engine", SPARK_ENGINES)
def test_many_random_databases_over_http_are_left_as_the_oracle_says(
    purging: Purging, place: Place, spark_engine: str, loose: bool
) -> None:
    """The same with more seeds: 24 grounds of 50 databases of each of 3 kinds."""
    run_over_http(purging, place, spark_engine, range(10_000, 10_050), loose=loose)


@pytest.mark.parametrize("encoding", ["text_ms", "text_s", "epoch_ms"])
@pytest.mark.parametrize("version", ["2.x", "3.x"])
def test_times_of_sqlite_in_any_form_leave_the_same_rows(
    purging: Purging, tmp_path: Path, version: Any, encoding: Any
) -> None:
    """Design, Purge: "SQLite: text or epoch milliseconds found out by type"."""
    place = Place(f"sqlite:///{tmp_path}/target.db", version, encoding=encoding)
    run_over_http(purging, place, "INLINE", range(100, 101), loose=True)
