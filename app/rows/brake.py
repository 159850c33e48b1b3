"""A purge ROWS rests while replicas of its target are too far behind.

Rules:
- no unit begins while the greatest lag that is known is above the bound, or while a named replica does not
  tell its own: what is not known is not taken for good;
- clients see which replica holds the job, and by how much; the job stops as fast as ever meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

from app.errors import ServiceError
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.stores.models import StoreKind
from app.stores.service import get_store, require_kind
from app.stores.targets import opened
from spark.rows.lag import Lag, lag_of_replica, lags_of_primary
from spark.targets.connection import Connection
from spark.targets.errors import TargetError

LOOK_EVERY_S: Final = 1.0
REST_S: Final = 0.5
WAITING_KIND: Final = "REPLICA_LAG"
Look = Callable[[], Sequence[Lag]]


@dataclass(slots=True)
class Brake:
    """Holds a sweep between two units.

    Args:
        look: asks how far the replicas are behind.
    """

    context: JobContext
    look: Look
    most: timedelta
    held_s: float = 0.0
    _looked_at_s: float | None = field(default=None, init=False)

    def keep(self) -> None:
        """Return when the replicas are near enough, or the job must stop."""
        now_s = self.context.clock.boottime_s()
        if self._looked_at_s is not None and now_s - self._looked_at_s < LOOK_EVERY_S:
            return
        shown: WaitingOn | None = None
        while (worst := self._worst()) is not None and self.context.stop_cause is None:
            waiting = WaitingOn(kind=WAITING_KIND, ref=_told(worst))
            if shown is None or waiting.ref.split(":")[0] != shown.ref.split(":")[0]:
                shown = waiting
                self.context.show_waiting([waiting])
            self.context.sleep(REST_S)
        self._looked_at_s = self.context.clock.boottime_s()
        if shown is not None:
            self.held_s += self._looked_at_s - now_s
            self.context.show_waiting([])

    def _worst(self) -> Lag | None:
        most_s = self.most.total_seconds()
        late = [lag for lag in self.look() if lag.seconds is None or lag.seconds > most_s]
        return max(late, key=lambda lag: float("inf") if lag.seconds is None else lag.seconds, default=None)


@dataclass(slots=True)
class NamedReplica:
    """A replica that says itself how far it is behind. One that is away is connected to at each look.

    Args:
        connect: raises ServiceError.
    """

    name: str
    connect: Callable[[], AbstractContextManager[Connection]]
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _conn: Connection | None = field(default=None, init=False)

    def open(self) -> Connection:
        """The connection; a new one if there is none.

        Raises: ServiceError.
        """
        if self._conn is None:
            self._conn = self._stack.enter_context(self.connect())
        return self._conn

    def lag(self) -> Lag:
        """How far it is behind; unknown, and why, while it is away."""
        try:
            return lag_of_replica(self.open(), self.name)
        except (ServiceError, TargetError) as error:
            self.close()
            return Lag(self.name, None, error.detail)

    def close(self) -> None:
        """End the connection, if there is one."""
        self._conn = None
        self._stack.close()


def _told(lag: Lag) -> str:
    if lag.reason is not None:
        return f"{lag.replica}: does not answer ({lag.reason}); it is asked again until it does"
    if lag.seconds is None:
        return f"{lag.replica}: does not tell its lag; let it replicate, and grant the role to see it"
    return f"{lag.replica}: {lag.seconds:.0f} s behind"


@contextmanager
def braking(
    context: JobContext, conn: Connection, *, most: timedelta | None, replicas: Sequence[str]
) -> Iterator[Brake | None]:
    """The brake of a job; None: nobody asked for one.

    Raises: ServiceError: a named replica can never be connected to. One that is away is waited for.
    """
    if most is None:
        yield None
        return
    with ExitStack() as stack:
        named = [stack.enter_context(closing(_named(context, name))) for name in replicas]

        def look() -> Sequence[Lag]:
            return [*lags_of_primary(conn), *(replica.lag() for replica in named)]

        yield Brake(context, look, most)


def _named(context: JobContext, name: str) -> NamedReplica:
    replica = NamedReplica(name, partial(_opened, context, name))
    try:
        replica.open()
    except ServiceError as error:
        if not error.retryable:
            raise type(error)(f"the replica {name}: {error.detail}", code=error.code) from error
    return replica


@contextmanager
def _opened(context: JobContext, name: str) -> Iterator[Connection]:
    store = context.read(lambda db: get_store(db, name))
    require_kind(store, StoreKind.SQL)
    with opened(store, context.settings, context.database, purpose="lag") as conn:
        yield conn
