"""Local writes of many requests in one transaction: a group per store at a time, one thread for each store.

Rules:
- an answer leaves after its changes are committed at the target, and after the greatest own CSN and the audit
  rows are committed in the metadata;
- a request that waits holds no thread; what all of them hold in memory is bounded;
- a writer that is alone waits for nobody: a group waits only for requests that are being read already;
- what is wrong with one request fails that one alone.
Source: design.md, Replication.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog
from sqlmodel import Session

from app.auth.actions import Action
from app.auth.mutation import key_in_flight, key_reused
from app.auth.rows import audited
from app.clock import Clock
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable, ServiceError, Unavailable
from app.replication.replica.refusals import ReplicaBusy, csn_mismatch, key_extinct, refusal
from app.replication.replica.replicas import (
    connected_replica,
    note_own_max,
    remember,
    tell_marked,
    writer_turn,
)
from app.settings import Settings
from app.stores.errors import service_error
from app.stores.rows import Store
from app.stores.service import get_store
from spark.replication.csn_generator import ClockSkewExceeded, TimestampOutOfRange
from spark.replication.errors import (
    ReplicaMissing,
    ReplicaNotOnline,
    ReplicationRefused,
    ReplicaWasRestored,
)
from spark.replication.replica.conditions import CsnDiffers
from spark.replication.replica.local_write import (
    Answer,
    KeyExtinct,
    KeyReused,
    LocalRequest,
    RequestWritten,
    write_group,
)
from spark.replication.replica.replica import find_replica
from spark.targets.errors import TargetError, TargetLockTimeout

logger = structlog.get_logger("lethe.changes")

IDLE_S: Final = 10.0
"""So long a thread stays for a store that nobody writes to."""
LOCK_WAIT_MAX_S: Final = 15.0

Outcome = RequestWritten | ServiceError


@dataclass(frozen=True, slots=True)
class Writer:
    """Who asks, for the audit row."""

    token_id: str
    name: str
    request_id: str | None


@dataclass(slots=True, eq=False)
class Waiting:
    """A request whose changes are read and not yet written."""

    request: LocalRequest
    writer: Writer
    answer: Future[RequestWritten] = field(default_factory=Future)

    @property
    def changes(self) -> int:
        """How many changes it has."""
        return int(self.request.batch.num_rows)


class ChangeWriters:
    """The groups of all stores of this process.

    Args:
        settings: replication_group_*, replication_waiting_*.
        told: called with a store whose changes are committed and noted.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        clock: Clock,
        *,
        told: Callable[[str], None] = lambda _store_id: None,
    ) -> None:
        self.database, self.settings, self.clock = database, settings, clock
        self._told = told
        self._guard = threading.Condition()
        self._queues: dict[str, _Queue] = {}
        self._arriving: dict[str, int] = {}
        self._requests = 0
        self._bytes = 0
        self._closing = False

    @contextmanager
    def admitted(self, size_bytes: int) -> Iterator[None]:
        """Hold the room that a request takes from its first byte to its answer.

        Raises: ReplicaBusy: there is none left.
        """
        with self._guard:
            requests, held = self._requests + 1, self._bytes + size_bytes
            if self._closing or requests > self.settings.replication_waiting_requests_max:
                raise ReplicaBusy("too many requests with changes wait")
            if self._requests and held > self.settings.replication_waiting_max_bytes:
                raise ReplicaBusy("too many bytes of changes wait")
            self._requests, self._bytes = requests, held
        try:
            yield
        finally:
            with self._guard:
                self._requests -= 1
                self._bytes -= size_bytes

    @contextmanager
    def arriving(self, store_id: str) -> Iterator[None]:
        """Tell that a request is about to be submitted: a group may wait for it a moment."""
        with self._guard:
            self._arriving[store_id] = self._arriving.get(store_id, 0) + 1
        try:
            yield
        finally:
            with self._guard:
                self._arriving[store_id] -= 1
                if not self._arriving[store_id]:
                    del self._arriving[store_id]
                self._guard.notify_all()

    def submit(self, store_id: str, waiting: Waiting) -> None:
        """Hand a request to the writer of its store; its `answer` comes with the group's end.

        Raises: Conflict: a request with its Idempotency-Key is in flight.
        """
        with self._guard:
            queue = self._queues.get(store_id)
            if queue is None:
                queue = self._queues[store_id] = _Queue()
                name = f"lethe-changes-{store_id}"
                threading.Thread(target=self._run, args=(store_id, queue), name=name, daemon=True).start()
            queue.add(waiting)
            self._guard.notify_all()

    def close(self) -> None:
        """Take no more requests; what waits is written."""
        with self._guard:
            self._closing = True
            self._guard.notify_all()

    def _run(self, store_id: str, queue: "_Queue") -> None:
        while (group := self._next_group(store_id, queue)) is not None:
            try:
                outcomes = self._written(store_id, group)
            except ServiceError as error:
                outcomes = [error] * len(group)
            except Exception as error:  # a bug: it reaches the requests as one, and the thread lives on
                logger.exception("group failed", store=store_id)
                self._settle(queue, group, [error] * len(group))
                continue
            self._settle(queue, group, outcomes)

    def _settle(
        self, queue: "_Queue", group: Sequence[Waiting], outcomes: Sequence[Outcome | Exception]
    ) -> None:
        with self._guard:
            queue.forget(group)
        for waiting, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Exception):
                waiting.answer.set_exception(outcome)
            else:
                waiting.answer.set_result(outcome)

    def _next_group(self, store_id: str, queue: "_Queue") -> list[Waiting] | None:
        """Wait for requests; None: nobody has written for a while, and this thread's time is over."""
        changes_max = self.settings.replication_group_changes_max
        with self._guard:
            while True:
                self._guard.wait_for(lambda: queue.waiting or self._closing, timeout=IDLE_S)
                if not queue.waiting:
                    del self._queues[store_id]
                    return None
                deadline = time.monotonic() + self.settings.replication_group_wait_ms / 1000
                while self._arriving.get(store_id) and queue.changes < changes_max:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        break
                    self._guard.wait(left_s)
                group = queue.take(changes_max)
                if group:
                    return group

    def _written(self, store_id: str, group: Sequence[Waiting]) -> list[Outcome]:
        """Write a group and note it; the outcome of each of its requests.

        Raises: ServiceError: none of them was written, or nobody knows.
        """
        with self.database.reading() as db:
            store = get_store(db, store_id)
        try:
            outcomes, own_max = self._commit(store, group)
        except TargetError as error:
            if error.transient or len(group) == 1:
                raise service_error(error) from error
            return [self._written_alone(store_id, waiting) for waiting in group]
        try:
            with self.database.transaction() as db:
                now = self.clock.now()
                note_own_max(db, store_id, own_max, now=now)
                _audit(db, store_id, group, outcomes, now=now)
        except (MetadataBusy, MetadataUnavailable) as error:
            raise _unnoted(error) from error
        self._told(store_id)
        return outcomes

    def _written_alone(self, store_id: str, waiting: Waiting) -> Outcome:
        """One request of a group that the target has refused as a whole."""
        try:
            return self._written(store_id, [waiting])[0]
        except ServiceError as error:
            return error

    def _commit(self, store: Store, group: Sequence[Waiting]) -> tuple[list[Outcome], str | None]:
        """Write a group to the target; outcomes, and the greatest own CSN.

        Raises: TargetError; ServiceError: the replica refuses.
        """
        give_up_s = time.monotonic() + LOCK_WAIT_MAX_S
        is_second = False
        while True:
            try:
                return self._try_commit(store, group)
            except TargetLockTimeout:
                if time.monotonic() >= give_up_s:
                    raise
            except ReplicaMissing as error:  # its tables were dropped under a connection
                if is_second:
                    raise refusal(error) from error
                is_second = True
            except ReplicationRefused as error:  # the target holds something else
                raise refusal(error) from error

    def _try_commit(self, store: Store, group: Sequence[Waiting]) -> tuple[list[Outcome], str | None]:
        with connected_replica(self.database, self.settings, store, purpose="changes") as conn:
            expected = remember(self.database, conn, store.id)
            try:
                with writer_turn(conn):
                    written = write_group(
                        conn,
                        [waiting.request for waiting in group],
                        now_s=int(self.clock.now().timestamp()),
                        expected=expected,
                    )
            except ReplicaMissing:
                conn.close()
                raise
            except ReplicaWasRestored as error:
                tell_marked(self.database, store.id, error)
                raise refusal(error) from error
            except ReplicaNotOnline as error:
                row = find_replica(conn)
                raise refusal(error, upto=None if row is None else row.restored_upto) from error
            except (ReplicationRefused, ClockSkewExceeded, TimestampOutOfRange) as error:
                raise refusal(error) from error
        outcomes: list[Outcome] = [_outcome(found) for found in written.requests]
        return outcomes, written.own_max


def _outcome(found: Answer) -> Outcome:
    if isinstance(found, KeyReused):
        return key_reused()
    if isinstance(found, CsnDiffers):
        return csn_mismatch(found)
    return key_extinct(found) if isinstance(found, KeyExtinct) else found


class _Queue:
    """What waits for one store; touched under the guard of all."""

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.changes = 0
        self._keys: set[str] = set()

    def add(self, waiting: Waiting) -> None:
        """Raises: Conflict: a request with its Idempotency-Key is in flight."""
        key = waiting.request.idempotency
        if key is not None:
            if key.key in self._keys:
                raise key_in_flight()
            self._keys.add(key.key)
        self.waiting.append(waiting)
        self.changes += waiting.changes

    def take(self, changes_max: int) -> list[Waiting]:
        """The longest waiting ones: at most so many changes, or one request that has more."""
        group: list[Waiting] = []
        changes = 0
        while self.waiting and (not group or changes + self.waiting[0].changes <= changes_max):
            waiting = self.waiting.popleft()
            self.changes -= waiting.changes
            if waiting.answer.set_running_or_notify_cancel():
                group.append(waiting)
                changes += waiting.changes
            else:
                self.forget([waiting])
        return group

    def forget(self, group: Sequence[Waiting]) -> None:
        """Their keys are in flight no more."""
        self._keys.difference_update(
            waiting.request.idempotency.key for waiting in group if waiting.request.idempotency is not None
        )


def _audit(
    db: Session, store_id: str, group: Sequence[Waiting], outcomes: Sequence[Outcome], *, now: datetime
) -> None:
    """A row for each request that has changed something now."""
    db.add_all(
        audited(
            Action.CHANGES_WRITE,
            ("store", store_id),
            at=now,
            actor=waiting.writer.name,
            token_id=waiting.writer.token_id,
            store=store_id,
            request_id=waiting.writer.request_id,
            detail={"changes": found.changes, "first_csn": found.first_csn, "last_csn": found.last_csn},
        )
        for waiting, found in zip(group, outcomes, strict=True)
        if isinstance(found, RequestWritten) and found.changes and not found.replayed
    )


def _unnoted(error: ServiceError) -> ServiceError:
    detail = f"{error.detail}; the changes may be written: repeat them with their Idempotency-Key"
    return Unavailable(detail, code=error.code, headers=error.headers)
