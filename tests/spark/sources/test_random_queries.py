"""Random queries over sources have the answers that DuckDB has over the dumped rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.erase.plan.describe import each_entry
from tests.spark.erase.conftest import Sample
from tests.spark.sources.conftest import Reading

LOG = "halted"
QUERIES = 10
READ_AGAIN = 6
"""Each sixth query reads the source, the others what was read of it: their time is not the source's."""
NUMBERS = ("place", "item_bytes", "db", "value_bytes", "node", "slots", "txn")
GROUPS = ("file", "type", "db", "level", "embedded")


def _condition(rng: random.Random) -> str:
    kind = rng.randrange(7)
    if kind == 0:
        return f"{rng.choice(NUMBERS)} {rng.choice(('<', '>=', '=', '<>'))} {rng.choice((0, 1, 3, 40, 5000))}"
    if kind == 1:
        first, second = rng.sample(("BIN", "COMMIT", "INS_LN_TX", "UPD_LN", "BIN_DELTA"), 2)
        return f"type in ('{first}', '{second}')"
    if kind == 2:
        return f"{rng.choice((*NUMBERS, 'key_hex', 'embedded'))} is {rng.choice(('null', 'not null'))}"
    if kind == 3:
        return f"file {rng.choice(('<', '>=', '='))} '0000000{rng.randrange(4)}.jdb'"
    if kind == 4:
        return f"key_hex {rng.choice(('<', '>'))} '{rng.randbytes(1).hex().upper()}'"
    if kind == 5:
        return f"place between {rng.randrange(10**5)} and {rng.randrange(10**7)}"
    return f"({_condition(rng)} or {_condition(rng)})"


def random_query(rng: random.Random) -> str:
    """A query over `entries` that both dialects understand; its columns are g, n, s, least, most, some."""
    group = rng.choice((*GROUPS, "'all'"))
    where = " and ".join(_condition(rng) for _ in range(rng.randint(0, 3))) or "true"
    number, other = rng.choice(NUMBERS), rng.choice((*NUMBERS, "key_hex"))
    return (
        f"select cast({group} as varchar(40)) as g, count(*) as n, cast(sum({number}) as bigint) as s,"
        f" cast(min({other}) as varchar(400)) as least, cast(max({other}) as varchar(400)) as most,"
        f" count(distinct {other}) as some from entries where {where} group by {group}"
    )


@pytest.fixture(scope="module")
def oracle(samples: dict[str, Sample]) -> Iterator[duckdb.DuckDBPyConnection]:
    """The dumped rows of a log in DuckDB."""
    columns = {
        "file": pa.string(), "type": pa.string(), "place": pa.int64(), "item_bytes": pa.int64(),
        "db": pa.int64(), "value_bytes": pa.int64(), "node": pa.int64(), "slots": pa.int64(),
        "txn": pa.int64(), "level": pa.int64(), "embedded": pa.bool_(), "key_hex": pa.string(),
    }  # fmt: skip
    rows = [_flat(line) for line in each_entry(samples[LOG].path, number=None, verify=True)]
    table = pa.Table.from_pylist(rows, pa.schema(list(columns.items())))
    with duckdb.connect() as connection:
        connection.register("dumped", table)
        connection.execute("create table entries as select * from dumped")
        yield connection


def _flat(line: dict[str, Any]) -> dict[str, Any]:
    found = dict(line) | {"place": line["offset"]}
    if "key" in line:
        found |= {"key_hex": line["key"].upper(), "embedded": "embedded" in line}
    return found


def _answers(session: SparkSession, path: Path, queries: list[str]) -> list[list[tuple[Any, ...]]]:
    """The rows of each query."""
    session.conf.set("spark.sql.shuffle.partitions", "1")
    source = session.read.format("lethe_je").options(path=str(path)).load()
    source = source.selectExpr(
        "file", "type", "offset as place", "item_bytes", "db", "value_bytes", "node", "slots", "txn",
        "level", "embedded", "hex(key) as key_hex",
    )  # fmt: skip
    held = source.coalesce(1).persist()
    found = []
    for number, query in enumerate(queries):
        (source if number % READ_AGAIN == 0 else held).createOrReplaceTempView("entries")
        found.append([tuple(row) for row in session.sql(query).collect()])
    held.unpersist()
    return found


@pytest.mark.long
def test_random_queries_have_the_answers_of_duckdb(
    reading: Reading, oracle: duckdb.DuckDBPyConnection, samples: dict[str, Sample]
) -> None:
    rng = random.Random(2026)
    queries = [random_query(rng) for _ in range(QUERIES)]
    found = reading.run(lambda session: _answers(session, samples[LOG].path, queries))
    answered = 0
    for query, rows in zip(queries, found, strict=True):
        wanted = oracle.execute(query).fetchall()
        assert sorted(rows, key=repr) == sorted(wanted, key=repr), query
        answered += len(wanted)
    assert answered > QUERIES
