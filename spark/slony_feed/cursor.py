"""Where a feed stands, in a table of the replica that it fills.

Invariants:
- the row is written in the transaction that writes the entries of its unit, and in no other;
- there is one row: one feed fills a replica.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from spark.slony_feed.source import Known, Life
from spark.targets.connection import Connection

TABLE: Final = "slony_feed"


@dataclass(frozen=True, slots=True)
class Feed:
    """Which feed it is.

    Attributes:
        sets: only tables of these; empty: of all sets of the origin.
        tables: only these, as `schema.table`; empty: all, and the sequences.
        prefix: what every key begins with.
    """

    cluster: str
    origin: int
    sets: frozenset[int] = frozenset()
    tables: frozenset[str] = frozenset()
    prefix: str = ""

    @property
    def database(self) -> bytes:
        """Of its entries."""
        return self.cluster.encode()


@dataclass(frozen=True, slots=True)
class Cursor:
    """A feed and how far it is.

    Attributes:
        seqno, snapshot, at_us: the last SYNC that was applied, or that of the first copy.
        copied: what the copy saw, until a SYNC has come.
        life: whose copy it was, until a SYNC has come.
        known: the tables as the copy found them.
        seen: the replica's RUV as the last unit left it.
        copied_by: the job that made the first copy.
        copies, copied_rows, units, records, scripts: since there is a feed here.
        scripted: the SYNC of the last EXECUTE SCRIPT since the copy.
    """

    feed: Feed
    seqno: int
    snapshot: str
    at_us: int | None
    copied: str | None
    life: Life | None
    known: Known
    seen: Mapping[int, str]
    copied_by: str
    copies: int = 0
    copied_rows: int = 0
    units: int = 0
    records: int = 0
    scripts: int = 0
    scripted: int | None = None


def read_cursor(conn: Connection) -> Cursor | None:
    """The cursor of a replica; None: no feed has filled it."""
    if not _is_there(conn):
        return None
    rows = conn.execute(f"select state, known from {_name(conn)} where one = 1")
    return _parsed(json.loads(rows[0][0]), json.loads(rows[0][1])) if rows else None


def put_cursor(conn: Connection, cursor: Cursor, *, with_known: bool = False) -> None:
    """Write the cursor, inside the transaction of its entries.

    Args:
        with_known: of a first copy: there may be no row yet.
    """
    assert conn.in_transaction, "the cursor and its entries share one transaction"
    state = json.dumps(_state(cursor), sort_keys=True)
    if not with_known:
        conn.execute(f"update {_name(conn)} set state = :state where one = 1", {"state": state})
        return
    if not _is_there(conn):
        conn.execute(
            f"create table {_name(conn)} (one integer not null primary key check (one = 1),"
            " state text not null, known text not null)"
        )
    conn.execute(f"delete from {_name(conn)}")
    known = json.dumps(cursor.known.as_json(), sort_keys=True)
    conn.execute(
        f"insert into {_name(conn)} (one, state, known) values (1, :state, :known)",
        {"state": state, "known": known},
    )


def _state(cursor: Cursor) -> dict[str, Any]:
    feed = asdict(cursor.feed) | {"sets": sorted(cursor.feed.sets), "tables": sorted(cursor.feed.tables)}
    names = [name for name in Cursor.__slots__ if name not in ("feed", "known", "life", "seen")]
    return {
        "feed": feed,
        "life": None if cursor.life is None else asdict(cursor.life),
        "seen": {str(rid): csn for rid, csn in cursor.seen.items()},
    } | {name: getattr(cursor, name) for name in names}


def _parsed(state: dict[str, Any], known: Any) -> Cursor:
    feed, life = state.pop("feed"), state.pop("life")
    seen = {int(rid): csn for rid, csn in state.pop("seen").items()}
    return Cursor(
        feed=replace(Feed(**feed), sets=frozenset(feed["sets"]), tables=frozenset(feed["tables"])),
        life=None if life is None else Life(**life),
        known=Known.from_json(known),
        seen=seen,
        **state,
    )


def _name(conn: Connection) -> str:
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{TABLE}")


def _is_there(conn: Connection) -> bool:
    name = f"{conn.target.table_prefix}{TABLE}"
    if conn.dialect.name == "postgresql":
        return bool(
            conn.execute(
                "select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
                " where n.nspname = :schema and c.relname = :name",
                {"schema": conn.target.schema or "public", "name": name},
            )
        )
    return bool(conn.execute("select 1 from sqlite_schema where name = :name", {"name": name}))
