"""Who holds up a migration of PostgreSQL metadata: the operator reads of it while it waits."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
import structlog

HOLDERS_MAX: Final = 10
HOLDERS: Final = sa.text(
    "select distinct a.pid, a.application_name, coalesce(host(a.client_addr), 'local') as address,"
    " a.state, a.xact_start"
    " from pg_locks l join pg_stat_activity a using (pid) join pg_class c on c.oid = l.relation"
    " where l.granted and l.locktype = 'relation' and c.relname = any(:tables) and pid <> pg_backend_pid()"
    " and l.database = (select oid from pg_database where datname = current_database())"
    f" order by a.xact_start nulls last, a.pid limit {HOLDERS_MAX}"
)
logger = structlog.get_logger("lethe.starting")


def tell_turn_is_taken(key: int, *, longest: str) -> None:
    """Another migration, a backup or a restore is at work under an advisory key."""
    logger.warning(
        "the upgrade of the metadata waits for another migration, a backup or a restore",
        advisory_lock=key,
        at_most=longest,
    )


def tell_holders(connection: sa.Connection, tables: Sequence[str], *, left_s: float) -> None:
    """Sessions that hold tables of the metadata right now; one that holds them long is idle, as a rule."""
    rows = connection.execute(HOLDERS, {"tables": list(tables)}).mappings()
    logger.warning(
        "the upgrade of the metadata waits for sessions that hold its tables: end them, or it goes on as"
        " they end",
        holders=[{name: str(value) for name, value in row.items()} for row in rows],
        gives_up_in_s=round(left_s),
    )
