"""Which channels a request names that SymmetricDS does not have."""

from collections.abc import Sequence

from spark.purge.reading.catalog import columns_of
from spark.purge.reading.inspect import readable
from spark.purge.upkeep_rules import CHANNEL
from spark.targets.connection import Connection


def unknown_channels(conn: Connection, channels: Sequence[str]) -> tuple[str, ...]:
    """Those that are not in `channel`, as the database compares names.

    Returns: nothing too where that table is not there, or where the role may not read it.
    Raises: TargetError.
    """
    if not channels or "channel_id" not in columns_of(conn, CHANNEL) or not readable(conn, CHANNEL):
        return ()
    name = conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{CHANNEL}")
    return tuple(
        channel
        for channel in channels
        if not conn.execute(f"select 1 from {name} where channel_id = :channel", {"channel": channel})
    )
