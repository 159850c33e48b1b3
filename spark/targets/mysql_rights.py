"""What a role may do on MariaDB or MySQL, found out by asking the server to prepare a statement.

Grants come from roles, patterns of database names, tables and columns: the server knows best. To prepare is
to be checked, and runs nothing; a session that may not write is told of a missing right first.
"""

from spark.targets.connection import Connection
from spark.targets.errors import TargetAuthFailed, TargetReadOnly, TargetRowConflict

_DENIED = "denied"


def may_run(conn: Connection, statement: str) -> bool:
    """Whether the role has the rights of a statement (without parameters) on tables that are there."""
    try:
        conn.execute("prepare lethe_probe from :statement", {"statement": statement})
    except TargetReadOnly as exc:
        return _DENIED not in exc.detail
    except TargetAuthFailed:
        return False
    except TargetRowConflict:
        return True
    conn.execute("deallocate prepare lethe_probe")
    return True


def refuses_writes(conn: Connection) -> bool:
    """Whether the session or the server is read-only: a replica, most often."""
    return conn.read_only or server_is_read_only(conn)


def server_is_read_only(conn: Connection) -> bool:
    """Whether the server refuses writes of ordinary roles."""
    rows = conn.execute(
        "show global variables where variable_name in ('read_only', 'super_read_only', 'innodb_read_only')"
    )
    return any(str(value).upper() not in ("OFF", "0", "FALSE") for _name, value in rows)
