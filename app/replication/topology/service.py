"""The topology: the rows of the metadata, and one look at each replica of this service.

No consumer of another service is asked: what it has acknowledged lies at its supplier.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlmodel import Session, col, select

from app.db import Database
from app.errors import ServiceError
from app.replication.agreements.last_session import last_session
from app.replication.agreements.service import part_of
from app.replication.agreements.status import message_of, words_of
from app.replication.peer.answers import shown_ruv
from app.replication.replica.models import shown_keys
from app.replication.replica.replicas import opened_replica
from app.replication.rows import Agreement, AgreementState, ReplicationSession, SessionOutcome
from app.replication.topology.models import (
    STORES_MAX,
    TopologyAgreementRead,
    TopologyConsumerRead,
    TopologyLagRead,
    TopologyNodeRead,
    TopologyRead,
    TopologySessionRead,
)
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from spark.replication.supplier.lags import Lag, Lags, read_lags

ASKED_AT_ONCE_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class _Row:
    """An agreement as the metadata has it."""

    agreement: Agreement
    last: ReplicationSession | None
    is_active: bool


@dataclass(frozen=True, slots=True)
class _Looked:
    """A replica as it is now; `code` says why it could not be read."""

    lags: Lags | None = None
    code: str | None = None


@dataclass(slots=True)
class _Known:
    """What the metadata says."""

    stores: list[Store] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)
    is_cut: bool = False


def read_topology(
    database: Database, settings: Settings, *, visible: Sequence[str] | None, now: datetime
) -> TopologyRead:
    """Look at all replicas that may be seen.

    Args:
        visible: stores that the caller sees; None: all.
    """
    with database.reading() as db:
        known = _known(db, visible)
    looked = _look_at_all(database, settings, known.stores)
    nodes = [_node(store, looked[store.id]) for store in known.stores]
    return TopologyRead(
        at=now,
        nodes=[*nodes, *_foreign(known)],
        agreements=[_agreement(row, looked[row.agreement.store]) for row in known.rows],
        truncated=known.is_cut,
    )


def _known(db: Session, visible: Sequence[str] | None) -> _Known:
    query = select(Store).where(Store.kind == StoreKind.REPLICA).order_by(col(Store.id))
    if visible is not None:
        query = query.where(col(Store.id).in_(list(visible)))
    stores = list(db.exec(query.limit(STORES_MAX + 1)).all())
    known = _Known(stores[:STORES_MAX], is_cut=len(stores) > STORES_MAX)
    wanted = select(Agreement).where(
        col(Agreement.store).in_([store.id for store in known.stores]),
        col(Agreement.state) != AgreementState.REMOVED,
    )
    for row in db.exec(wanted.order_by(col(Agreement.store), col(Agreement.id))).all():
        last, is_active = last_session(db, row)
        known.rows.append(_Row(row, last, is_active))
    return known


def _look_at_all(database: Database, settings: Settings, stores: Sequence[Store]) -> Mapping[str, _Looked]:
    if not stores:
        return {}
    look = partial(_look, database, settings)
    with ThreadPoolExecutor(min(len(stores), ASKED_AT_ONCE_MAX), thread_name_prefix="lethe-topology") as pool:
        return dict(zip([store.id for store in stores], pool.map(look, stores), strict=True))


def _look(database: Database, settings: Settings, store: Store) -> _Looked:
    try:
        with opened_replica(database, settings, store, purpose="topology", create=False) as conn:
            return _Looked(read_lags(conn))
    except ServiceError as error:
        return _Looked(code=error.code)


def _node(store: Store, looked: _Looked) -> TopologyNodeRead:
    seen = None if looked.lags is None else looked.lags.seen
    return TopologyNodeRead(
        store=store.id,
        url=None,
        rid=store.rid,
        status=None if seen is None else seen.replica.status.value,
        generation=None if seen is None else seen.replica.generation,
        ruv=None if seen is None else shown_ruv(seen.vectors.ruv),
        part=None if seen is None else shown_keys(seen.replica.part),
        target_code=looked.code,
    )


def _foreign(known: _Known) -> list[TopologyNodeRead]:
    """Consumers that are no store of this service, each once.

    One that bears name and number of a replica here is that replica, by whatever URL it is called.
    """
    here = {(store.id, store.rid) for store in known.stores}
    found: dict[tuple[str, str], int | None] = {}
    for row in known.rows:
        each = row.agreement
        if (each.consumer_store, each.consumer_rid) not in here:
            found[each.consumer_url, each.consumer_store] = each.consumer_rid
    return [
        TopologyNodeRead(
            store=store,
            url=url,
            rid=rid,
            status=None,
            generation=None,
            ruv=None,
            part=None,
            target_code=None,
        )
        for (url, store), rid in sorted(found.items())
    ]


def _agreement(row: _Row, looked: _Looked) -> TopologyAgreementRead:
    each, last = row.agreement, row.last
    words = words_of(last, is_active=row.is_active)
    # One that the target does not know yet lacks everything, but how much is not known.
    lags = None if looked.lags is None else looked.lags.agreements.get(each.id)
    was_refused = last is not None and last.outcome == SessionOutcome.NEEDS_TOTAL
    return TopologyAgreementRead(
        id=each.id,
        supplier=each.store,
        consumer=TopologyConsumerRead(
            url=each.consumer_url, store=each.consumer_store, rid=each.consumer_rid
        ),
        state=each.state,
        interval=None if each.interval_s is None else timedelta(seconds=each.interval_s),
        keys=shown_keys(part_of(each)),
        rids=None if lags is None else [_lag(rid, lag) for rid, lag in lags.items()],
        lag_changes=None if lags is None else sum(lag.changes for lag in lags.values()),
        lag=None if lags is None else timedelta(seconds=max((lag.lag_s for lag in lags.values()), default=0)),
        needs_total=None if lags is None else was_refused or any(lag.is_purged for lag in lags.values()),
        color=words.state,
        message=message_of(words),
        is_active=row.is_active,
        last_session=None if last is None else _session(last),
        target_code=looked.code,
    )


def _lag(rid: int, lag: Lag) -> TopologyLagRead:
    return TopologyLagRead(
        rid=rid,
        changes=lag.changes,
        lag=timedelta(seconds=lag.lag_s),
        acknowledged=lag.acknowledged,
        upto=lag.upto,
        needs_total=lag.is_purged,
    )


def _session(last: ReplicationSession) -> TopologySessionRead:
    return TopologySessionRead(
        id=last.id,
        mode=last.mode,
        outcome=last.outcome,
        code=(last.problem or {}).get("code"),
        started_at=last.started_at,
        ended_at=last.ended_at,
    )
