"""What the target of a REPLICA says of extinctions, read for a verdict."""

from dataclasses import dataclass

from app.db import Database
from app.errors import ServiceError
from app.replication.replica.refusals import NoReplicaYet
from app.replication.replica.replicas import find_status, opened_replica
from app.replication.rows import ReplicaOwn
from app.settings import Settings
from app.stores.rows import Store
from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.consumer.extinctions import KnownExtinction, read_extinctions
from spark.replication.records import ReplicaStatus
from spark.replication.replica.extinction_index import mark_of
from spark.replication.sessions.peers import LackingPeer, announced_missing, availability


@dataclass(frozen=True, slots=True)
class TargetSays:
    """What a replica knew at one moment.

    Attributes:
        mark: names the set of its extinctions; None: there is none.
        known: None: the set is the one of the mark that the caller has.
        missing: the greatest CSNs of extinctions that suppliers have announced and that have not come.
    """

    status: ReplicaStatus
    mark: str | None
    known: tuple[KnownExtinction, ...] | None
    missing: dict[int, Csn]


def ask_target(
    database: Database, settings: Settings, store: Store, *, mark: str | None = None
) -> TargetSays:
    """Read what a replica knows, in one moment.

    Args:
        mark: a set that the caller has; where it is still the same it is not read again.
    Raises: ServiceError: the target cannot be asked.
    """
    try:
        with (
            opened_replica(database, settings, store, purpose="extinctions", create=False) as conn,
            conn.transaction(read_only=True),
        ):
            status = find_status(conn)
            [(now_mark,)] = conn.execute(f"select {mark_of(conn, tables_of(conn))}")
            same = now_mark is not None and now_mark == mark
            known = None if same else tuple(read_extinctions(conn))
            return TargetSays(status, now_mark, known, announced_missing(conn))
    except NoReplicaYet:
        if _was_met(database, store):
            raise
        return TargetSays(ReplicaStatus.EMPTY, None, (), {})  # a store that nobody has used yet


def _was_met(database: Database, store: Store) -> bool:
    """Whether there was a replica once: one that is gone may have known extinctions."""
    with database.reading() as db:
        return db.get(ReplicaOwn, store.id) is not None


def ask_availability(database: Database, settings: Settings, store: Store) -> tuple[LackingPeer, ...]:
    """The peers of a replica that have not announced that they know extinctions.

    Raises: ServiceError.
    """
    try:
        with opened_replica(database, settings, store, purpose="extinctions", create=False) as conn:
            return availability(conn)
    except NoReplicaYet:
        return ()


def try_target(
    database: Database, settings: Settings, store: Store, *, mark: str | None = None
) -> TargetSays | ServiceError:
    """`ask_target`, its refusal as a value: a verdict without it is MAYBE_EXTINCT."""
    try:
        return ask_target(database, settings, store, mark=mark)
    except ServiceError as error:
        return error
