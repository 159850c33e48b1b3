"""Rules of an extinction at its submission, and its commit at a replica.

The commit of an extinction of a REPLICA has three steps, and may be killed between any two:
1. metadata: a row RESERVED, with the Idempotency-Key: from now on its keys are MAYBE_EXTINCT;
2. target: one record of the changelog and one row, in one transaction (idempotent by its id);
3. metadata: LOGGED, and its job.
What is RESERVED and has no step 3 is settled by `settling`: the target decides. At a JE store steps 1 and 3
are one transaction; there is no step 2.
Source: je-extinction-filter; design.md, Extinction.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Final

from app.db import Database
from app.errors import InvalidRequest, Unavailable
from app.extinction.counting import log_bytes, reach_in_log
from app.extinction.errors import (
    ConfirmationMissing,
    EnvironmentUnreadable,
    ExtinctionFilterMissing,
    ExtinctionNotAvailable,
    ExtinctionNotHolding,
    FilterNotInstalled,
    FilterRefused,
    FilterUnreadable,
    LimitsNotCounted,
    StartAfterEnd,
    StoreSuspended,
    UnknownDatabase,
)
from app.extinction.models import ExtinctionRequest, LackingPeerRead
from app.extinction.reviewed import ReviewedExtinction
from app.extinction.rows import HOLDING, ExtinctionRow
from app.jobs.engines.choice import check_je
from app.jobs.errors import LimitExceeded
from app.replication.replica.refusals import NoReplicaYet, refusal
from app.replication.replica.replicas import (
    opened_replica,
    remember,
    tell_marked,
    writer_turn,
)
from app.settings import Settings
from app.stores.errors import StoreKindWrong
from app.stores.limits import is_limited, judge
from app.stores.models import ExtinctionFilterMode, Reach, StoreKind, StoreLimits
from app.stores.rows import Store, is_suspended
from app.stores.targets import environment_directory
from spark.erase.calls.count_calls import CountCall
from spark.erase.hands.child import ChildHands
from spark.erase.hands.hands import HandsLost
from spark.extinction.counting import count_entries, count_matching
from spark.formats.extinction import Extinction, ExtinctionInvalid
from spark.formats.extinction_filter import Filter, FilterInvalid, decode_base64
from spark.formats.replica import DATABASE_MAX_BYTES
from spark.replication.consumer.extinctions import find_extinction, knows_database, write_extinction
from spark.replication.errors import ReplicaWasRestored
from spark.replication.sessions.peers import availability
from spark.targets.connection import Connection

KINDS: Final = frozenset({StoreKind.JE, StoreKind.REPLICA})
LOOK_MAX_BYTES: Final = 1 << 30
"""A JE log up to this size is read for the names of its databases before the answer; of a larger one the job
tells which names it has not found."""


def require_extinctions(store: Store) -> None:
    """Refuse a store of a kind that knows no extinctions.

    Raises: StoreKindWrong.
    """
    if store.kind not in KINDS:
        raise StoreKindWrong(f"this is a store of kind {store.kind}; extinctions are of JE and REPLICA")


def read_request(store: Store, request: ExtinctionRequest, extinction_id: str) -> Extinction:
    """What a request says, checked as far as that needs no target.

    Raises: StoreKindWrong, ConfirmationMissing, ExtinctionFilterMissing, FilterRefused, StartAfterEnd,
        InvalidRequest.
    """
    require_extinctions(store)
    if store.kind == StoreKind.JE and store.extinction_filter in (None, ExtinctionFilterMode.NONE):
        raise ExtinctionFilterMissing
    if not request.confirm_keys_never_reused:
        raise ConfirmationMissing
    if request.start_key is not None and request.end_key is not None and request.start_key > request.end_key:
        raise StartAfterEnd
    try:
        found = None if request.filter is None else Filter.parse(request.filter)
    except FilterInvalid as error:
        raise FilterRefused(error.detail, pointer=error.pointer) from error
    databases = frozenset(
        database_of(store, name, pointer=f"/databases/{place}")
        for place, name in enumerate(request.databases)
    )
    try:
        return Extinction(extinction_id, databases, request.start_key, request.end_key, found, request.label)
    except ExtinctionInvalid as error:
        fault = {"pointer": error.pointer, "detail": error.detail}
        raise InvalidRequest(error.detail, errors=[fault]) from error


def check_attestable(store: Store, row: ExtinctionRow) -> None:
    """See that an attestation of an installed filter can be true, and means something.

    Raises: StoreKindWrong, FilterNotInstalled, ExtinctionNotHolding, FilterUnreadable.
    """
    if store.kind != StoreKind.JE:
        raise StoreKindWrong(f"this is a store of kind {store.kind}; a filter is attested for JE")
    if store.extinction_filter != ExtinctionFilterMode.INSTALLED:
        raise FilterNotInstalled(f"the store says `extinction_filter: {store.extinction_filter}`")
    if row.state not in HOLDING:
        raise ExtinctionNotHolding(f"the extinction is {row.state}")
    if row.has_java_filter:
        raise FilterUnreadable(
            "its filter is a Java object in JE's log; which keys pass it is not known here"
        )


def database_of(store: Store, name: str, *, pointer: str) -> bytes:
    """The bytes of a database's name as the store's kind writes it.

    Raises: InvalidRequest.
    """
    if store.kind != StoreKind.REPLICA:
        found = name.encode()
        if len(found) > DATABASE_MAX_BYTES:
            detail = f"{len(found)} bytes, more than {DATABASE_MAX_BYTES}"
            raise InvalidRequest(detail, errors=[{"pointer": pointer, "detail": detail}])
        return found
    try:
        return decode_base64(name, pointer, bytes_max=DATABASE_MAX_BYTES)
    except FilterInvalid as error:
        fault = {"pointer": pointer, "detail": error.detail}
        raise InvalidRequest(
            f"a database of a REPLICA store stands in base64: {error.detail}", errors=[fault]
        ) from error


def refuse_suspended(store: Store, *, now: datetime) -> None:
    """Raise StoreSuspended for a store that rests."""
    if is_suspended(store, now=now):
        raise StoreSuspended(f"the store is suspended: {store.suspended_reason or 'without a reason'}")


def check_target(
    database: Database,
    settings: Settings,
    store: Store,
    names: Sequence[str],
    *,
    discards: Extinction | None = None,
    reviewed: ReviewedExtinction | None = None,
) -> None:
    """Look at the target: may extinctions be used, are the databases there, and do the store's limits hold.

    Args:
        names: the databases as the request has them.
        discards: what is about to be discarded; None: it is only planned, and the plan shows the limits.
        reviewed: the plan that is executed.
    Raises: ExtinctionNotAvailable, UnknownDatabase, LimitExceeded, PlanNoLongerHolds; ServiceError: the
        target cannot be asked.
    """
    counted = (
        discards if is_limited(StoreLimits.model_validate(store.limits)) or reviewed is not None else None
    )
    if store.kind == StoreKind.JE:
        _check_environment(settings, store, names, counted, reviewed)
        return
    unknown = dict(enumerate(names))
    with (
        suppress(NoReplicaYet),
        opened_replica(database, settings, store, purpose="extinctions", create=False) as conn,
    ):
        lacking = availability(conn)
        if lacking:
            raise ExtinctionNotAvailable(
                [LackingPeerRead(**asdict(each)).model_dump(mode="json") for each in lacking]
            )
        unknown = {
            place: name
            for place, name in enumerate(names)
            if not knows_database(conn, database_of(store, name, pointer=""))
        }
        if not unknown and counted is not None:
            with conn.transaction(read_only=True):
                _check_reach(conn, store, counted, reviewed)
    if unknown:
        raise UnknownDatabase(unknown)


def _check_reach(
    conn: Connection, store: Store, extinction: Extinction, reviewed: ReviewedExtinction | None
) -> None:
    """Raises: PlanNoLongerHolds, LimitExceeded."""
    if reviewed is not None:
        reviewed.check_in_replica(conn, extinction)
    if is_limited(StoreLimits.model_validate(store.limits)):
        records, _size = count_matching(conn, extinction)
        _refuse_exceeded(store, Reach(rows=records, part=records, whole=count_entries(conn)))


def _refuse_exceeded(store: Store, reach: Reach) -> None:
    """Raise LimitExceeded where an extinction would reach more than the store's limits allow."""
    exceeded = judge(store, reach).exceeded
    if exceeded:
        raise LimitExceeded("; ".join(exceeded))


def _check_environment(
    settings: Settings,
    store: Store,
    names: Sequence[str],
    counted: Extinction | None,
    reviewed: ReviewedExtinction | None,
) -> None:
    """An environment that only other runners reach, or a large one, is the job's to look at.

    Not where limits or a plan have to hold: from the answer on its keys are extinct, so they are counted.
    """
    if not set(store.runs_on) <= set(settings.labels):
        if counted is not None:
            raise LimitsNotCounted(store.runs_on)
        return
    check_je(store.runs_on, settings)
    directory = environment_directory(store, settings)
    if counted is None and log_bytes(directory) > LOOK_MAX_BYTES:
        return
    hands = ChildHands()
    try:
        record = None if counted is None else counted.to_json()
        answer = hands.count(CountCall(str(directory), record, keys=reviewed is not None))
    except HandsLost as lost:
        raise Unavailable(str(lost), code="HANDS_LOST", headers={"Retry-After": "5"}) from lost
    finally:
        hands.close()
    if answer.refusal is not None:
        raise EnvironmentUnreadable(answer.refusal.detail, code=answer.refusal.ref)
    unknown = {place: name for place, name in enumerate(names) if name not in answer.databases}
    if unknown:
        raise UnknownDatabase(unknown)
    if reviewed is not None:
        reviewed.check_keys(answer.keys)
    if counted is not None:
        _refuse_exceeded(store, reach_in_log(answer, directory))


def is_at_target(database: Database, settings: Settings, store: Store, extinction_id: str) -> bool:
    """Whether a replica has an extinction, committed by whomever.

    Raises: ServiceError: the target cannot be asked.
    """
    try:
        with opened_replica(database, settings, store, purpose="extinctions", create=False) as conn:
            return find_extinction(conn, extinction_id) is not None
    except NoReplicaYet:
        return False


def commit_at_target(
    database: Database,
    settings: Settings,
    store: Store,
    extinction: Extinction,
    *,
    now: datetime,
    reviewed: ReviewedExtinction | None = None,
) -> str:
    """Step 2: commit at a replica, once, however often it is called; returns the CSN.

    Raises: LimitExceeded, PlanNoLongerHolds: by what was written since the first look; ServiceError.
    """

    def permit(conn: Connection) -> None:
        _check_reach(conn, store, extinction, reviewed)

    with opened_replica(database, settings, store, purpose="extinctions") as conn:
        expected = remember(database, conn, store.id)
        try:
            with writer_turn(conn):
                found = write_extinction(
                    conn, extinction, now_s=int(now.timestamp()), expected=expected, permit=permit
                )
        except ReplicaWasRestored as error:
            tell_marked(database, store.id, error)
            raise refusal(error) from error
        return str(found)
