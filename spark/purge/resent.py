"""Batches that wait for delivery although a purge has removed what they would deliver.

A resend that commits after a unit cannot get its rows back; it is never silent: it is listed here.
Source: design.md, Purge (RESENT_AFTER_PURGE).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from spark.purge.ranges import id_before, key_order
from spark.purge.statements import PurgeSpec, Statements
from spark.targets.connection import Connection

Cause = Literal["DATA_REMOVED", "EVENTS_REMOVED"]
IdRange = tuple[int, int]

BATCHES_IN_WINDOW = 1_000
EVENTS_IN_WINDOW = 100_000


@dataclass(frozen=True, slots=True)
class ResentBatch:
    """A batch that is neither OK nor IG; `rows` of its events have no data any more (0: all events are
    gone).
    """

    batch_id: int
    node_id: str | None
    rows: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class ResentReport:
    """How many there are, and the first of them by batch and node."""

    count: int
    items: tuple[ResentBatch, ...]


def list_resent(
    conn: Connection,
    data_range: IdRange | None,
    batch_range: IdRange | None,
    limit: int,
    *,
    baseline: Iterable[ResentBatch] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> ResentReport:
    """List undelivered batches which lack data of `data_range`, or all their events inside `batch_range`.

    Args:
        data_range: the bounds of the DATA step; None: no data was removed.
        batch_range: the bounds of the EVENTS step; None: no events were removed.
        limit: of the items; the count goes on.
        baseline: what the same function said before the purge: the same batch with as many rows is left out.
        should_stop: asked before each window; True ends the search with what was found so far.
    """
    known = {(item.batch_id, item.node_id): item for item in baseline}
    count = 0
    items: list[ResentBatch] = []
    for window in _windows(conn):
        if should_stop():
            break
        for found in _in_window(conn, window, data_range, batch_range):
            before = known.get((found.batch_id, found.node_id))
            if before is not None and before.cause == found.cause and before.rows >= found.rows:
                continue
            count += 1
            if len(items) < limit:
                items.append(found)
    return ResentReport(count, tuple(items))


def _windows(conn: Connection) -> Iterator[IdRange]:
    """Ranges of batch ids that hold few undelivered batches and few events each."""
    statements = _statements(conn)
    batches, events = statements.names.outgoing_batch, statements.names.data_event
    after = -(2**63)
    while True:
        with key_order(conn):
            ids = conn.execute(
                f"select b.batch_id from {batches} b where b.batch_id > :after and {statements.protects('b')}"
                " order by b.batch_id limit :count",
                {"after": after, "count": BATCHES_IN_WINDOW},
            )
            if not ids:
                return
            first, last = int(ids[0][0]), int(ids[-1][0])
            shorter = id_before(conn, f"{events} e", "e.batch_id", first, last, limit=EVENTS_IN_WINDOW)
        after = last if shorter is None else shorter
        yield first, after


def _in_window(
    conn: Connection, window: IdRange, data_range: IdRange | None, batch_range: IdRange | None
) -> list[ResentBatch]:
    found: list[ResentBatch] = []
    if batch_range is not None:
        lo, hi = max(window[0], batch_range[0]), min(window[1], batch_range[1])
        found += _without_events(conn, lo, hi) if lo <= hi else []
    if data_range is not None:
        found += _without_data(conn, window, data_range)
    return sorted(found, key=lambda item: (item.batch_id, item.node_id or ""))


def _without_data(conn: Connection, window: IdRange, data_range: IdRange) -> list[ResentBatch]:
    statements = _statements(conn)
    names = statements.names
    rows = conn.execute(
        f"select b.batch_id, b.node_id, count(*) from {names.outgoing_batch} b"
        f" join {names.data_event} e on e.batch_id = b.batch_id"
        " where b.batch_id between :lo and :hi and e.batch_id between :lo and :hi"
        f" and {statements.protects('b')}"
        " and e.data_id between :data_lo and :data_hi"
        f" and not exists (select 1 from {names.data} d where d.data_id = e.data_id)"
        " group by b.batch_id, b.node_id",
        {"lo": window[0], "hi": window[1], "data_lo": data_range[0], "data_hi": data_range[1]},
    )
    return [ResentBatch(int(batch), node, int(count), "DATA_REMOVED") for batch, node, count in rows]


def _without_events(conn: Connection, lo: int, hi: int) -> list[ResentBatch]:
    statements = _statements(conn)
    names = statements.names
    rows = conn.execute(
        f"select b.batch_id, b.node_id from {names.outgoing_batch} b where b.batch_id between :lo and :hi"
        f" and {statements.protects('b')}"
        f" and not exists (select 1 from {names.data_event} e where e.batch_id = b.batch_id)",
        {"lo": lo, "hi": hi},
    )
    return [ResentBatch(int(batch), node, 0, "EVENTS_REMOVED") for batch, node in rows]


def _statements(conn: Connection) -> Statements:
    # A NULL status is not listed: the document lets it not protect, so its rows go by rule, not by a race.
    return Statements.of(conn, PurgeSpec(cutoff=0))
