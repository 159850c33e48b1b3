"""The row of a replica, with the part of the keys that it holds and the bound of its purged tombstones.

Invariants:
- a replica is PARTIAL, or becomes so, if and only if it has the table `part` and the layout version that says
  so: whatever else its row says, one with a part is never ONLINE; where the part is missing it is unknown;
- a part is written once, in the transaction that empties a blank replica for its copy, and never changes.
"""

from typing import Final

from spark.formats.csn import Csn
from spark.formats.part import Part, PartInvalid
from spark.formats.replica import (
    LAYOUT_OF_BOTH,
    LAYOUT_OF_PARTS,
    LAYOUT_VERSION,
    LAYOUTS_READ,
    LAYOUTS_WITH_BOUND,
    LAYOUTS_WITH_PART,
    ReplicaTables,
    part_table,
    tables_of,
)
from spark.replication.errors import LayoutUnknown, ReplicaMissing, ReplicaPartial
from spark.replication.records import ReplicaRow, ReplicaStatus
from spark.replication.replica.buried import read_bound
from spark.targets.connection import Connection
from spark.targets.errors import TargetSchemaUnsupported, TargetTablesMissing

_REPLICA: Final = "rid, generation, incarnation, status, restored_upto, layout_version"
_WHOLE: Final = frozenset({ReplicaStatus.ONLINE, ReplicaStatus.EMPTY})


def read_row(conn: Connection, tables: ReplicaTables) -> ReplicaRow:
    """Who the replica is; inside a transaction or without one.

    Raises: ReplicaMissing, LayoutUnknown.
    """
    try:
        rows = conn.execute(f"select {_REPLICA} from {tables.replica}")
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error
    except TargetSchemaUnsupported as error:
        raise LayoutUnknown(error.detail) from error
    if len(rows) != 1:
        raise LayoutUnknown(f"{tables.replica} has {len(rows)} rows, not one")
    rid, generation, incarnation, status, upto, version = rows[0]
    if version not in LAYOUTS_READ:
        raise LayoutUnknown(f"the layout has version {version}, this Lethe knows {LAYOUT_VERSION}")
    try:
        known = ReplicaStatus(status)
    except ValueError:
        raise LayoutUnknown(f"{status!r} is no status of a replica") from None
    part = _read_part(conn) if version in LAYOUTS_WITH_PART else None
    buried = read_bound(conn) if version in LAYOUTS_WITH_BOUND else None
    if part is None and known is ReplicaStatus.PARTIAL:
        raise LayoutUnknown("the replica is PARTIAL, and nothing says which keys it holds")
    if part is not None and known in _WHOLE:
        known = ReplicaStatus.PARTIAL
    return ReplicaRow(rid, generation, incarnation, known, None if upto is None else Csn(upto), part, buried)


def require_held(row: ReplicaRow, database: bytes, key: bytes) -> None:
    """Refuse to say of a key what a replica that does not hold it cannot know: that it has no entry.

    Raises: ReplicaPartial.
    """
    if row.part is not None and not row.part.has(database, key):
        raise ReplicaPartial("the replica holds some keys only, not this one: ask one that holds all keys")


def put_part(conn: Connection, part: Part) -> None:
    """Let a blank replica hold a part only, inside the transaction that empties it; it never changes."""
    assert conn.in_transaction, "a part and the beginning of its copy share one transaction"
    text = "text" if conn.dialect.name == "sqlite" else 'text collate "C"'
    conn.execute(
        f"create table {part_table(conn)} (one integer not null primary key check (one = 1),"
        f" keys {text} not null)"
    )
    conn.execute(f"insert into {part_table(conn)} (one, keys) values (1, :keys)", {"keys": part.text()})
    bounds = ", ".join(map(str, sorted(LAYOUTS_WITH_BOUND)))
    conn.execute(
        f"update {tables_of(conn).replica} set layout_version ="
        f" case when layout_version in ({bounds}) then {LAYOUT_OF_BOTH} else {LAYOUT_OF_PARTS} end"
    )


def _read_part(conn: Connection) -> Part:
    try:
        rows = conn.execute(f"select keys from {part_table(conn)}")
        if len(rows) != 1:
            raise LayoutUnknown(f"the table of the part has {len(rows)} rows, not one")
        return Part.parse(rows[0][0])
    except (TargetTablesMissing, TargetSchemaUnsupported) as error:
        raise LayoutUnknown(f"nothing says which keys the replica holds: {error.detail}") from error
    except PartInvalid as error:
        raise LayoutUnknown(f"the table of the part: {error}") from error
