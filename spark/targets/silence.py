"""The proof that nothing of a job is being written any more, asked of the target itself.

Every connection of a job carries `<job_id>:<unit_id>:<token>` as its application_name. Together with a raised
fence (no older unit can begin) an empty list here means: nothing older writes, and nothing older will.
"""

from dataclasses import dataclass
from datetime import datetime

from spark.targets.connection import APPLICATION_NAME_BYTES, Connection

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
