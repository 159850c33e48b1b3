"""A replica behind a store: its connection, its layout, and whether its target was put back from a backup.

What this service has told others of a replica (answers to writers, changes offered to peers) is kept in the
metadata row `replicas`. A target that has less was restored: it becomes RESTORED, and read-only.

Invariants:
- the greatest own CSN is noted before an answer or a change leaves, so that the row is never behind what
  others know;
- that a target was put back is told before it is marked, and under a name until it is: a crash in between
  loses no event and doubles none;
- the row is read before a transaction of the target begins: what it says was true then, and own CSNs only
  grow, so a target that is sound has at least that. Before a target is marked it is read again under the lock
  of the replica: a total initialisation or a recovery has made it a new one since.
Source: design.md, Replication.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import or_, update
from sqlmodel import Session, col

from app.db import Database
from app.kit.ids import new_id
from app.outbox.facts import Fact
from app.outbox.writing import forget_name, tell
from app.replication.replica.connections import ConnectionPool, WriterTurns
from app.replication.replica.refusals import ReplicaInitializing, refusal
from app.replication.rows import ReplicaOwn
from app.settings import Settings
from app.stores.borders import judge
from app.stores.errors import StoreNotFound, service_error
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import get_store, require_kind
from app.stores.targets import check_root, session_limits, target_of
from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.csn_generator import ClockSkewExceeded, TimestampOutOfRange
from spark.replication.errors import ReplicaMissing, ReplicationRefused, ReplicaWasRestored
from spark.replication.records import ReplicaRow, ReplicaStatus
from spark.replication.replica.part_row import read_row
from spark.replication.replica.replica import (
    Expected,
    check_restored,
    create_file,
    ensure_layout,
    find_replica,
    own_max_of,
)
from spark.targets.connection import Connection, SessionLimits, Target, connect, sqlite_path
from spark.targets.errors import TargetDatabaseMissing, TargetError, TargetTablesMissing

logger = structlog.get_logger("lethe.replicas")

LOCK_TIMEOUT_MS: Final = 5_000
"""Groups of other instances are waited for: each holds the lock for one transaction."""
_NOTED: Final = "replica of store"
"""Key of `Connection.noted`: the layout was ensured and compared with the metadata over this connection."""

_pool = ConnectionPool()
_turns = WriterTurns()
_supplied: set[str] = set()


@contextmanager
def connected_replica(
    database: Database, settings: Settings, store: Store, *, purpose: str = "replica", create: bool = True
) -> Iterator[Connection]:
    """A connection to a replica, out of a pool; its layout is there and was compared with the metadata.

    A replica that was put back from a backup is marked RESTORED; that is no error here: who may do what with
    one is decided by its status. Transactions of writers take `writer_turn` first.

    Args:
        purpose: for the server's list of sessions; connections of one purpose are used again.
        create: whether a missing file and missing tables are made; else they are ReplicaMissing.
    Raises: TargetError; ReplicationRefused: LayoutUnknown, RidDiffers, ReplicaMissing; ServiceError:
        StoreKindWrong, SecretUnavailable, StoreUrlRefused, StoreNotFound.
    """
    require_kind(store, StoreKind.REPLICA)
    target = target_of(store, settings, database, is_judged=True)
    if target.dialect == "sqlite":
        check_root(Path(sqlite_path(target)), settings)  # a link may have come since it was registered

    def open_new() -> Connection:
        return _open(target, replica_limits(settings), purpose=purpose, create=create)

    with _pool.lend(target, purpose, open_new) as conn:
        if conn.noted.get(_NOTED) != store.id:
            _introduce(database, conn, store, create=create)
            conn.noted[_NOTED] = store.id
        yield conn


@contextmanager
def opened_replica(
    database: Database, settings: Settings, store: Store, *, purpose: str = "replica", create: bool = True
) -> Iterator[Connection]:
    """`connected_replica` for a request of the API: every error leaves as a problem.

    Raises: ServiceError.
    """
    try:
        with connected_replica(database, settings, store, purpose=purpose, create=create) as conn:
            yield conn
    except TargetError as error:
        raise service_error(error) from error
    except (ReplicationRefused, ClockSkewExceeded, TimestampOutOfRange) as error:
        raise refusal(error) from error


@contextmanager
def writer_turn(conn: Connection) -> Iterator[None]:
    """Hold this process's turn to write to a replica, for one transaction; PostgreSQL needs none.

    Raises: TargetLockTimeout: other writers of this process took too long.
    """
    with _turns.turn(conn.target, conn.noted):
        yield


def replica_limits(settings: Settings) -> SessionLimits:
    """How long a statement may wait at a replica."""
    limits = session_limits(settings)
    return replace(limits, lock_timeout_ms=max(limits.lock_timeout_ms, LOCK_TIMEOUT_MS))


def note_supplied(store_id: str) -> None:
    """A supplier has reached a replica through this process."""
    _supplied.add(store_id)


def is_any_supplied() -> bool:
    """Whether `take_supplied` would name one."""
    return bool(_supplied)


def take_supplied() -> set[str]:
    """The stores that suppliers have reached here since the last call."""
    found = set()
    while _supplied:
        found.add(_supplied.pop())
    return found


def close_idle_replicas() -> None:
    """Close the connections that nobody uses now."""
    _pool.close_idle()


def _open(target: Target, limits: SessionLimits, *, purpose: str, create: bool) -> Connection:
    if create:
        create_file(target, roots=limits.roots)
    try:
        return connect(target, application_name=f"lethe:{purpose}", limits=limits)
    except TargetDatabaseMissing as error:
        if target.dialect == "sqlite" and not create:
            raise ReplicaMissing(error.detail) from error
        raise


def _introduce(database: Database, conn: Connection, store: Store, *, create: bool) -> None:
    """See to the layout, and compare the replica with what the metadata remembers of it."""
    assert store.rid is not None, "a store of kind REPLICA has a RID"
    judge(database, store, conn)
    found = find_replica(conn)
    if found is None and not create:
        raise ReplicaMissing("the target has no tables of a replica yet")
    # The generation that a store declares is for an empty replica: a total initialisation brings another.
    declared = store.generation if found is None or found.generation is None else None
    with writer_turn(conn):
        ensure_layout(conn, rid=store.rid, generation=declared, incarnation=new_id("inc"))
    compare_with_memory(database, conn, store.id)


def compare_with_memory(database: Database, conn: Connection, store_id: str) -> ReplicaStatus:
    """Find out whether the target was put back from a backup, and mark it then; its status.

    At the first use of a connection; a session asks again when it begins.
    """
    expected = remember(database, conn, store_id)
    try:
        with writer_turn(conn):
            check_restored(conn, expected)
    except ReplicaWasRestored as error:
        tell_marked(database, store_id, error)
    return find_status(conn)


def note_restored(database: Database, store_id: str, error: ReplicaWasRestored) -> None:
    """Tell the operators that a target was put back from a backup, before it is marked there.

    Where the mark is not committed the loss is found again, and its event is there already.
    """
    data = {"store": store_id, "restored_upto": error.upto, "own_max": error.found_own_max}
    with database.transaction() as db:
        now, once = database.now(db), _name_of(store_id, error)
        tell(
            db,
            Fact.REPLICA_RESTORED,
            store=store_id,
            subject=f"stores/{store_id}",
            data=data,
            now=now,
            once=once,
        )


def tell_marked(database: Database, store_id: str, error: ReplicaWasRestored) -> None:
    """The mark is committed: another loss, as alike as it may be, is another event."""
    logger.warning("replica restored", store=store_id, own_max=error.found_own_max, restored_upto=error.upto)
    with database.transaction() as db:
        forget_name(db, _name_of(store_id, error))


def _name_of(store_id: str, error: ReplicaWasRestored) -> str:
    return f"restored:{store_id}:{error.found_incarnation}:{error.found_own_max}:{error.upto}"


def remember(database: Database, conn: Connection, store_id: str) -> Expected:
    """What the metadata remembers of a replica; one that is new to it is taken as it is.

    Raises: StoreNotFound: it was removed meanwhile.
    """
    expected = find_expected(database, store_id)
    if expected is None or expected.own_max is None:
        expected = _met(database, conn, store_id, known=expected)
    known = expected

    def again() -> Expected:
        return find_expected(database, store_id) or known

    return replace(known, again=again, noted=partial(note_restored, database, store_id))


def _met(database: Database, conn: Connection, store_id: str, *, known: Expected | None) -> Expected:
    incarnation, own_max = _found(conn)
    if known == Expected(incarnation, own_max):
        return known  # nothing to write
    with database.transaction() as db:
        get_store(db, store_id, lock=True)  # two instances meet a new replica at once
        own = db.get(ReplicaOwn, store_id)
        if own is None or own.own_max_csn is None:  # nobody was told anything yet: there is nothing to miss
            _write(db, store_id, incarnation=incarnation, own_max=own_max, now=database.now(db))
            return Expected(incarnation=incarnation, own_max=own_max)
        return Expected(incarnation=own.incarnation, own_max=own.own_max_csn)


def find_expected(database: Database, store_id: str) -> Expected | None:
    """What the metadata remembers of a replica; None: nothing yet.

    Raises: StoreNotFound.
    """
    with database.reading() as db:
        own = db.get(ReplicaOwn, store_id)
        if own is None and db.get(Store, store_id) is None:
            raise StoreNotFound("there is no such store")
    return None if own is None else Expected(incarnation=own.incarnation, own_max=own.own_max_csn)


def note_own_max(db: Session, store_id: str, own_max: str | None, *, now: datetime) -> None:
    """Note the greatest own CSN that others are about to hear of; a smaller one changes nothing.

    In the transaction of the answer; before a session sends its first change.
    """
    if own_max is None:
        return
    greater = or_(col(ReplicaOwn.own_max_csn).is_(None), col(ReplicaOwn.own_max_csn) < own_max)
    db.execute(
        update(ReplicaOwn)
        .where(col(ReplicaOwn.store) == store_id, greater)
        .values(own_max_csn=Csn(own_max), updated_at=now)
    )


def adopt_replica(database: Database, conn: Connection, store_id: str) -> None:
    """Take a replica as it is now: after a total initialisation, or when an admin has accepted a loss.

    Before the replica is ONLINE again: a crash in between leaves it as it was, and never falsely RESTORED.
    """
    incarnation, own_max = _found(conn)
    with database.transaction() as db:
        get_store(db, store_id, lock=True)
        _write(db, store_id, incarnation=incarnation, own_max=own_max, now=database.now(db))


def remember_incarnation(database: Database, store_id: str, *, incarnation: str, own_max: str | None) -> None:
    """Write what the metadata is to remember from now on, whatever it remembered."""
    with database.transaction() as db:
        get_store(db, store_id, lock=True)
        _write(db, store_id, incarnation=incarnation, own_max=own_max, now=database.now(db))


def require_readable(conn: Connection) -> ReplicaRow:
    """Refuse to show a replica whose total initialisation is under way; inside the reader's transaction.

    Raises: ReplicaInitializing; ReplicaMissing, LayoutUnknown.
    """
    row = read_row(conn, tables_of(conn))
    if row.status is ReplicaStatus.INITIALIZING:
        raise ReplicaInitializing("a total initialisation is under way: what is there is not complete")
    return row


def find_status(conn: Connection) -> ReplicaStatus:
    """The status of a replica.

    Raises: ReplicaMissing.
    """
    try:
        [(status,)] = conn.execute(f"select status from {tables_of(conn).replica}")
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error
    return ReplicaStatus(status)


def _found(conn: Connection) -> tuple[str, str | None]:
    """Incarnation and greatest own CSN of a replica."""
    with conn.transaction(read_only=True):
        row = find_replica(conn)
        if row is None:
            raise ReplicaMissing("the target has no tables of a replica yet")
        return row.incarnation, own_max_of(conn, tables_of(conn))


def _write(db: Session, store_id: str, *, incarnation: str, own_max: str | None, now: datetime) -> None:
    own = db.get(ReplicaOwn, store_id)
    if own is None:
        own = ReplicaOwn(store=store_id, incarnation=incarnation, updated_at=now)
    own.incarnation, own.own_max_csn, own.updated_at = incarnation, own_max, now
    db.add(own)
    db.flush()
