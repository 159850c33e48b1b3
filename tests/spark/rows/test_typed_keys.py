"""Keys of the types bit(n) and char(n) of PostgreSQL, and arrays of them: a bare cast kept the first bit.

A key that was cut named other rows, and a walk by it went on without an end.
"""

from contextlib import closing

import pytest

from spark.rows.catalog import read_table
from spark.rows.keys import KeyColumns, texts_of
from spark.rows.table import Table
from spark.targets.connection import Target, connect


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("bit(4)", ["0101", "1010", "1011"]),
        ("bit(4)[]", ["{0101}", "{1010,0000}", "{1011}"]),
        ("varbit", ["0101", "1010", "1011"]),
        ("char(4)[]", ["{ab}", "{ac,x}", "{acd}"]),
        ("char(4)", ["ab", "ac", "acd"]),
        ("varchar(4)[]", ["{ab}", "{ac,x}", "{acd}"]),
        ("interval second(2)", ["0.25 seconds", "0.5 seconds", "1 day"]),
        ("numeric(6,3)[]", ["{0.125}", "{0.25}", "{1.5,2}"]),
    ],
)
def test_key_read_names_the_same_row_again(postgresql_url: str, declared: str, values: list[str]) -> None:
    with closing(connect(Target(postgresql_url, table_prefix=""), application_name="keys")) as conn:
        conn.execute_count(f"create table typed_keys (k {declared} primary key)", {})
        try:
            listed = ", ".join(f"('{value}')" for value in values)
            conn.execute_count(f"insert into typed_keys values {listed}", {})
            table = read_table(conn, "typed_keys")
            assert isinstance(table, Table)
            key = KeyColumns.of(conn, table, "t")
            found = conn.execute(f"select {key.selected} from typed_keys t order by {key.order()}", {})
            for place, each in enumerate(map(texts_of, found)):
                for condition, rows in (
                    (key.upto(each, "a_"), place + 1),
                    (key.after(each, "a_"), 2 - place),
                    (key.among([each]), 1),
                ):
                    sql = f"select count(*) from typed_keys t where {condition.text}"
                    assert conn.execute(sql, dict(condition.bound)) == [(rows,)], condition.text
        finally:
            conn.execute_count("drop table typed_keys", {})
