"""How many entries of a replica an extinction covers now."""

from collections.abc import Mapping

from spark.formats.csn import Csn
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


def count_since(conn: Connection, extinction: Extinction, ruv: Mapping[int, Csn]) -> tuple[int, int]:
    """Count live entries that stand as a replica of this RUV had them, and those that were written since."""
    dialect = conn.dialect.name
    assert dialect != "mysql", "a replica lies on PostgreSQL or SQLite"
    condition = range_condition(extinction, column="key", dialect=dialect)
    tombstone = "not is_tombstone" if dialect == "postgresql" else "is_tombstone = 0"
    known = {f"rid{at}": f"{rid:04x}" for at, rid in enumerate(ruv)}
    upto = {f"upto{at}": str(csn) for at, csn in enumerate(ruv.values())}
    covered = " or ".join(f"(substr(csn, 13, 4) = :rid{at} and csn <= :upto{at})" for at in range(len(ruv)))
    sql = (
        f"select count(*), coalesce(sum(case when {covered or '1 = 0'} then 1 else 0 end), 0)"
        f" from {tables_of(conn).entries}"
        f" where database = :database and {tombstone} and {condition.text}"
    )
    total = before = 0
    for database in sorted(extinction.databases):
        params = {**condition.params, **known, **upto, "database": database}
        [(count, found)] = conn.execute(sql, params)
        total, before = total + int(count), before + int(found)
    return before, total - before


def count_entries(conn: Connection) -> int:
    """Count the live entries of a replica."""
    tombstone = "not is_tombstone" if conn.dialect.name == "postgresql" else "is_tombstone = 0"
    [(count,)] = conn.execute(f"select count(*) from {tables_of(conn).entries} where {tombstone}", {})
    return int(count)
