"""The verdict about keys of a store, from all that is known of it now.

Rules:
- a key that was discarded once is never NOT_EXTINCT: what the target knows and what the metadata knows are
  put together, and neither forgets;
- MAYBE_EXTINCT while anything is not known: the service starts, the target cannot be read or is put back, a
  peer has announced an extinction that has not come, a call is not known to be committed;
- the version of a filter grows whenever what it says has changed, and two filters never share one.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import func
from sqlmodel import Session, col, select

from app.db import Database
from app.errors import ServiceError
from app.extinction.log_reading import unread_log
from app.extinction.models import ExtinctionBundleRead, MaybeBecause
from app.extinction.records import note_known
from app.extinction.rows import ExtinctionBundleRow, ExtinctionRow
from app.extinction.status import known_extinctions
from app.extinction.target import TargetSays, try_target
from app.settings import Settings
from app.stores.models import ExtinctionFilterMode, StoreKind
from app.stores.rows import Store
from app.stores.service import get_store
from spark.formats.extinction import Extinction, ExtinctionIndex
from spark.replication.records import ReplicaStatus

FORMAT: Final = 1
VIEWS_KEPT: Final = 64
_SOUND: Final = frozenset({ReplicaStatus.EMPTY, ReplicaStatus.ONLINE, ReplicaStatus.PARTIAL})
_guard = threading.Lock()
_views: OrderedDict[tuple[Any, ...], "View"] = OrderedDict()


@dataclass(frozen=True, slots=True)
class View:
    """What is known of a store at one moment, and its number.

    Attributes:
        bundle: the same for those who judge elsewhere.
        inputs: what it was made of; while that is the same, so is the view.
        mark: of the target's set of extinctions.
    """

    version: int
    digest: str
    index: ExtinctionIndex
    bundle: ExtinctionBundleRead
    inputs: tuple[Any, ...]
    mark: str | None


def view_of(database: Database, settings: Settings, store: Store, *, starting: bool, now: datetime) -> View:
    """Put together what is known now.

    Args:
        starting: the service has not come up yet: nothing is certain.
    Raises: StoreNotFound; MetadataUnavailable, MetadataBusy.
    """
    name = (str(database.url), store.id)
    with _guard:
        last = _views.get(name)
    says = None
    if store.kind == StoreKind.REPLICA:
        mark = last.mark if last is not None and last.inputs[0] == _registration(store) else None
        says = try_target(database, settings, store, mark=mark)
    because = _because(store, says, starting=starting)
    if store.kind == StoreKind.JE and store.extinction_filter == ExtinctionFilterMode.INSTALLED:
        because += unread_log(database, settings, store, now=now)
    with database.reading() as db:
        inputs = _inputs(db, store, says, because)
        current = db.get(ExtinctionBundleRow, store.id)
        if last is not None and last.inputs == inputs and _is_of(current, last):
            return last
    with database.transaction() as db:
        view = _made(db, get_store(db, store.id, lock=True), says, because, now=now)
    with _guard:
        _views[name] = view
        _views.move_to_end(name)
        while len(_views) > VIEWS_KEPT:
            _views.popitem(last=False)
    return view


def _registration(store: Store) -> tuple[datetime, int]:
    """A store that was taken away and registered again has the old versions, and rows that are noted anew."""
    return store.created_at, store.version


def _is_of(current: ExtinctionBundleRow | None, view: View) -> bool:
    return current is not None and (current.version, current.digest) == (view.version, view.digest)


def _because(store: Store, says: TargetSays | ServiceError | None, *, starting: bool) -> list[MaybeBecause]:
    """Why no key at all can be judged."""
    found = []
    if starting:
        found.append(MaybeBecause(code="STARTING", detail="the service is starting"))
    if store.kind == StoreKind.JE and store.extinction_filter == ExtinctionFilterMode.ALWAYS_MAYBE:
        found.append(MaybeBecause(code="ALWAYS_MAYBE", detail="the store is declared so"))
    if isinstance(says, ServiceError):
        found.append(MaybeBecause(code="TARGET", detail=f"it cannot be read: {says.code}"))
    elif says is not None:
        if says.status not in _SOUND:
            found.append(MaybeBecause(code="TARGET", detail=f"the replica is {says.status}"))
        if says.missing:
            names = ", ".join(f"{rid}: {csn}" for rid, csn in sorted(says.missing.items()))
            detail = f"peers have announced extinctions that have not come ({names})"
            found.append(MaybeBecause(code="ANNOUNCED", detail=detail))
    return found


def _inputs(
    db: Session,
    store: Store,
    says: TargetSays | ServiceError | None,
    because: Sequence[MaybeBecause],
) -> tuple[Any, ...]:
    """What a view is made of, cheaply: every change of a row raises its version."""
    counted = db.exec(
        select(func.count(), func.sum(col(ExtinctionRow.version))).where(ExtinctionRow.store == store.id)
    ).one()
    mark = says.mark if isinstance(says, TargetSays) else None
    return _registration(store), *counted, mark, tuple((each.code, each.detail) for each in because)


def _made(
    db: Session,
    store: Store,
    says: TargetSays | ServiceError | None,
    because: list[MaybeBecause],
    *,
    now: datetime,
) -> View:
    """Make a view, with the number that belongs to it; the store's row is locked.

    What the target knows is noted first. So a view that is made later has all that an earlier one had.
    """
    if isinstance(says, TargetSays) and says.known is not None:
        note_known(db, store, says.known, now=now)
    found = known_extinctions(db, store.id)
    holding, reserved = found.holding, found.reserved
    maybe = (*reserved, *found.filtered, *found.secondary)
    everything_maybe = bool(because)
    told = because.copy()
    if reserved:
        names = ", ".join(each.id for each in reserved[:10])
        told.append(MaybeBecause(code="RESERVED", detail=f"not known to be committed: {names}"))
    if found.filtered:
        names = ", ".join(each.id for each in found.filtered[:10])
        told.append(MaybeBecause(code="JAVA_FILTER", detail=f"only JE can evaluate the filter of {names}"))
    if found.secondary:
        names = ", ".join(sorted({name.decode() for each in found.secondary for name in each.databases})[:10])
        detail = f"JE has discarded ranges of secondary keys, not of primary ones, in {names}"
        told.append(MaybeBecause(code="SECONDARY_RANGE", detail=detail))
    in_base64 = store.kind == StoreKind.REPLICA
    bundle = ExtinctionBundleRead(
        format=FORMAT,
        store=store.id,
        version=0,
        databases_are="BASE64" if in_base64 else "UTF8",
        everything_maybe=everything_maybe,
        maybe_because=told,
        extinctions=[shown(each, in_base64=in_base64) for each in holding],
        maybe=[shown(each, in_base64=in_base64) for each in maybe],
    )
    text = json.dumps(bundle.model_dump(mode="json"), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    current = _numbered(db, store, digest, now=now)
    bundle.version = current.version
    index = ExtinctionIndex(holding, maybe=maybe, everything_maybe=everything_maybe)
    mark = says.mark if isinstance(says, TargetSays) else None
    inputs = _inputs(db, store, says, because)
    return View(current.version, digest, index, bundle, inputs, mark)


def _numbered(db: Session, store: Store, digest: str, *, now: datetime) -> ExtinctionBundleRow:
    """The store's row with the number of this content: one more than before if the content is another."""
    # The first number is above all that an earlier registration of this name has given away.
    current = db.get(ExtinctionBundleRow, store.id) or ExtinctionBundleRow(
        store=store.id, version=int(now.timestamp() * 1_000), digest="", updated_at=now
    )
    if current.digest != digest:
        current.version, current.digest, current.updated_at = current.version + 1, digest, now
        db.add(current)
        db.flush()
    return current


def shown(extinction: Extinction, *, in_base64: bool) -> Any:
    """An extinction's fields, its databases as its kind of store names them."""
    fields = extinction.fields()
    if not in_base64:
        fields["databases"] = sorted(name.decode() for name in extinction.databases)
    return fields
