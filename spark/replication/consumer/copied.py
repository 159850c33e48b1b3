"""How far a copy has come, in the transaction that writes its entries."""

from __future__ import annotations

from dataclasses import replace

from spark.formats.arrow import np, pa
from spark.formats.changes.checks import csn_column, rids_of
from spark.formats.csn import Csn
from spark.replication.sessions.row import SessionRow
from spark.replication.sessions.session import require_total


def after_entries(row: SessionRow, batch: pa.RecordBatch, *, buried: Csn | None = None) -> SessionRow:
    """The session's row with the entries of one more batch: the last, their number, the greatest CSNs.

    Args:
        batch: of `entry_schema`, by ascending (database, key).
        buried: up to where tombstones may be missing among them.
    Raises: TotalNotUnderWay.
    """
    total = require_total(row)
    if batch.num_rows == 0:
        return row
    last = (batch.column("database")[-1].as_py(), batch.column("key")[-1].as_py())
    cursor = last if row.cursor is None else max(row.cursor, last)
    newest = _newest(batch.column("csn"))
    total = total.under(buried).with_entries(newest, rows=batch.num_rows)
    return replace(row, cursor=cursor, total=total)


def _newest(csns: pa.Array) -> dict[int, Csn]:
    """The greatest CSN of each replica id in a column."""
    order = np.argsort(csn_column(csns), kind="stable")
    rids, texts = rids_of(csns)[order], csn_column(csns)[order]
    # The last one of each: what is found first from the end.
    found, at = np.unique(rids[::-1], return_index=True)
    return {
        int(rid): Csn(texts[len(texts) - 1 - place].decode())
        for rid, place in zip(found, at.tolist(), strict=True)
    }
