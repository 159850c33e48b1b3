"""A key of PostgreSQL's type bit(n): a cast to bit without its length kept the first bit only."""

from contextlib import closing

from spark.rows.catalog import read_table
from spark.rows.keys import KeyColumns, texts_of
from spark.rows.table import Table
from spark.targets.connection import Target, connect


def test_bit_key_read_names_the_same_row_again(postgresql_url: str) -> None:
    with closing(connect(Target(postgresql_url, table_prefix=""), application_name="bits")) as conn:
        conn.execute_count("create table bit_keys (k bit(4) primary key)", {})
        try:
            conn.execute_count("insert into bit_keys values (B'0101'), (B'1010'), (B'1011')", {})
            table: Table = read_table(conn, "bit_keys")
            key = KeyColumns.of(conn, table, "t")
            found = conn.execute(f"select {key.selected} from bit_keys t order by {key.order()}", {})
            keys = [texts_of(row) for row in found]
            for place, each in enumerate(keys):
                for condition, rows in (
                    (key.upto(each, "a_"), place + 1),
                    (key.after(each, "a_"), 2 - place),
                    (key.among([each]), 1),
                ):
                    sql = f"select count(*) from bit_keys t where {condition.text}"
                    assert conn.execute(sql, dict(condition.bound)) == [(rows,)], condition.text
        finally:
            conn.execute_count("drop table bit_keys", {})
