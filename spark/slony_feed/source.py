"""What a feed must know of the node beside the records: its life, the tables and their keys.

Rules:
- a first copy is proved by a snapshot alone until a SYNC has come behind it. A node that was restored in
  between may count the same transactions again: who it is then, is compared;
- a SYNC is proved by its snapshot and its instant: a restored node can come to the same numbers;
- tables that are not as the copy found them need a new one: of what happened to them the log has a part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from spark.events.feed.errors import NeedsTotal
from spark.events.feed.records import Change
from spark.events.feed.snapshot import TxidSnapshot
from spark.events.records import Catalog
from spark.slony_feed.errors import FeedTableUnknown
from spark.targets.connection import Connection, identity

PRINTED: Final = ("timestamptz", "interval", "bytea", "tstzrange", "_timestamptz")
"""Types of PostgreSQL whose text depends on settings of the session that writes; see `printing`."""
_ANEW: Final = "begin again with a first copy"
_TABLES: Final = """
    select t.tab_id, t.tab_set, n.nspname::text, c.relname::text,
        array(select a.attname::text from pg_catalog.pg_index i
            join pg_catalog.pg_class x on x.oid = i.indexrelid and x.relname = t.tab_idxname
            join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = any(i.indkey)
            where i.indrelid = c.oid order by a.attnum),
        array(select case when b.typnamespace = 'pg_catalog'::regnamespace and b.typname = any(:printed)
                then b.typname::text end from pg_catalog.pg_index i
            join pg_catalog.pg_class x on x.oid = i.indexrelid and x.relname = t.tab_idxname
            join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = any(i.indkey)
            join pg_catalog.pg_type y on y.oid = a.atttypid
            join pg_catalog.pg_type b on b.oid = coalesce(nullif(y.typbasetype, 0), y.oid)
            where i.indrelid = c.oid order by a.attnum)
    from {tables} t join {sets} s on s.set_id = t.tab_set
    join pg_catalog.pg_class c on c.oid = t.tab_reloid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where s.set_origin = :origin order by 1
"""
_SEQUENCES: Final = """
    select q.seq_id, q.seq_set, q.seq_nspname::text, q.seq_relname::text
    from {sequences} q join {sets} s on s.set_id = q.seq_set where s.set_origin = :origin order by 1
"""
_OF_ONE: Final = {
    "SET_ADD_TABLE": 1,
    "SET_DROP_TABLE": 0,
    "SET_MOVE_TABLE": 0,
    "SET_ADD_SEQUENCE": 1,
    "SET_DROP_SEQUENCE": 0,
    "SET_MOVE_SEQUENCE": 0,
}
"""Events of one table or sequence: where its number stands among their data."""
_OF_SETS: Final = frozenset(
    {"DROP_SET", "MERGE_SET", "MOVE_SET", "ACCEPT_SET", "FAILOVER_SET", "FAILOVER_NODE", "RESET_CONFIG"}
)


@dataclass(frozen=True, slots=True)
class Life:
    """Which run of which database it is.

    Attributes:
        recovered_us: since when the server counts its background writes; it begins anew behind a crash, which
            may lose what was committed asynchronously, with the numbers of its transactions.
    """

    identity: str
    started_us: int
    events_oid: int
    recovered_us: int | None = None


@dataclass(frozen=True, slots=True)
class TableKnown:
    """A table that is fed, and the columns of its key.

    Attributes:
        types: of these columns, those that sessions print in several ways; none is: empty.
    """

    schema: str
    table: str
    columns: tuple[str, ...]
    types: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What is fed, by number."""

    tables: Mapping[int, TableKnown] = field(default_factory=dict)
    sequences: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As the cursor keeps it."""
        tables = {
            str(n): [each.schema, each.table, list(each.columns), *([list(each.types)] if each.types else [])]
            for n, each in self.tables.items()
        }
        return {"tables": tables, "sequences": {str(n): list(each) for n, each in self.sequences.items()}}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """As it was kept."""
        return cls(
            {
                int(number): TableKnown(schema, table, tuple(columns), *map(tuple, types))
                for number, (schema, table, columns, *types) in found["tables"].items()
            },
            {int(number): (schema, name) for number, (schema, name) in found["sequences"].items()},
        )


def read_life(conn: Connection, catalog: Catalog) -> Life:
    """Who the node is now: server, its start, the database, the catalog's own table of events."""
    rows = conn.execute(
        "select (extract(epoch from pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint,"
        " cast(:events as regclass)::oid::bigint,"
        " (select (extract(epoch from stats_reset) * 1000000)::bigint from pg_catalog.pg_stat_bgwriter)",
        {"events": conn.dialect.qualify(catalog.schema, "sl_event")},
    )
    started_us, events_oid, recovered_us = rows[0]
    return Life(identity(conn), int(started_us), int(events_oid), recovered_us)


def require_life(conn: Connection, catalog: Catalog, life: Life) -> None:
    """Refuse another run, or another database, than that of the first copy.

    Raises: NeedsTotal.
    """
    now = read_life(conn, catalog)
    if now == life:
        return
    names = {
        "identity": "the database",
        "started_us": "the server's start",
        "events_oid": "sl_event",
        "recovered_us": "the server's last recovery from a crash",
    }
    other = [said for name, said in names.items() if getattr(now, name) != getattr(life, name)]
    raise NeedsTotal(
        f"{', '.join(other)} is another than at the first copy, and no SYNC was applied since: the node may"
        f" have lost what the copy has, and nothing would tell; {_ANEW}"
    )


def require_counted(conn: Connection, copied: TxidSnapshot) -> None:
    """Refuse a node that has counted fewer transactions than the first copy saw.

    Raises: NeedsTotal.
    """
    [(now,)] = conn.execute("select pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot())")
    if now < copied.xmax:
        raise NeedsTotal(
            f"the first copy saw transactions up to {copied.xmax}, the node is at {now} now: it was restored;"
            f" {_ANEW}"
        )


def read_instant(conn: Connection, catalog: Catalog, origin: int, seqno: int) -> int | None:
    """When an event was made, in microseconds since 1970 by its node's clock."""
    rows = conn.execute(
        f"select (extract(epoch from ev_timestamp) * 1000000)::bigint"
        f" from {conn.dialect.qualify(catalog.schema, 'sl_event')}"
        " where ev_origin = :origin and ev_seqno = :seqno",
        {"origin": origin, "seqno": seqno},
    )
    return None if not rows or rows[0][0] is None else int(rows[0][0])


def require_instant(conn: Connection, catalog: Catalog, origin: int, seqno: int, at_us: int | None) -> None:
    """Refuse another SYNC under the position's number, be its snapshot the same.

    Raises: NeedsTotal.
    """
    if read_instant(conn, catalog, origin, seqno) != at_us:
        raise NeedsTotal(
            f"SYNC {origin},{seqno} was made at another instant than the one that was applied: the node was"
            f" restored from a backup, or made anew; {_ANEW}"
        )


def origin_sets(conn: Connection, catalog: Catalog, origin: int) -> frozenset[int]:
    """The sets of an origin."""
    sets = conn.dialect.qualify(catalog.schema, "sl_set")
    rows = conn.execute(f"select set_id from {sets} where set_origin = :origin", {"origin": origin})
    return frozenset(int(number) for (number,) in rows)


def read_known(
    conn: Connection, catalog: Catalog, origin: int, *, sets: frozenset[int], names: frozenset[str]
) -> Known:
    """The tables and sequences that a feed has now.

    Args:
        sets: only of these; empty: of all.
        names: only tables of these names, and no sequence; empty: all.
    Raises: FeedTableUnknown.
    """
    own = {
        name: conn.dialect.qualify(catalog.schema, f"sl_{name[:-1]}")
        for name in ("tables", "sequences", "sets")
    }
    params = {"origin": origin}
    rows = conn.execute(_TABLES.format(**own), {**params, "printed": list(PRINTED)})
    tables = {
        int(number): TableKnown(schema, table, tuple(columns), tuple(types) if any(types) else ())
        for number, set_id, schema, table, columns, types in rows
        if (not sets or set_id in sets) and (not names or f"{schema}.{table}" in names)
    }
    strange = sorted(names.difference(f"{each.schema}.{each.table}" for each in tables.values()))
    if strange:
        raise FeedTableUnknown(f"{strange[0]} is in no set that is fed; name tables as schema.table")
    for number, each in tables.items():
        if not each.columns:
            raise FeedTableUnknown(
                f"{each.schema}.{each.table} (number {number}) lacks the index that sl_table names: its key"
            )
    if names:
        return Known(tables)
    found = conn.execute(_SEQUENCES.format(**own), params)
    return Known(
        tables,
        {int(number): (schema, name) for number, set_id, schema, name in found if not sets or set_id in sets},
    )


def require_known(known: Known, now: Known) -> None:
    """Refuse to go on where the tables or their keys are others than the copy found.

    Raises: NeedsTotal.
    """
    if now == known:
        return
    changed = _changed(known.tables, now.tables) | _changed(known.sequences, now.sequences)
    named = ", ".join(str(number) for number in sorted(changed)[:10])
    raise NeedsTotal(
        f"tables or sequences came, went, or have another name or key since the first copy (number {named}):"
        f" the log has not all of them; {_ANEW}"
    )


def require_same_tables(known: Known, events: Sequence[Change]) -> None:
    """Refuse a unit before which a table of the feed came, went or moved, were it back by now.

    Raises: NeedsTotal.
    """
    numbers = {str(number) for number in (*known.tables, *known.sequences)}
    for event in events:
        detail = event.detail or {}
        kind, data = detail.get("type"), detail.get("data", [])
        place = _OF_ONE.get(str(kind))
        touches = place is not None and place < len(data) and data[place] in numbers
        if touches or kind in _OF_SETS:
            raise NeedsTotal(
                f"event {detail.get('seqno')} is a {kind}: the tables that are fed, or their origin, have"
                f" changed; {_ANEW}"
            )


def _changed(before: Mapping[int, object], now: Mapping[int, object]) -> set[int]:
    return {number for number in {*before, *now} if before.get(number) != now.get(number)}
