"""Which nodes and channels a database of SymmetricDS knows: by its configuration, and by batches that wait.

Source: facts/symmetricds-purge, section 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark.formats.symmetricds import NODE
from spark.purge.reading.catalog import columns_of
from spark.purge.reading.inspect import readable
from spark.purge.upkeep_rules import CHANNEL
from spark.targets.connection import Connection

NAMES_MAX: Final = 10_000
"""Nodes, or channels, that are read; where there are more nobody says that one is not among them."""


@dataclass(frozen=True, slots=True)
class Known:
    """Names, sorted; None: there are more than are read, or the role may not read them."""

    nodes: tuple[str, ...] | None
    channels: tuple[str, ...] | None


def read_known(
    conn: Connection,
    *,
    nodes: Iterable[str],
    channels: Iterable[str],
    names_max: int = NAMES_MAX,
) -> Known:
    """Those of `node` and `channel`, and these, which batches name.

    Raises: TargetError.
    """
    return Known(
        nodes=_names(conn, NODE, "node_id", nodes, names_max),
        channels=_names(conn, CHANNEL, "channel_id", channels, names_max),
    )


def _names(
    conn: Connection, table: str, column: str, waiting: Iterable[str], names_max: int
) -> tuple[str, ...] | None:
    if column not in columns_of(conn, table) or not readable(conn, table):
        return None
    name = conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{table}")
    found = conn.execute(f"select {column} from {name} limit {names_max + 1}")
    names = {str(each) for (each,) in found} | set(waiting)
    return None if len(names) > names_max else tuple(sorted(names))
