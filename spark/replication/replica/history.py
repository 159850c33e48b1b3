"""The changelog as it is shown: pages in the order of (rid, csn)."""

from __future__ import annotations

from functools import cache

from spark.formats.arrow import pa
from spark.formats.replica import tables_of
from spark.replication.errors import ReplicaMissing
from spark.replication.records import record_schema
from spark.targets.connection import Connection
from spark.targets.errors import TargetTablesMissing


@cache
def history_schema() -> pa.Schema:
    """A page of a changelog."""
    return pa.schema([pa.field("rid", pa.int32()), *record_schema(), pa.field("logged_at_s", pa.int64())])


def read_history(
    conn: Connection, *, rid: int | None, after: tuple[int, str] | None, rows_max: int
) -> pa.RecordBatch:
    """One page of records, of `history_schema`; fewer than `rows_max` are the end.

    Args:
        rid: only this replica's.
        after: RID and CSN of the last record before the page.
    Raises: ReplicaMissing.
    """
    conditions, params = ["true"], {"rows_max": rows_max}  # type: list[str], dict[str, object]
    if rid is not None:
        conditions.append("rid = :rid")
        params["rid"] = rid
    if after is not None:
        conditions.append("(rid, csn) > (:after_rid, :after_csn)")
        params |= {"after_rid": after[0], "after_csn": after[1]}
    try:
        rows = conn.execute(
            "select rid, csn, prev, kind, database, key, payload, logged_at_s"
            f" from {tables_of(conn).changelog} where {' and '.join(conditions)}"
            " order by rid, csn limit :rows_max",
            params,
        )
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(history_schema())
    arrays = [pa.array(column, field.type) for column, field in zip(columns, history_schema(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=history_schema())
