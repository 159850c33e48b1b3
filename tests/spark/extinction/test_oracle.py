"""One verdict, five ways: index, bundle, Spark columns, SQL, and a naive loop.

A case is a key of a database, judged in a world of random extinctions: ranges that are empty, open,
overlapping, prefixes, bytes 0xff, filters of every word. `make test` judges 5,000 in each way,
`make test-long` 100,000.
"""

from __future__ import annotations

import collections
import os
import random
from collections.abc import Sequence
from functools import partial, reduce
from pathlib import Path

import pytest
from lethe_client.extinction_filter import ExtinctionBundle
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as fn

from spark.formats.extinction import Extinction, ExtinctionIndex
from spark.formats.extinction_sql import range_condition
from spark.pool.lease import Lease
from spark.targets.connection import Connection, connect
from spark.targets.target import Target
from tests.spark.extinction.cases import DATABASES, World, naive_status, near, random_key, random_world
from tests.spark.extinction.columns import covers_column

PLACES = 100
WORLDS_OF_A_QUERY = 10
CASES = 5_000
CASES_ON_SPARK = 1_000
CASES_LONG = 100_000
LONG = (pytest.mark.long, pytest.mark.timeout(3_600))

Place = tuple[bytes, bytes]


def _places(dice: random.Random) -> list[Place]:
    keys = [random_key(dice) for _ in range(PLACES // 2)]
    keys += [near(dice, dice.choice(keys)) for _ in range(PLACES - len(keys))]
    return [(dice.choice(DATABASES), key) for key in keys]


def _worlds(dice: random.Random, places: list[Place], count: int) -> list[World]:
    return [random_world(dice, [key for _, key in places]) for _ in range(count)]


@pytest.mark.parametrize("cases", [CASES, pytest.param(CASES_LONG, marks=LONG)])
def test_random_worlds_index_and_bundle_say_what_the_naive_loop_says(cases: int) -> None:
    dice = random.Random(18_1)
    told: collections.Counter[str] = collections.Counter()
    for _ in range(cases // PLACES):
        places = _places(dice)
        [world] = _worlds(dice, places, 1)
        expected = [naive_status(world, *place) for place in places]
        index = ExtinctionIndex(world.extinctions, maybe=world.maybe)
        bundle = ExtinctionBundle.parse(world.bundle())
        assert [index.status(*place) for place in places] == expected
        assert [bundle.status(*place) for place in places] == expected
        for place, status in zip(places, expected, strict=True):
            assert (index.find(*place) is not None) == (status == "EXTINCT")
        told.update(expected)
    assert min(told[status] for status in ("EXTINCT", "MAYBE_EXTINCT", "NOT_EXTINCT")) > cases // 20


@pytest.mark.parametrize("cases", [CASES_ON_SPARK, pytest.param(CASES_LONG, marks=LONG)])
def test_random_worlds_spark_says_what_the_naive_loop_says(lease: Lease, cases: int) -> None:
    dice = random.Random(18_2)
    for _ in range(cases // PLACES // WORLDS_OF_A_QUERY):
        places = _places(dice)
        worlds = _worlds(dice, places, WORLDS_OF_A_QUERY)
        found = lease.run(partial(_spark_verdicts, places, worlds))
        expected = [tuple(naive_status(world, *place) for world in worlds) for place in places]
        assert found == expected


def _spark_verdicts(places: list[Place], worlds: list[World], spark: SparkSession) -> list[tuple[str, ...]]:
    rows = [(number, *place) for number, place in enumerate(places)]
    frame = spark.createDataFrame(rows, "number int, database binary, key binary").coalesce(1)
    columns = [_verdict_column(world).alias(f"world_{n}") for n, world in enumerate(worlds)]
    return [tuple(row) for row in frame.sortWithinPartitions("number").select(*columns).collect()]


def _verdict_column(world: World) -> Column:
    verdict = fn.lit("NOT_EXTINCT")
    for extinctions, status in ((world.maybe, "MAYBE_EXTINCT"), (world.extinctions, "EXTINCT")):
        if extinctions:
            covers = [covers_column(each, fn.col("database"), fn.col("key")) for each in extinctions]
            verdict = fn.when(reduce(Column.__or__, covers), fn.lit(status)).otherwise(verdict)
    return verdict


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "postgresql":
        return Target(request.getfixturevalue("postgresql_url"), password=os.environ.get("PGPASSWORD"))
    (tmp_path / "target.db").touch()
    return Target(f"sqlite:///{tmp_path / 'target.db'}")


@pytest.mark.parametrize("cases", [CASES, pytest.param(CASES_LONG, marks=LONG)])
def test_random_worlds_sql_says_what_the_naive_loop_says(target: Target, cases: int) -> None:
    dice = random.Random(18_3)
    with connect(target, application_name="test") as conn:
        kind = "bytea" if conn.dialect.name == "postgresql" else "blob"
        conn.execute(f"create table places (number integer, database {kind}, key {kind})")
        for _ in range(cases // PLACES // WORLDS_OF_A_QUERY):
            places = _places(dice)
            conn.execute("delete from places")
            conn.execute_many(
                "insert into places (number, database, key) values (:number, :database, :key)",
                [
                    {"number": number, "database": each[0], "key": each[1]}
                    for number, each in enumerate(places)
                ],
            )
            worlds = _worlds(dice, places, WORLDS_OF_A_QUERY)
            found = _verdicts(conn, worlds)
            assert found == [tuple(naive_status(world, *place) for world in worlds) for place in places]


def _verdicts(conn: Connection, worlds: Sequence[World]) -> list[tuple[str, ...]]:
    params: dict[str, bytes] = {}
    columns = []
    for number, world in enumerate(worlds):
        whens = [
            f"when {_condition(conn, each, params, f'w{number}_{place}_')} then '{status}'"
            for status, extinctions in (("EXTINCT", world.extinctions), ("MAYBE_EXTINCT", world.maybe))
            for place, each in enumerate(extinctions, start=len(status))
        ]
        columns.append(f"case {' '.join(whens)} else 'NOT_EXTINCT' end" if whens else "'NOT_EXTINCT'")
    rows = conn.execute(f"select {', '.join(columns)} from places order by number", params)
    return [tuple(row) for row in rows]


def _condition(conn: Connection, extinction: Extinction, params: dict[str, bytes], name: str) -> str:
    assert conn.dialect.name != "mysql"
    condition = range_condition(extinction, column="key", dialect=conn.dialect.name, name=name)
    params.update(condition.params)
    names = {f"{name}d{number}": each for number, each in enumerate(sorted(extinction.databases))}
    params.update(names)
    return f"(database in ({', '.join(f':{each}' for each in names)}) and {condition.text})"
