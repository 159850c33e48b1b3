"""What a worker does, wherever it runs: open the connection that work needs, do units, tell how each ended.

Threads of the service and Python workers of Spark run the same code; an error of the target is a value.
"""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from spark.targets.advisory import hold
from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import ArchiveFailed, TargetCancelled, TargetError

Unit = TypeVar("Unit")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class UnitWork(Generic[Unit, Result]):
    """What every worker does; picklable.

    Args:
        run: does one unit on one connection.
        application_name: what the target's activity view shows.
        advisory_key: the lock that each connection holds where the target has no ledger.
        folder: where units write files; made by whoever sends the work. A worker that does not find it is on
            a machine that does not share it, and does nothing.
        place: names the target, so that workers of several jobs there are counted together; None: by its URL.
    """

    target: Target
    limits: SessionLimits
    application_name: str
    run: Callable[[Connection, Unit], Result]
    advisory_key: str | None = None
    place: str | None = None
    folder: str | None = None

    @property
    def counted_at(self) -> str:
        """The place at which its workers are counted."""
        return self.place or f"{self.target.url} {self.target.schema}"

    def do(self, connection: Callable[[], Connection], unit: Unit) -> Result:
        """Do one unit on the worker's connection."""
        return self.run(connection(), unit)


@dataclass(frozen=True, slots=True)
class FileWork(Generic[Unit, Result]):
    """Work on files alone: it has no target, so no worker opens a connection for it; picklable.

    Args:
        run: does one unit; a TargetError is its outcome, as of any unit.
        place: where the files lie: workers of several jobs there are counted together.
    """

    run: Callable[[Unit], Result]
    place: str

    @property
    def counted_at(self) -> str:
        """The place at which its workers are counted."""
        return self.place

    def do(self, _connection: Callable[[], Connection], unit: Unit) -> Result:
        """Do one unit; nobody is asked for a connection."""
        return self.run(unit)


AnyWork = UnitWork[Unit, Result] | FileWork[Unit, Result]
"""What an engine is given to do."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Unit, Result]):
    """How one unit ended: a result or an error of the target, and how long it took."""

    unit: Unit
    result: Result | None
    error: TargetError | None
    elapsed_s: float


def renewed(work: AnyWork[Unit, Result]) -> AnyWork[Unit, Result] | None:
    """The work with another password than the one that was refused; None: there is no other.

    A worker elsewhere has the password that its work came with: it cannot read another by itself.
    """
    if not isinstance(work, UnitWork) or work.target.renewal is None:
        return None
    password = work.target.renewal.after_refusal(work.target.password)
    return None if password is None else replace(work, target=replace(work.target, password=password))


def nothing(_conn: Connection) -> None:
    """Nobody wants to know of the connection."""


def require_folder(folder: str) -> None:
    """See that a folder of the archive is there: a machine that does not share it must do nothing.

    Raises: ArchiveFailed: it is not; the detail names this machine.
    """
    if not os.path.isdir(folder):
        where = socket.gethostname()
        raise ArchiveFailed(f"{folder} is not there on {where}: the archive root must be shared storage")


def open_worker(
    work: UnitWork[Unit, Result],
    *,
    may_work: Callable[[], bool] = lambda: True,
    opened: Callable[[Connection], None] = nothing,
    failed: Callable[[Connection], None] = nothing,
) -> Connection:
    """Open the connection of one worker, holding the work's lock.

    Args:
        may_work: whether the job is still ours.
        opened: told of the connection before it waits for anything, so that another thread can cancel it.
        failed: told of the connection that was closed again.
    Raises: TargetError.
    """
    if work.folder is not None:
        require_folder(work.folder)
    conn = connect(work.target, application_name=work.application_name, limits=work.limits)
    opened(conn)
    try:
        if work.advisory_key is not None:
            hold(conn, work.advisory_key)
        # After the lock: a worker that slept before it was free again for somebody else's job.
        if not may_work():
            raise TargetCancelled("the job is not ours any more")
    except TargetError:
        failed(conn)
        conn.close()
        raise
    return conn


def do_unit(
    work: AnyWork[Unit, Result],
    connection: Callable[[], Connection],
    unit: Unit,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome[Unit, Result]:
    """Do one unit, the opening of its connection included; an error of the target is its outcome.

    Args:
        connection: gives the worker's own; asked only by work that has a target.
    """
    began = clock()
    try:
        result = work.do(connection, unit)
    except TargetError as error:
        return Outcome(unit, None, error, clock() - began)
    return Outcome(unit, result, None, clock() - began)
