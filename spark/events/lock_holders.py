"""Who holds the cluster's lock now: its cleaners, slonik, or an administrator's session."""

from typing import Final

from spark.formats.slony import CONFIG_LOCK
from spark.targets.connection import Connection

HOLDERS_MAX: Final = 5

_HOLDERS = """
    select l.pid, coalesce(a.application_name, ''), coalesce(a.usename, ''),
        extract(epoch from clock_timestamp() - a.xact_start)::float8
    from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid
    where l.granted and l.locktype = 'relation' and l.relation = cast(:name as regclass)
        and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
        and l.pid <> pg_catalog.pg_backend_pid()
    order by a.xact_start nulls last, l.pid limit :limit
"""


def read_holders(conn: Connection, schema: str) -> list[str]:
    """Each session in one line; empty: it is free again."""
    asked = {"name": conn.dialect.qualify(schema, CONFIG_LOCK), "limit": HOLDERS_MAX}
    return [_line(*row) for row in conn.execute(_HOLDERS, asked)]


def _line(pid: int | None, application: str, user: str, age_s: float | None) -> str:
    who = "a prepared transaction" if pid is None else f"pid {pid} ({application or 'unnamed'}) of {user}"
    return who if age_s is None else f"{who}, for {age_s:.0f} s"
