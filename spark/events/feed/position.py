"""Where a feed stands, and whether everything behind it is still there.

Rules:
- The log tables are locked (ACCESS SHARE) before the transaction has its snapshot: a TRUNCATE empties a
  table for older snapshots too. Whoever finds the position's SYNC in that snapshot has every row behind it: a
  log table is emptied only of what the oldest SYNC left sees, and this one is not older.
- A position whose SYNC is gone, is another one under its number, is of a time that the node's counter of
  transactions has not reached, or is of another counter, is never gone on from.

Source: facts/slony, sections 2 and 3; remote_worker.c, sync_event.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from spark.events.feed.errors import FeedSetUnknown, NeedsTotal, OriginElsewhere, PositionNotASync
from spark.events.feed.records import Position, Sync, Tables
from spark.events.feed.snapshot import TxidSnapshot
from spark.events.records import Catalog
from spark.formats.slony import LOG_TABLES, SYNC
from spark.targets.connection import Connection

TXIDS: Final = 2**32
FIRST_TXID: Final = 3
"""Below are the numbers of no transaction: a server before 9.4 writes 2 where a row is old."""
_SYNCS: Final = (
    "select ev_seqno, coalesce(ev_timestamp, '-infinity'), ev_snapshot::text from {events}"
    " where ev_origin = :origin and ev_type = :sync and ev_snapshot is not null"
)


def hold_log(conn: Connection, catalog: Catalog) -> None:
    """Keep every log table from being emptied to the end of the transaction; its first statement.

    Raises: TargetLockTimeout: one is being emptied at this moment.
    """
    assert conn.in_transaction, "the lock must last as long as the reading"
    names = ", ".join(conn.dialect.qualify(catalog.schema, name) for name in LOG_TABLES)
    conn.execute(f"lock table {names} in access share mode")


def require_origin(catalog: Catalog, origin: int) -> None:
    """Refuse another node's changes: a receiver has only those of sets that it forwards, from some time on.

    Raises: OriginElsewhere.
    """
    if catalog.local_node != origin:
        raise OriginElsewhere(
            f"this is node {catalog.local_node}: only node {origin} itself has all changes of its own;"
            f" read the feed from the store of node {origin}"
        )


def read_position(
    conn: Connection, catalog: Catalog, origin: int, seqno: int, *, snapshot: str | None = None
) -> Position:
    """The SYNC of a position, inside `hold_log`.

    Args:
        snapshot: as the SYNC had it when it was read; None: not remembered, so not compared.
    Raises: NeedsTotal, PositionNotASync.
    """
    events = conn.dialect.qualify(catalog.schema, "sl_event")
    rows = conn.execute(
        f"select ev_type, ev_snapshot::text from {events} where ev_origin = :origin and ev_seqno = :seqno",
        {"origin": origin, "seqno": seqno},
    )
    if not rows:
        raise NeedsTotal(_why_gone(conn, catalog, origin, seqno))
    kind, found = rows[0]
    if kind != SYNC or found is None:
        raise PositionNotASync(
            f"event {origin},{seqno} is a {kind}: a position is a SYNC; take the seqno of a SYNC record"
        )
    if snapshot is not None and snapshot != found:
        raise NeedsTotal(
            f"SYNC {origin},{seqno} has the snapshot {found[:80]} now and had {snapshot[:80]}: the node was"
            " restored from a backup, or made anew; begin again with a first copy"
        )
    return _of_this_node(conn, catalog, Position(origin, seqno, TxidSnapshot.parse(found)))


def _of_this_node(conn: Connection, catalog: Catalog, position: Position) -> Position:
    """A node that was restored from a dump counts its transactions anew: no SYNC of it follows an old one.

    Once it has counted as far as the old one later SYNCs do follow, without what was written until then. But
    the transaction that makes a SYNC is not below the xmin that it writes: a row that is has been restored.

    Raises: NeedsTotal.
    """
    events = conn.dialect.qualify(catalog.schema, "sl_event")
    [(now, low)] = conn.execute(
        "select pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()), cast(cast(xmin as text) as"
        f" bigint) from {events} where ev_origin = :origin and ev_seqno = :seqno",
        {"origin": position.origin, "seqno": position.seqno},
    )
    anew = "it was restored from a dump; make a SYNC (`lethe slony sync STORE`), then a first copy"
    if now < position.snapshot.xmax:
        raise NeedsTotal(
            f"SYNC {position.origin},{position.seqno} saw transactions up to {position.snapshot.xmax}; the"
            f" node is at {now} now: {anew}"
        )
    writer = now - (now - low) % TXIDS  # a row has the lower half of the number
    if low >= FIRST_TXID and writer < position.snapshot.xmin:
        raise NeedsTotal(
            f"SYNC {position.origin},{position.seqno} saw all below {position.snapshot.xmin}, and"
            f" its row was written by transaction {writer}: {anew}"
        )
    return position


def copied_position(position: Position, copied: TxidSnapshot) -> Position:
    """Where the feed goes on from after a first copy: the position, with what the copy saw.

    Raises: NeedsTotal: the copy is older than the SYNC that it names.
    """
    if not copied.follows(position.snapshot):
        raise NeedsTotal(
            f"the copy at {str(copied)[:80]} does not see all that SYNC {position.origin},{position.seqno}"
            " sees: it is of another time or node; begin again with a first copy"
        )
    return replace(position, snapshot=copied)


def _why_gone(conn: Connection, catalog: Catalog, origin: int, seqno: int) -> str:
    events = conn.dialect.qualify(catalog.schema, "sl_event")
    [(first, last)] = conn.execute(
        f"select min(ev_seqno) filter (where ev_type = :sync), max(ev_seqno) from {events}"
        " where ev_origin = :origin",
        {"origin": origin, "sync": SYNC},
    )
    begin = "begin again with a first copy"
    if last is None or first is None:
        return f"the node has no SYNC of origin {origin}, so nothing proves that its log is whole; {begin}"
    if seqno > last:
        return f"event {origin},{seqno} is of the future: the newest here is {last}; {begin}"
    if seqno < first:
        return f"SYNC {origin},{seqno} was cleaned away, {first} is the oldest left: rows are gone; {begin}"
    return f"there is no event {origin},{seqno} between {first} and {last}: rows may be gone; {begin}"


def oldest_position(conn: Connection, catalog: Catalog, origin: int) -> Position:
    """The oldest SYNC left, inside `hold_log`: the earliest position that can be gone on from.

    Raises: NeedsTotal: there is none.
    """
    query = _SYNCS.format(events=conn.dialect.qualify(catalog.schema, "sl_event"))
    return _first(conn, catalog, f"{query} order by ev_seqno limit 1", origin)


def newest_position(conn: Connection, catalog: Catalog, origin: int) -> Position:
    """The newest SYNC, inside `hold_log`: of a first copy.

    Raises: NeedsTotal: there is none.
    """
    query = _SYNCS.format(events=conn.dialect.qualify(catalog.schema, "sl_event"))
    return _first(conn, catalog, f"{query} order by ev_seqno desc limit 1", origin)


def _first(conn: Connection, catalog: Catalog, query: str, origin: int) -> Position:
    rows = conn.execute(query, {"origin": origin, "sync": SYNC})
    if not rows:
        raise NeedsTotal(f"the node has no SYNC of origin {origin} yet; make one by `lethe slony sync STORE`")
    return _of_this_node(conn, catalog, Position(origin, int(rows[0][0]), TxidSnapshot.parse(rows[0][2])))


def next_syncs(conn: Connection, catalog: Catalog, position: Position, *, limit: int) -> list[Sync]:
    """At most so many SYNCs behind a position that end a unit, in order.

    One whose snapshot does not see all that the last one saw ends none: its rows come with the next. However
    many of these stand in between, the units behind them are found.
    """
    query = _SYNCS.format(events=conn.dialect.qualify(catalog.schema, "sl_event"))
    found: list[Sync] = []
    newest, after = position.snapshot, position.seqno
    while True:
        rows = conn.execute(
            f"{query} and ev_seqno > :after order by ev_seqno limit :limit",
            {"origin": position.origin, "sync": SYNC, "after": after, "limit": limit},
        )
        for seqno, at, text in rows:
            sync = Sync(int(seqno), _utc(at), text, TxidSnapshot.parse(text))
            if sync.snapshot.follows(newest):
                found.append(sync)
                newest = sync.snapshot
            after = sync.seqno
        if len(rows) < limit or len(found) >= limit:
            return found[:limit]


def read_tables(conn: Connection, catalog: Catalog) -> Tables:
    """Which set each table and sequence is in now."""
    tables, sequences = (conn.dialect.qualify(catalog.schema, name) for name in ("sl_table", "sl_sequence"))
    return Tables(
        {int(number): set_id for number, set_id in conn.execute(f"select tab_id, tab_set from {tables}")},
        {
            int(number): (set_id, schema, name)
            for number, set_id, schema, name in conn.execute(
                f"select seq_id, seq_set, seq_nspname::text, seq_relname::text from {sequences}"
            )
        },
    )


def require_sets(conn: Connection, catalog: Catalog, origin: int, sets: Collection[int]) -> None:
    """Refuse sets that are not of this origin.

    Raises: FeedSetUnknown.
    """
    rows = conn.execute(
        f"select set_id from {conn.dialect.qualify(catalog.schema, 'sl_set')} where set_origin = :origin",
        {"origin": origin},
    )
    known = sorted(number for (number,) in rows)
    strange = sorted(set(sets).difference(known))
    if strange:
        names = ", ".join(map(str, known)) or "none"
        raise FeedSetUnknown(
            f"set {strange[0]} is none of origin {origin} (it has {names}); it was dropped, moved or merged,"
            " or never was; name sets of this origin"
        )


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
