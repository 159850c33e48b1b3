"""Data sets of the purge benchmark, generated inside the server, and what is left of them.

About 80 % of the rows are removable and there are 1.2 events a row, as in facts/symmetricds-purge, section 8.
Two nodes get the rows: one all of them, the other every fifth; batches of both alternate in their ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import psycopg

# A purge refuses a cut-off in the future of the target's clock.
CUTOFF = datetime(2025, 3, 10, 12, 0, 0)


@dataclass(frozen=True)
class Shape:
    """One data set.

    Attributes:
        rows: captured rows.
        rows_per_batch: consecutive rows that share a batch of the first node.
        stride: distance of two data_ids.
        ratio: how many times faster than the literal statements the purge must be; None is not judged.
    """

    name: str
    rows: int
    rows_per_batch: int
    stride: int
    ratio: float | None

    @property
    def batches(self) -> int:
        """Batches of both nodes."""
        return 2 * (self.rows // self.rows_per_batch + 1)

    def scaled(self, factor: float) -> Shape:
        """The same with fewer rows; its ratio is not judged."""
        return self if factor == 1 else replace(self, rows=max(1000, int(self.rows * factor)), ratio=None)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("dense-1m", 1_000_000, 600, 1, 1.2),
        Shape("small-batches-1m", 1_000_000, 8, 1, 4.5),
        Shape("sparse-200k", 200_000, 300, 500, 25.0),
        Shape("dense-5m", 5_000_000, 600, 1, 1.2),
    )
}

# Rows are captured in the order of their ids over 100 hours, 85 of them before the cut-off.
TIME = "timestamp '{cutoff}' + interval '100 hours' * ({position} - 0.85)"

DATA_SQL = """
insert into sym_data (data_id, table_name, event_type, row_data, pk_data, trigger_hist_id, channel_id,
                      transaction_id, create_time)
select i * {stride}, 'item', 'U', '"' || i || '","' || repeat(md5(i::text), 3) || '"', '"' || i || '"', 1,
       'default', 'tx' || i / 10, case when i % 50000 = 0 then null else {time} end
from generate_series(1, {rows}) i
"""
# Every thousandth row is routed to nobody.
EVENT_SQL = """
insert into sym_data_event (data_id, batch_id, create_time)
select i * {stride}, 2 * (i / {rows_per_batch}) + node + 1, {time}
from generate_series(1, {rows}) i, generate_series(0, 1) node
where i % 1000 <> 999 and (node = 0 or i % 5 = 0)
"""
# Of the batches 1 % are in error and 1 % ignored; a few belong to a disabled node, a few have no status.
BATCH_SQL = """
insert into sym_outgoing_batch (batch_id, node_id, channel_id, status, create_time, last_update_time)
select b, case when b % 211 = 0 then 'off' when b % 2 = 1 then 'n1' else 'n2' end, 'default',
       case when b % 101 = 0 then 'ER' when b % 103 = 0 then 'IG' when b % 997 = 0 then null
            when b % 211 = 0 then 'NE' when {position} > 0.97 then 'NE' else 'OK' end, {time}, {time}
from generate_series(1, {batches}) b
"""
NODE_SQL = """
insert into sym_node (node_id, node_group_id, external_id, sync_enabled)
values ('n1', 'store', 'n1', 1), ('n2', 'store', 'n2', 1), ('off', 'store', 'off', 0)
"""

LEFT_SQL = """
select (select array[count(*), coalesce(sum(hashint8(data_id)::bigint), 0)] from sym_data),
       (select array[count(*),
                     coalesce(sum(hashint8(data_id)::bigint # (31 * hashint8(batch_id)::bigint)), 0)]
        from sym_data_event),
       (select array[count(*),
                     coalesce(sum(hashtext(batch_id || '/' || node_id || coalesce(status, '-'))::bigint), 0)]
        from sym_outgoing_batch)
"""


def fill(connection: psycopg.Connection[tuple[object, ...]], shape: Shape) -> None:
    """Insert the data set into empty tables with prefix sym_ and leave them vacuumed and analysed."""
    data_position, batch_position = f"i / {shape.rows}.0", f"b / {shape.batches}.0"
    values = {"stride": shape.stride, "rows": shape.rows, "rows_per_batch": shape.rows_per_batch}
    data_time = TIME.format(cutoff=CUTOFF, position=data_position)
    batch_time = TIME.format(cutoff=CUTOFF, position=batch_position)
    run(connection, NODE_SQL)
    run(connection, DATA_SQL.format(**values, time=data_time))
    run(connection, EVENT_SQL.format(**values, time=data_time))
    run(connection, BATCH_SQL.format(position=batch_position, time=batch_time, batches=shape.batches))
    run(
        connection, "select setval(pg_get_serial_sequence('sym_data', 'data_id'), max(data_id)) from sym_data"
    )
    run(connection, "vacuum (analyze, freeze)")


def left(connection: psycopg.Connection[tuple[object, ...]]) -> tuple[object, ...]:
    """Count and checksum of the remaining keys of sym_data, sym_data_event and sym_outgoing_batch."""
    row = connection.execute(LEFT_SQL).fetchone()
    assert row is not None
    return row


def run(connection: psycopg.Connection[tuple[object, ...]], sql: str) -> None:
    """Run one statement whose text is made of the numbers above."""
    connection.execute(sql.encode())
