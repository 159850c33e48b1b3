"""How many entries of a replica an extinction covers now."""

from spark.formats.extinction import Extinction
from spark.formats.extinction_sql import range_condition
from spark.formats.replica import tables_of
from spark.targets.connection import Connection


def count_matching(conn: Connection, extinction: Extinction) -> tuple[int, int]:
    """Count live entries, and the octets of their keys and values."""
    dialect = conn.dialect.name
    assert dialect != "mysql", "a replica lies on PostgreSQL or SQLite"
    condition = range_condition(extinction, column="key", dialect=dialect)
    size = "octet_length" if dialect == "postgresql" else "length"
    tombstone = "not is_tombstone" if dialect == "postgresql" else "is_tombstone = 0"
    sql = (
        f"select count(*), coalesce(sum({size}(key) + coalesce({size}(value), 0)), 0)"
        f" from {tables_of(conn).entries}"
        f" where database = :database and {tombstone} and {condition.text}"
    )
    records = total = 0
    for database in sorted(extinction.databases):
        [(count, found)] = conn.execute(sql, {**condition.params, "database": database})
        records, total = records + int(count), total + int(found)
    return records, total


def count_entries(conn: Connection) -> int:
    """Count the live entries of a replica."""
    tombstone = "not is_tombstone" if conn.dialect.name == "postgresql" else "is_tombstone = 0"
    [(count,)] = conn.execute(f"select count(*) from {tables_of(conn).entries} where {tombstone}", {})
    return int(count)
