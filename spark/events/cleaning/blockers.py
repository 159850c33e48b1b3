"""The sessions of the target that keep a log table from being emptied.

Whoever has read the status of the log holds a lock on that sequence as long as its transaction lasts, a slon
that is about to copy rows of another origin into the table among them: it waits for the provider first, and
has no transaction id until then.
A role without pg_read_all_stats sees of others' sessions only that they are there: then their locks are still
shown, their transactions are not, and one that has read the status counts as older than any switch.
Source: facts/slony, sections 3 and 8.
"""

from datetime import datetime
from typing import Final

from spark.events.cleaning.records import Session
from spark.targets.connection import Connection

STARTED_KEY: Final = "logswitch.laststart"
"""In sl_registry: when the last switch was started."""
SESSIONS_MAX: Final = 50
"""Those that may still write are shown first, then the oldest; each of them blocks, so more would tell
nothing new."""

_SESSIONS = """
    with held as (
        select pid, relation from pg_catalog.pg_locks
        where granted and locktype = 'relation' and pid is not null
            and relation in (cast(:name as regclass), cast(:status as regclass))
            and database = (select oid from pg_catalog.pg_database where datname = current_database())
    ), seen as (
        select a.*, a.pid in (select pid from held where relation = cast(:name as regclass)) as has_lock,
            a.pid in (select pid from held where relation = cast(:status as regclass)) as has_read
        from pg_catalog.pg_stat_activity a
        where a.pid <> pg_catalog.pg_backend_pid() and a.datname = current_database()
    ), judged as (
        select *, case when cast(:started as timestamptz) is null then false
            when xact_start is null then has_read
            else (has_read or backend_xid is not null) and xact_start <= cast(:started as timestamptz)
            end as is_older
        from seen
    )
    select pid, coalesce(application_name, ''), coalesce(usename, ''), state,
        extract(epoch from clock_timestamp() - xact_start)::float8,
        backend_xid::text::bigint, backend_xmin::text::bigint, has_lock, is_older
    from judged
    where has_lock or is_older or backend_xid is not null or backend_xmin is not null
    order by is_older desc, xact_start nulls last, pid limit :limit
"""
_PREPARED = """
    select p.gid, p.owner, extract(epoch from clock_timestamp() - p.prepared)::float8
    from pg_catalog.pg_prepared_xacts p
    where p.database = current_database() and exists (
        select from pg_catalog.pg_locks x
        join pg_catalog.pg_locks l on l.virtualtransaction = x.virtualtransaction and l.pid is null
        where x.locktype = 'transactionid' and x.transactionid = p.transaction and x.pid is null
            and l.locktype = 'relation' and l.relation = cast(:name as regclass)
    )
    order by p.prepared limit :limit
"""


def read_sessions(
    conn: Connection, schema: str, table: str, *, started_at: datetime | None
) -> tuple[Session, ...]:
    """Sessions that hold a lock on a log table, may still write to it, or back what SYNCs may see.

    Args:
        started_at: of the switch; None: not known, and nobody counts as older.
    """
    asked = {"name": conn.dialect.qualify(schema, table), "limit": SESSIONS_MAX}
    status = conn.dialect.qualify(schema, "sl_log_status")
    rows = conn.execute(_SESSIONS, {**asked, "started": started_at, "status": status})
    prepared = conn.execute(_PREPARED, asked)
    return (
        *(Session(*row) for row in rows),
        *(
            Session(None, f"prepared transaction {gid}", owner, "prepared", age, None, None, True, False)
            for gid, owner, age in prepared
        ),
    )


def read_older_sessions(conn: Connection, schema: str, table: str) -> tuple[Session, ...]:
    """Those that may still write to a log table though the switch away from it has been started."""
    found = read_sessions(conn, schema, table, started_at=read_started(conn, schema))
    return tuple(item for item in found if item.is_older)


def read_started(conn: Connection, schema: str) -> datetime | None:
    """When the last switch was started; None where that was never noted, or is not noted yet."""
    registry = conn.dialect.qualify(schema, "sl_registry")
    rows = conn.execute(
        f"select nullif(reg_timestamp, '-infinity') from {registry} where reg_key = :key",
        {"key": STARTED_KEY},
    )
    return rows[0][0] if rows else None
