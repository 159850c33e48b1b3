"""All registered replicas of a suffix, asked at the same time, and judged together.

Rules:
- whoever cannot be asked is named, and is UNKNOWN; CRITICAL where others answer and this one does not;
- what looks stuck or put back is looked at twice before it is said: servers are not read at one moment;
- nothing is written anywhere.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from sqlmodel import col, select

from app.db import Database
from app.errors import ServiceError
from app.parameters.service import global_values
from app.replication.ds389.limits import limits_of
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.targets import directory_of
from spark.replication.ds389.judge import Sight, judge, judged_lag_s, order
from spark.replication.ds389.reading import read_replica
from spark.replication.ds389.records import Edge, HealthFinding, Limits, Reading, Severity
from spark.replication.ds389.topology import Places, edges_of, rid_lags
from spark.targets.errors import TargetError, TargetUnreachable
from spark.targets.ldap.connection import opened_directory
from spark.targets.ldap.url import ldap_place

ASKED_AT_ONCE_MAX: Final = 16
ASKING_MAX_S: Final = 20.0
SERVERS_MAX: Final = 500
SECOND_LOOK_S: Final = 2.0
"""A change goes from server to server in less, where nothing is in the way."""
RID: Final = "ds389_rid"
"""What a check keeps of a server: its RID, for when it is away."""
NO_ANSWER: Final = frozenset({TargetUnreachable.code, "NO_ANSWER_IN_TIME"})


@dataclass(frozen=True, slots=True)
class Unasked:
    """A store that could not be asked, and why."""

    store: Store
    code: str
    detail: str

    @property
    def is_away(self) -> bool:
        return self.code in NO_ANSWER

    @property
    def rid(self) -> int | None:
        return self.store.target_parameters.get(RID)


@dataclass(slots=True)
class Look:
    """What was seen of all replicas of a suffix; `found` has the worst first."""

    suffix: str
    stores: Sequence[Store]
    readings: Mapping[str, Reading]
    unasked: Sequence[Unasked]
    edges: list[Edge]
    limits: Mapping[str, Limits]
    found: list[HealthFinding] = field(default_factory=list)
    moving: frozenset[tuple[str, int]] = frozenset()


def stores_of_suffix(database: Database, suffix: str, visible: Sequence[str] | None) -> list[Store]:
    """The registered replicas of a suffix that a token may see, by id."""
    query = select(Store).where(Store.kind == StoreKind.DS389)
    if visible is not None:
        query = query.where(col(Store.id).in_(visible))
    with database.reading() as db:
        stores = db.exec(query.order_by(col(Store.id)).limit(SERVERS_MAX)).all()
    return [store for store in stores if normal_dn(store.suffix or "") == normal_dn(suffix)]


def normal_dn(text: str) -> str:
    """A suffix as two of them are compared: small letters, no blanks around the commas and equal signs."""
    return ",".join(
        "=".join(part.strip() for part in each.split("=", 1)) for each in text.lower().strip().split(",")
    )


def look(
    database: Database,
    settings: Settings,
    stores: Sequence[Store],
    *,
    is_whole: bool,
    pause: Callable[[float], None] = time.sleep,
) -> Look:
    """Ask the stores of one suffix, and judge what they tell.

    Args:
        is_whole: the stores are all that there are: a RID that none of them has is dangling.
    """
    assert stores, "there is a store to look at"
    readings, unasked = ask(stores, settings, database)
    with database.reading() as db:
        values = global_values(db)
    seen = Look(
        suffix=stores[0].suffix or "",
        stores=stores,
        readings=readings,
        unasked=unasked,
        edges=edges_of(readings, _places(stores)),
        limits={store.id: limits_of(values, store) for store in stores},
    )
    seen.found = _judged(seen, is_whole=is_whole)
    doubted = _doubted(seen)
    if doubted:
        pause(SECOND_LOOK_S)
        again, _ = ask([each for each in stores if each.id in doubted], settings, database)
        seen = _looked_twice(seen, again, stores)
        seen.found = _judged(seen, is_whole=is_whole)
    return seen


def ask(
    stores: Sequence[Store], settings: Settings, database: Database
) -> tuple[dict[str, Reading], list[Unasked]]:
    """Read the replicas behind stores at the same time."""
    pool = ThreadPoolExecutor(min(len(stores), ASKED_AT_ONCE_MAX), thread_name_prefix="lethe-ds389")
    readings: dict[str, Reading] = {}
    unasked: list[Unasked] = []
    try:
        asked: list[tuple[Store, Future[Reading | Unasked]]] = [
            (store, pool.submit(_try_asking, store, settings, database)) for store in stores
        ]
        wait([future for _, future in asked], timeout=ASKING_MAX_S)
        for store, future in asked:
            if not future.done():
                late = f"no answer within {ASKING_MAX_S:.0f} s"
                unasked.append(_unasked(store, "NO_ANSWER_IN_TIME", late))
            elif isinstance(answer := future.result(), Unasked):
                unasked.append(answer)
            else:
                readings[store.id] = answer
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # whoever still asks ends by its own timeouts
    return readings, unasked


def read_store(store: Store, settings: Settings, database: Database) -> Reading:
    """Read one replica.

    Raises: TargetError, ServiceError.
    """
    target = directory_of(store, settings, database)
    with opened_directory(target, connect_timeout_s=settings.target_connect_timeout_s) as directory:
        return read_replica(directory, target.suffix, now=database.clock.now)


def _try_asking(store: Store, settings: Settings, database: Database) -> Reading | Unasked:
    if not set(store.runs_on) <= set(settings.labels):
        return _unasked(
            store, "RUNS_ON_ELSEWHERE", f"only runners labelled {', '.join(store.runs_on)} reach it"
        )
    try:
        return read_store(store, settings, database)
    except (TargetError, ServiceError) as error:
        return Unasked(store, error.code, error.detail)


def _unasked(store: Store, code: str, detail: str) -> Unasked:
    return Unasked(store, code, detail)


def _places(stores: Sequence[Store]) -> Places:
    found: Places = {}
    for store in stores:
        place = ldap_place(str(store.url))
        found[store.id] = (place.host, place.port)
    return found


def _judged(seen: Look, *, is_whole: bool) -> list[HealthFinding]:
    rids = [each.rid for each in seen.unasked]
    sight = Sight(
        known_rids=frozenset(rid for rid in rids if rid is not None),
        is_whole=is_whole and None not in rids,
        answered=is_whole and not seen.unasked,
        moving=seen.moving,
    )
    found = judge(seen.readings, seen.edges, seen.limits, sight)
    found += [_unasked_finding(each, others_answer=bool(seen.readings)) for each in seen.unasked]
    return sorted(found, key=order)


def _unasked_finding(one: Unasked, *, others_answer: bool) -> HealthFinding:
    is_stopped = one.is_away and others_answer
    return HealthFinding(
        code="SERVER_AWAY" if one.is_away else "SERVER_NOT_ASKED",
        severity=Severity.CRITICAL if is_stopped else Severity.UNKNOWN,
        servers=(one.store.id,),
        rid=one.rid,
        detail=f"{one.store.id} {'does not answer' if one.is_away else 'could not be asked'}: {one.code},"
        f" {one.detail}",
        advice=f"`lethe store check {one.store.id}` tells more, `lethe explain {one.code}` what it means.",
    )


def _doubted(seen: Look) -> set[str]:
    """The stores that are looked at again, beside the first look at the others: what they lack may come."""
    doubted = {each.servers[0] for each in seen.found if each.code == "SERVER_RESTORED"}
    for store, lags in rid_lags(seen.readings).items():
        limit = seen.limits[store].lag_warning_s
        if any(limit and judged_lag_s(lag, is_moving=False) > limit for lag in lags):
            doubted.add(store)
    return doubted


def _looked_twice(seen: Look, again: Mapping[str, Reading], stores: Sequence[Store]) -> Look:
    """Both looks together: of the second what a server has by now, and whether it moves."""
    moving: set[tuple[str, int]] = set()
    for store, reading in again.items():
        before = seen.readings[store].ruv.maxima
        moving |= {(store, rid) for rid, csn in reading.ruv.maxima.items() if before.get(rid) != csn}
    readings = {**seen.readings, **again}
    return replace(
        seen, readings=readings, moving=frozenset(moving), edges=edges_of(readings, _places(stores))
    )


def latest(readings: Mapping[str, Reading]) -> datetime | None:
    """When the last of them was read."""
    return max((each.at for each in readings.values()), default=None)


def findings_about(seen: Look, store_id: str) -> Iterator[HealthFinding]:
    """What concerns one store."""
    return (each for each in seen.found if store_id in each.servers)
