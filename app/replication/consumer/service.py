"""A replica as its suppliers reach it: its connection, its turn to write, and what is tried again."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from fastapi import Request

from app.auth.actions import Action
from app.auth.audit_rows import audit_row
from app.auth.service import Caller
from app.clock import Clock
from app.db import Database
from app.replication.consumer.dead_letters.telling import tell_refused
from app.replication.consumer.errors import peer_problem
from app.replication.peer.clock import ahead_max_s_of
from app.replication.replica.replicas import (
    compare_with_memory,
    connected_replica,
    note_supplied,
    remember_incarnation,
    writer_turn,
)
from app.settings import Settings
from app.stores.errors import service_error
from app.stores.rows import Store
from spark.formats.changes.errors import BatchTooLarge, BatchUnreadable
from spark.formats.csn import Csn
from spark.replication.csn_generator import ClockSkewExceeded, TimestampOutOfRange
from spark.replication.dead_letters import Direction, open_csns
from spark.replication.errors import ReplicationRefused
from spark.targets.connection import Connection
from spark.targets.errors import TargetError, TargetLockTimeout

PURPOSE: Final = "consumer"
PAUSES_S: Final = (0.05, 0.2)
"""Between the attempts of a transaction that another one was in the way of."""
AGAIN_WITHIN_S: Final = 5.0
"""After a longer wait for a lock there is no other attempt: the supplier, which waits 30 s, is to be told."""
PEER_FAULTS: Final = (
    BatchTooLarge,
    BatchUnreadable,
    ClockSkewExceeded,
    ReplicationRefused,
    TimestampOutOfRange,
)
Result = TypeVar("Result")


class Consumer:
    """The consumer's side of one store, for one request."""

    def __init__(self, database: Database, settings: Settings, clock: Clock, store: Store) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self.store = store

    @property
    def now_s(self) -> int:
        """This service's clock, by which CSNs are made."""
        return int(self._clock.now().timestamp())

    @property
    def ahead_max_s(self) -> int:
        """How far ahead of it a peer's CSN may be."""
        with self._database.reading() as db:
            return ahead_max_s_of(db, self.store)

    def write(self, transact: Callable[[Connection], Result]) -> Result:
        """Run one transaction of a session, as `attempt`.

        Raises: ServiceError.
        """
        with answered():
            return self.attempt(transact)

    def attempt(self, transact: Callable[[Connection], Result]) -> Result:
        """Run one transaction of a session; after a deadlock or a short wait for a lock twice more.

        Raises: TargetError, ReplicationRefused and what else `answered` makes problems of.
        """
        began_s = self._clock.boottime_s()
        with self._opened() as conn:
            for pause_s in PAUSES_S:
                try:
                    return self._in_turn(conn, transact)
                except TargetLockTimeout:
                    if conn.closed or self._clock.boottime_s() > began_s + AGAIN_WITHIN_S:
                        raise
                time.sleep(pause_s)
            return self._in_turn(conn, transact)

    def begin(self, session_id: str, transact: Callable[[Connection], Result]) -> Result:
        """As `write`, for the first request of a session: a target that was put back is found before.

        So are dead letters that a crash has kept from being told.

        Raises: ServiceError.
        """
        with answered(), self._opened() as conn:
            compare_with_memory(self._database, conn, self.store.id)
            refused = open_csns(conn, Direction.RECEIVED)
        if refused:
            self.tell_refused(session_id, refused)
        return self.write(transact)

    def read(self, look: Callable[[Connection], Result]) -> Result:
        """Look at the replica; nothing is created.

        Raises: ServiceError.
        """
        with answered(), self._opened(create=False) as conn:
            return look(conn)

    def adopt(self, incarnation: str, own_max: Csn | None) -> None:
        """Remember the replica as a total initialisation leaves it."""
        remember_incarnation(self._database, self.store.id, incarnation=incarnation, own_max=own_max)

    def tell_refused(self, session_id: str, refused: Iterable[Csn]) -> None:
        """Tell webhooks of dead letters that the target holds."""
        tell_refused(self._database, self.store.id, session_id, refused)

    def note(
        self, request: Request, caller: Caller, action: Action, session_id: str, detail: Mapping[str, Any]
    ) -> None:
        """Leave an audit row of what a supplier has begun or ended here; of batches the RUV tells."""
        with self._database.transaction() as db:
            subject = ("replication_session", session_id)
            db.add(audit_row(request, caller, action, subject, store=self.store.id, detail=detail))

    def _in_turn(self, conn: Connection, transact: Callable[[Connection], Result]) -> Result:
        with writer_turn(conn):
            result = transact(conn)
        note_supplied(self.store.id)
        return result

    @contextmanager
    def _opened(self, *, create: bool = True) -> Iterator[Connection]:
        with connected_replica(
            self._database, self._settings, self.store, purpose=PURPOSE, create=create
        ) as conn:
            yield conn


@contextmanager
def answered() -> Iterator[None]:
    """Every error of the lower floor leaves as a problem.

    Raises: ServiceError.
    """
    try:
        yield
    except TargetError as error:
        raise service_error(error) from error
    except PEER_FAULTS as error:
        raise peer_problem(error) from error
