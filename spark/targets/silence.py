"""The proof that nothing of a job is being written any more, asked of the target itself.

Every connection of a job carries `<job_id>:<unit_id>:<token>` as its application_name. Together with a raised
fence (no older unit can begin) an empty list here means: nothing older writes, and nothing older will.
On MariaDB and MySQL the name is made of user-level locks, see `dialects/mysql_names.py`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spark.targets.connection import APPLICATION_NAME_BYTES, Connection
from spark.targets.dialects.mysql_names import NamedSession, named_sessions
from spark.targets.errors import TargetError

_FIELDS = "a.pid, a.application_name, a.state, a.query_start, a.xact_start"
_OF_THE_JOB = """
    from pg_catalog.pg_stat_activity a
    where a.pid <> pg_backend_pid() and a.datname = current_database()
      and starts_with(a.application_name, :prefix)
"""
# The state is null where this role may not see it: that is no proof of silence.
_AT_WORK = "coalesce(a.state, 'active') <> 'idle'"


@dataclass(frozen=True, slots=True)
class Running:
    """One backend of a job that is in a statement or in a transaction."""

    pid: int
    application_name: str
    state: str | None
    query_start: datetime | None
    xact_start: datetime | None

    @property
    def token(self) -> int | None:
        """The attempt that it belongs to; None where the name does not tell."""
        last = self.application_name.rpartition(":")[2]
        return int(last) if last.isdecimal() else None


def application_name(job_id: str, unit_id: str, token: int) -> str:
    """The name that a connection carries while it works on a unit.

    The server cuts names at 63 bytes: a long unit id is shortened here, so that job and token stay whole.
    """
    room = APPLICATION_NAME_BYTES - len(f"{job_id}::{token}".encode())
    assert room > 0, "job id and token must fit"
    unit = unit_id.replace(":", "_").encode("ascii", "replace")[:room].decode()
    return f"{job_id}:{unit}:{token}"


def running_statements(conn: Connection, job_id: str) -> list[Running]:
    """Backends of the job, ourselves apart, that run a statement or sit in a transaction.

    On SQLite an empty list: the write lock was ours for a moment, so no other transaction was writing.

    Raises: TargetLockTimeout: SQLite: somebody is writing to the file.
    """
    if conn.dialect.name == "sqlite":
        with conn.transaction():
            return []
    if conn.dialect.name == "mysql":
        return [running for running in _mysql_sessions(conn, job_id) if running.state != "idle"]
    rows = conn.execute(
        f"select {_FIELDS} {_OF_THE_JOB} and {_AT_WORK} order by a.pid",
        {"prefix": f"{job_id}:"},
    )
    return [Running(*row) for row in rows]


def terminate_older(conn: Connection, job_id: str, *, token: int) -> list[Running]:
    """End the backends of the job that belong to an attempt before `token`; those that were told to end.

    Idle ones too: a sleeping worker's session keeps its advisory lock, and could begin a unit when it wakes.
    Those at work are gone only when `running_statements` no longer shows them: ask again.

    Raises: TargetReadOnly: a backend belongs to a role whose sessions this one may not end.
    """
    if conn.dialect.name == "sqlite":
        return []
    if conn.dialect.name == "mysql":
        return [
            running
            for running in _mysql_sessions(conn, job_id)
            if running.token is not None and running.token < token and _kill(conn, running.pid)
        ]
    rows = conn.execute(
        f"""
        with older as materialized (
            select {_FIELDS} {_OF_THE_JOB}
              and cast(substring(a.application_name from ':([0-9]{{1,18}})$') as bigint) < :token
        )
        select o.pid, o.application_name, o.state, o.query_start, o.xact_start from older o
        where pg_terminate_backend(o.pid) order by o.pid
        """,
        {"prefix": f"{job_id}:", "token": token},
    )
    return [Running(*row) for row in rows]


def _mysql_sessions(conn: Connection, job_id: str) -> list[Running]:
    """Every session of the job but this one; `idle`: neither in a statement nor in a writing transaction."""

    def ask(sql: str, parameters: dict[str, Any]) -> tuple[Any, ...]:
        [row] = conn.execute(sql, parameters)
        return row

    own = ask("select connection_id()", {})[0]
    sessions = [found for found in named_sessions(ask, job_id) if found.connection_id != own]
    if not sessions:
        return []
    shown = {row[0]: row for row in conn.execute("show full processlist")}
    return [_running(session, job_id, shown.get(session.connection_id)) for session in sessions]


def _running(session: NamedSession, job_id: str, shown: tuple[Any, ...] | None) -> Running:
    name = application_name(job_id, f"slot-{session.slot}", session.token)
    # A session of another role may be hidden from us: that is no proof of silence.
    command = "hidden" if shown is None else str(shown[4])
    state = "active"
    if command == "Sleep":
        state = "idle in transaction" if session.in_transaction else "idle"
    return Running(session.connection_id, name, state, None, None)


def _kill(conn: Connection, connection_id: int) -> bool:
    """The id was read from its locks on this very connection: it cannot be anybody else's by now."""
    try:
        conn.execute(f"kill connection {connection_id:d}")
    except TargetError as exc:
        if exc.code != TargetError.code:  # 1094: it has ended by itself
            raise
    return True
