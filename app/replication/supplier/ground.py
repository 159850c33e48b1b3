"""What all steps of a session share: its replica, its consumer, its record; and what is noted at the replica.

Rules:
- what this replica is about to show is noted in the metadata before a peer sees it: a target that is put back
  later is known by it;
- the target knows the agreement before its first acquire, so that trimming minds what the consumer lacks.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from sqlmodel import Session

from app.jobs.engines.choice import Engines
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.claims import claim_target
from app.jobs.running.context import JobContext
from app.replication.agreements.service import note_registered, part_of
from app.replication.agreements.sessions.models import SessionParams
from app.replication.agreements.sessions.service import resource_of
from app.replication.peer.client import PeerClient
from app.replication.peer.clock import ClockBound, ahead_max_s_of
from app.replication.replica.replicas import note_own_max, writer_turn
from app.replication.rows import Agreement
from app.replication.supplier.record import Record
from app.stores.rows import Store
from spark.replication.agreements import AgreementUnknown, acknowledge, register_agreement, take_back
from spark.replication.dead_letters import (
    Direction,
    Refused,
    count_open,
    put_dead_letters,
    resolve_dead_letters,
)
from spark.replication.errors import ReplicaPartial
from spark.replication.records import ReplicaStatus, Snapshot
from spark.replication.replica.replica import snapshot
from spark.targets.connection import Connection, identity, target_now

INITIALIZING_LOOK_S: Final = 10.0
SUPPLIES_NOTHING: Final = (
    "the replica holds some keys only and supplies nobody: make the agreement at one that holds all keys"
)


class Ground:
    """The two sides of a session, and its record."""

    def __init__(
        self,
        context: JobContext,
        store: Store,
        agreement: Agreement,
        params: SessionParams,
        record: Record,
        conn: Connection,
        client: PeerClient,
        engines: Engines,
    ) -> None:
        self.context = context
        self.store = store
        self.agreement = agreement
        self.params = params
        self.record = record
        self.conn = conn
        self.client = client
        self.engines = engines
        self.part = part_of(agreement)
        ahead_max_s = context.read(lambda db: ahead_max_s_of(db, store))
        self.bound = ClockBound(context.clock, ahead_max_s=ahead_max_s)
        self._noted_own_max: str | None = None

    def prepare(self) -> None:
        """Take the claim, and let the target know its consumer.

        Raises: JobFailed.
        """
        context, resource = self.context, resource_of(self.agreement.id)
        target_identity = identity(self.conn)

        def take(db: Session) -> str | None:
            context.change(db, {"claim_identity": target_identity, "claim_resource": resource})
            return claim_target(
                db,
                job_id=context.job.id,
                target_identity=target_identity,
                resource=resource,
                now=context.database.now(db),
            )

        other = context.write(take)
        if other is not None:
            raise JobFailed("CONFLICTING_JOB", f"{other} works for this agreement", retryable=True)
        with writer_turn(self.conn):
            self._register()
        context.write(lambda db: note_registered(db, self.agreement.id))

    def look(self, conn: Connection) -> Snapshot:
        """The replica as it is now, if it may supply; what it is about to show is noted first. Any thread.

        Raises: JobFailed, JobWaiting.
        """
        seen = snapshot(conn)
        status = seen.replica.status
        if seen.replica.part is not None:
            raise JobFailed(ReplicaPartial.code, SUPPLIES_NOTHING)
        if status is ReplicaStatus.INITIALIZING:
            until = self.context.clock.now() + timedelta(seconds=INITIALIZING_LOOK_S)
            waiting_on = [WaitingOn(kind="REPLICA_INITIALIZING", ref=self.store.id, until=until)]
            raise JobWaiting(waiting_on, not_before=until)
        if status is not ReplicaStatus.ONLINE:
            detail = f"the replica is {status}: it supplies nothing"
            raise JobFailed("REPLICA_NOT_ONLINE", detail, retryable=True)
        self.bound.held = seen.vectors.ruv
        self.note_shown(seen)
        return seen

    def note_shown(self, seen: Snapshot) -> None:
        """Note what a peer is about to see of own changes, before it does. Any thread."""
        own_max = seen.vectors.ruv.get(seen.replica.rid)
        if own_max is not None and own_max != self._noted_own_max:
            now = self.context.clock.now()
            self.context.write(lambda db: note_own_max(db, self.store.id, own_max, now=now))
            self._noted_own_max = own_max

    def acknowledge(self, ruv: Mapping[int, str], *, consumer_rid: int) -> None:
        """Move what the consumer has acknowledged, in the target."""
        with writer_turn(self.conn):
            try:
                acknowledge(self.conn, self.agreement.id, ruv, consumer_rid=consumer_rid)
            except AgreementUnknown:  # the target was put back to a time before it
                self._register()
                acknowledge(self.conn, self.agreement.id, ruv, consumer_rid=consumer_rid)

    def take_back(self, ruv: Mapping[int, str]) -> None:
        """Let trimming mind a consumer that has less than it has acknowledged once."""
        with writer_turn(self.conn):
            take_back(self.conn, self.agreement.id, ruv)

    def put_letters(self, refused: Sequence[Refused]) -> None:
        """Keep what the consumer has refused where it is seen."""
        with writer_turn(self.conn), self.conn.transaction():
            put_dead_letters(self.conn, Direction.SENT, self.agreement.id, refused, now_s=self._target_s())

    def resolve_letters(self, ruv: Mapping[int, str]) -> None:
        """Mark what the consumer has taken after all."""
        if not count_open(self.conn, Direction.SENT, peer=self.agreement.id):
            return
        now_s = self._target_s()
        with writer_turn(self.conn):
            resolve_dead_letters(self.conn, Direction.SENT, ruv, now_s=now_s, peer=self.agreement.id)

    def _register(self) -> None:
        register_agreement(self.conn, self.agreement.id, now_s=self._target_s())

    def _target_s(self) -> int:
        return int(target_now(self.conn).timestamp())
