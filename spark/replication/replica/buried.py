"""Up to where the tombstones of a replica were purged: the greatest CSN of those that are gone.

Invariants:
- the bound is raised in the transaction that removes a tombstone, and is never lowered: a change that comes
  from below it may be of a key that was deleted since, and nothing here says so any more;
- only a copy puts another one in its place, that of the replica whose entries it takes over;
- what the table `buried` says counts if and only if the layout version says so, and then it has one row: one
  that restored tables have left over is made anew, and where the row is lost nobody knows the bound.
"""

from typing import Final

from spark.formats.csn import Csn
from spark.formats.replica import (
    LAYOUT_OF_BOTH,
    LAYOUT_OF_BOUNDS,
    LAYOUT_OF_PARTS,
    LAYOUT_VERSION,
    LAYOUTS_WITH_BOUND,
    buried_table,
    tables_of,
)
from spark.replication.errors import LayoutUnknown
from spark.targets.connection import Connection
from spark.targets.errors import TargetSchemaUnsupported, TargetTablesMissing

_NOTHING: Final = ""
"""Stands for no bound, below every CSN: the row itself stays."""
_TEXT: Final = {"postgresql": 'text collate "C"', "sqlite": "text"}


def read_bound(conn: Connection) -> Csn | None:
    """The bound of a replica whose layout has one; None: nothing is purged.

    Raises: LayoutUnknown.
    """
    try:
        rows = conn.execute(f"select csn from {buried_table(conn)}")
    except (TargetTablesMissing, TargetSchemaUnsupported) as error:
        detail = f"nothing says up to where its tombstones were purged: {error.detail}"
        raise LayoutUnknown(detail) from error
    if len(rows) != 1:
        raise LayoutUnknown(f"the table of purged tombstones has {len(rows)} rows, not one")
    return Csn(rows[0][0]) if rows[0][0] else None


def raise_bound(conn: Connection, csn: Csn) -> None:
    """Move the bound up to a tombstone that goes in this transaction; under `lock_replica`.

    Raises: LayoutUnknown: the layout is older than bounds can be added to.
    """
    assert conn.in_transaction, "the bound and the removal share one transaction"
    _ensure_table(conn)
    table = buried_table(conn)
    conn.execute(
        f"insert into {table} as old (one, csn) values (1, :csn)"
        " on conflict (one) do update set csn = excluded.csn where old.csn < excluded.csn",
        {"csn": str(csn)},
    )


def take_bound(conn: Connection, known: Csn | None, csn: Csn | None) -> None:
    """Take over the bound of a copy with its entries, under `lock_replica`.

    Args:
        known: the bound that stands there.
        csn: that of the copy; None: nothing was purged there.
    """
    assert conn.in_transaction, "the bound and the entries that it is about share one transaction"
    if known is not None:
        conn.execute(f"update {buried_table(conn)} set csn = :csn", {"csn": str(csn or _NOTHING)})
    elif csn is not None:
        raise_bound(conn, csn)


def _ensure_table(conn: Connection) -> None:
    [(version,)] = conn.execute(f"select layout_version from {tables_of(conn).replica}")
    if version in LAYOUTS_WITH_BOUND:
        return
    if version < LAYOUT_VERSION:
        raise LayoutUnknown(
            f"the layout has version {version}, and tombstones are purged from {LAYOUT_VERSION} on: write a"
            " change or run a session with this replica, which ends its upgrade, then purge again"
        )
    conn.execute(f"drop table if exists {buried_table(conn)}")
    conn.execute(
        f"create table {buried_table(conn)} (one integer not null primary key check (one = 1),"
        f" csn {_TEXT[conn.dialect.name]} not null)"
    )
    raised = LAYOUT_OF_BOTH if version == LAYOUT_OF_PARTS else LAYOUT_OF_BOUNDS
    conn.execute(f"update {tables_of(conn).replica} set layout_version = {raised}")
