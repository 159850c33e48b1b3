"""The changelog as it is shown: pages in the order of (rid, csn)."""

from typing import Final

import pyarrow as pa

from spark.formats.replica import tables_of
from spark.replication.errors import ReplicaMissing
from spark.replication.records import RECORD_SCHEMA
from spark.targets.connection import Connection
from spark.targets.errors import TargetTablesMissing

HISTORY_SCHEMA: Final = pa.schema(
    [pa.field("rid", pa.int32()), *RECORD_SCHEMA, pa.field("logged_at_s", pa.int64())]
)


def read_history(
    conn: Connection, *, rid: int | None, after: tuple[int, str] | None, rows_max: int
) -> pa.RecordBatch:
    """One page of records, of HISTORY_SCHEMA; fewer than `rows_max` are the end.

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
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(HISTORY_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, HISTORY_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=HISTORY_SCHEMA)
