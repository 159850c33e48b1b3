"""`lethe_slony_log`: the rows of both log tables, by a connection that can only read."""

from __future__ import annotations

from typing import Any

import pytest
from lethe_spark import OptionInvalid, SlonyLogSource

from spark.targets.errors import TargetError
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, catalogs, slony_templates  # noqa: F401
from tests.spark.sources.conftest import Reading

pytestmark = pytest.mark.postgresql
CASES = [("fxa", 1), ("fxa", 2), ("fxa", 3), ("fxc", 1), ("fxc", 2), ("fxc", 3)]


def rows_of(node: LoadedCatalog, **options: str) -> list[tuple[Any, ...]]:
    """The rows of the source, without Spark."""
    source = SlonyLogSource({"url": node.url, "cluster": node.cluster, **options})
    source.schema()
    return list(source.reader(None).read(None))  # type: ignore[arg-type]


def logged(node: LoadedCatalog, where: str = "true") -> list[tuple[Any, ...]]:
    """What psql shows of the log tables."""
    found = []
    with node.raw() as raw:
        for table in ("sl_log_1", "sl_log_2"):
            rows = raw.execute(
                "select log_origin, log_txid, log_tableid, log_actionseq, log_tablenspname, log_tablerelname,"
                f" log_cmdtype::text, log_cmdupdncols, log_cmdargs from {table} where {where}"  # type: ignore[arg-type]
            ).fetchall()
            found += [(table, *row) for row in rows]
    return found


@pytest.mark.parametrize(("state", "number"), CASES)
def test_every_row_is_that_of_the_log_tables(catalogs: Catalogs, state: Any, number: int) -> None:  # noqa: F811
    node = catalogs.load(state, number)
    node.execute(
        "insert into sl_log_2 values (1, 77, 5, 9, 'public', 't', 'U', 1, array['a', null, E'b\\\\n'])",
        "insert into sl_log_1 values (3, 78, null, 10, null, null, 'T', null, '{}')",
    )
    assert sorted(rows_of(node), key=repr) == sorted(logged(node), key=repr)
    assert sorted(rows_of(node, origins="3"), key=repr) == sorted(logged(node, "log_origin = 3"), key=repr)
    assert rows_of(node, origins="2147483647") == []


def test_spark_has_the_same_rows(reading: Reading, catalogs: Catalogs) -> None:  # noqa: F811
    node = catalogs.load("fxa", 1)
    node.execute("insert into sl_log_2 values (1, 77, 5, 9, 'public', 't', 'U', 1, array['a', null])")
    rows = reading.rows("lethe_slony_log", url=node.url, cluster=node.cluster)
    assert sorted((tuple(row.values()) for row in rows), key=repr) == sorted(logged(node), key=repr)


def test_a_cluster_or_a_server_that_is_not_there_is_refused(catalogs: Catalogs) -> None:  # noqa: F811
    node = catalogs.load("fxa", 1)
    with pytest.raises(TargetError, match="sl_log_1"):
        rows_of(node, cluster="other")
    with pytest.raises(TargetError):
        rows_of(node, url="postgresql+psycopg://nobody@127.0.0.1:1/none")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cluster": "c"}, "'url' is missing: such as postgresql"),
        ({"url": "postgresql+psycopg://u@h/d"}, "'cluster' is missing"),
        ({"url": "postgresql+psycopg://u@h/d", "cluster": "c", "schema": "s"}, "there is no option 'schema'"),
        ({"url": "postgresql+psycopg://u@h/d", "cluster": "c", "origins": "one"}, "origins names 'one'"),
        (
            {"url": "postgresql+psycopg://u@h/d", "cluster": "c", "statement_timeout_s": "0"},
            "no number from 1",
        ),
    ],
)
def test_options_that_are_wrong_are_refused_by_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionInvalid, match=words):
        SlonyLogSource(options).schema()


def test_a_password_in_the_url_is_refused() -> None:
    with pytest.raises(TargetError, match="the URL carries a password"):
        SlonyLogSource({"url": "postgresql+psycopg://u:p@h/d", "cluster": "c"}).schema()
