"""Looking at a MariaDB target: few questions, however many tables of others lie beside the own ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark.purge.reading.catalog import read_catalog, table_sizes
from spark.purge.reading.inspect import inspect
from spark.targets.connection import Connection, connect
from tests.oracles.symmetricds import Place, create
from tests.spark.purge.outgoing_run import target_of

ASKED_MAX = 8
"""Of information_schema: columns, keys, kinds, engines, sizes, and three of what Lethe keeps there itself."""


class Counted:
    """A connection, and what it was asked."""

    def __init__(self, conn: Connection) -> None:
        self.conn, self.asked = conn, [""]

    def execute(self, sql: str, *more: Any) -> Any:
        self.asked.append(sql)
        return self.conn.execute(sql, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.conn, name)


@pytest.fixture
def conn(mariadb_url: str) -> Iterator[Connection]:
    place = Place(mariadb_url)
    create(place)
    with connect(target_of(place), application_name="t") as found:
        yield found


def test_views_of_the_catalog_are_asked_once_each_and_never_joined(conn: Connection) -> None:
    counted: Any = Counted(conn)
    inspect(counted)
    asked = [sql for sql in counted.asked if "information_schema" in sql]
    assert len(asked) <= ASKED_MAX, asked
    # Of a join the server opens every table of the database: 20 ms for each table at 505 of them.
    assert [sql for sql in asked if sql.count("information_schema") > 1] == []


def test_columns_keys_and_sizes_are_those_of_each_table_alone(conn: Connection) -> None:
    conn.execute("create table other (data_id int primary key, batch_id int)")
    conn.execute("create view sym_context_of_others as select 1 as one")
    catalog = read_catalog(conn)
    keys = {
        table: [column.name for column in catalog[table] if column.key] for table in ("data", "data_event")
    }
    assert keys == {"data": ["data_id"], "data_event": ["data_id", "batch_id"]}
    assert catalog["data"][0].name == "data_id"
    assert set(table_sizes(conn)) == {"sym_data", "sym_data_event", "sym_outgoing_batch"}
    assert all(rows is not None and size for rows, size in table_sizes(conn).values())


def test_view_in_the_place_of_a_table_is_none(conn: Connection) -> None:
    before = read_catalog(conn)
    conn.execute("drop table sym_lock")
    conn.execute("create view sym_lock as select 1 as lock_action")
    assert set(before) - set(read_catalog(conn)) == {"lock"}
