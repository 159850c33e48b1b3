"""The task of a feed: the claim, both connections, and the loop over pages of SYNCs.

Rules:
- where it stands lies in the replica alone; the metadata keep where the job began, so that its result counts
  what all its attempts have done, and nothing twice;
- the newest SYNC is looked up once: a job ends however fast the node makes new ones.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlmodel import Session

from app.errors import ServiceError
from app.events.nodes import connected_node
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import claim, controlled, signal_of
from app.jobs.running.suspension import awake_store, require_awake
from app.jobs.writing import EVENT_WARNING
from app.replication.agreements.sessions.service import target_of_store
from app.replication.replica.replicas import note_own_max, remember, tell_marked, writer_turn
from app.replication.snapshots.submitting import import_resource
from app.replication.supplier.signals import service_signal, supplying_replica
from app.slony_feed.models import SlonyFeedParams, SlonyFeedResult
from app.slony_feed.submitting import node_of_store
from app.stores.rows import Store
from app.stores.service import get_store
from app.stores.targets import session_limits
from spark.events.records import Catalog
from spark.replication.csn_generator import ClockSkewExceeded, TimestampOutOfRange
from spark.replication.errors import ReplicationRefused, ReplicaWasRestored
from spark.slony_feed.carrying import UNITS_AT_ONCE, Carrier, Hands
from spark.slony_feed.cursor import Cursor, Feed, read_cursor
from spark.targets.advisory import hold
from spark.targets.connection import Connection
from spark.targets.errors import TargetError
from spark.targets.fence import check_fence

CHECKPOINT: Final = "slony_feed"
PURPOSE: Final = "slony-feed"
STATEMENT_TIMEOUT_MS: Final = 600_000
"""At the node: a large SYNC is sorted by its log_actionseq before the first row comes."""
IDLE_MAX_MS: Final = 900_000
"""Of the node, while the replica writes what was read: as long as a reading may hold the log."""
SCRIPT_WARNING: Final = "FEED_SCRIPT"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Base:
    """Where the job began."""

    upto: int
    units: int = 0
    records: int = 0
    copies: int = 0
    copied_rows: int = 0
    scripts: int = 0


@dataclass(frozen=True, slots=True)
class _Attempt:
    context: JobContext
    store: Store
    source: Store
    params: SlonyFeedParams


def run_feed(context: JobContext) -> Mapping[str, Any]:
    """Bring the replica up to the newest SYNC, and return the result that clients see.

    Raises: JobSignal.
    """
    attempt = _begun(context)
    store = attempt.store
    with supplying_replica(context, store):  # its tables are there from here on
        context.check()
    with controlled(context, store) as conn, _node(attempt) as (node, catalog):
        feed = Feed(
            catalog.cluster,
            catalog.local_node,
            frozenset(attempt.params.sets),
            frozenset(attempt.params.tables),
            attempt.params.prefix,
        )
        carrier = Carrier(conn, node, catalog, feed, _hands(attempt, conn))
        base = _base(context, conn, carrier)
        cursor = _carried(attempt, carrier, base)
    return _result(context, cursor, base).model_dump(mode="json")


def _begun(context: JobContext) -> _Attempt:
    """The stores of the submission, unless one rests or names another target now.

    Raises: JobWaiting, JobFailed.
    """
    store = awake_store(context)
    params = SlonyFeedParams.model_validate(context.job.params)

    def find(db: Session) -> Store:
        return get_store(db, params.source)

    try:
        source = context.write(find)
    except ServiceError as error:
        raise service_signal(context, error) from error
    require_awake(context, source)
    if target_of_store(store) != params.target:
        raise JobFailed("STORE_CHANGED", "the store names another target than when this was submitted")
    if node_of_store(source) != params.node:
        detail = f"store {source.id} names another node than when this was submitted"
        raise JobFailed("STORE_CHANGED", detail)
    return _Attempt(context, store, source, params)


@contextmanager
def _node(attempt: _Attempt) -> Iterator[tuple[Connection, Catalog]]:
    """The node, read-only; what goes wrong there or at the replica leaves as a signal to the runner.

    Raises: JobSignal.
    """
    context, node = attempt.context, None
    limits = replace(
        session_limits(context.settings),
        statement_timeout_ms=STATEMENT_TIMEOUT_MS,
        idle_in_transaction_timeout_ms=IDLE_MAX_MS,
    )
    try:
        with connected_node(
            attempt.source, context.settings, context.database, purpose=PURPOSE, limits=limits
        ) as (node, catalog):
            forget = context.on_cancel(node.cancel)
            try:
                yield node, catalog
            finally:
                forget()
    except TargetError as error:
        signal = signal_of(context, error)
        if isinstance(signal, JobWaiting) and (node is None or node.closed):
            signal.waiting_on = [WaitingOn(kind=error.code, ref=attempt.source.id)]
        raise signal from error
    except ReplicaWasRestored as error:
        tell_marked(context.database, attempt.store.id, error)
        raise JobFailed(error.code, error.detail) from error
    except ReplicationRefused as error:
        raise JobFailed(error.code, error.detail) from error
    except (ClockSkewExceeded, TimestampOutOfRange) as error:
        raise JobFailed("CLOCK_SKEW", str(error)) from error
    except ServiceError as error:
        raise service_signal(context, error) from error


def _hands(attempt: _Attempt, conn: Connection) -> Hands:
    """Claim the replica, and say what goes with each of its transactions.

    Raises: JobSignal; TargetError.
    """
    context, store = attempt.context, attempt.store
    resource = import_resource(store)
    claimed = claim(context, conn, resource=resource, queue=False)
    if not claimed.has_ledger:
        hold(conn, resource)

    def fence() -> None:
        if claimed.has_ledger:
            check_fence(conn, resource, token=context.job.token)

    def committed(own_max: str | None) -> None:
        now = context.clock.now()
        context.write(lambda db: note_own_max(db, store.id, own_max, now=now))

    return Hands(
        expected=lambda: context.patiently(lambda: remember(context.database, conn, store.id)),
        turn=lambda: writer_turn(conn),
        fence=fence,
        committed=committed,
        now_s=lambda: int(context.clock.now().timestamp()),
        check=context.check,
    )


def _base(context: JobContext, conn: Connection, carrier: Carrier) -> _Base:
    """Where the job began: noted by its first attempt, before it writes anything."""
    noted = context.checkpoint(CHECKPOINT)
    if noted is not None:
        return _Base(**noted)
    cursor, upto = read_cursor(conn), carrier.newest()
    base = _Base(upto)
    if cursor is not None:
        base = _Base(upto, cursor.units, cursor.records, cursor.copies, cursor.copied_rows, cursor.scripts)
    context.save_checkpoint(CHECKPOINT, asdict(base))
    return base


def _carried(attempt: _Attempt, carrier: Carrier, base: _Base) -> Cursor:
    """Copy where that is due, then page by page; the cursor at the end."""
    context, params = attempt.context, attempt.params
    cursor = carrier.begin(job_id=context.job.id, first_copy=params.first_copy)
    while True:
        left = UNITS_AT_ONCE if params.syncs_max is None else base.units + params.syncs_max - cursor.units
        if left <= 0:
            return cursor
        before = cursor
        with closing(carrier.carry(before, upto=base.upto, units_max=left)) as units:
            for cursor in units:
                context.check()
                done = cursor.units - base.units
                context.progress(unit="syncs", done=done, total=params.syncs_max)
        if cursor == before or cursor.seqno >= base.upto:
            return cursor


def _result(context: JobContext, cursor: Cursor, base: _Base) -> SlonyFeedResult:
    at = None if cursor.at_us is None else _EPOCH + timedelta(microseconds=cursor.at_us)
    scripts = cursor.scripts - base.scripts
    if scripts:
        context.note(EVENT_WARNING, {"code": SCRIPT_WARNING, "count": scripts})
    return SlonyFeedResult(
        origin=cursor.feed.origin,
        seqno=cursor.seqno,
        snapshot=cursor.snapshot,
        at=at,
        newest_seqno=base.upto,
        copied=cursor.copies > base.copies,
        rows_copied=cursor.copied_rows - base.copied_rows,
        syncs=cursor.units - base.units,
        records=cursor.records - base.records,
        scripts=scripts,
        scripted_seqno=cursor.scripted,
    )
