"""Purges of a SymmetricDS store's tables, as the route of all purges makes them."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlmodel import Session

from app.auth.service import Caller
from app.db import Database
from app.errors import InvalidRequest
from app.purge.cutoff import target_parameters
from app.purge.kinds.kind import STRANDED, STRICT, Kind
from app.purge.kinds.table import KINDS
from app.purge.models import PurgeKind, PurgeParams, PurgeRequest
from app.purge.rules import fence_resource
from app.purge.service import EarlyLook, prepare, snapshot
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import note_target
from app.sweeps.purging import CHANGELOG, Looked, Purging, Purgings


def look(
    database: Database,
    store: Store,
    fields: Mapping[str, Any],
    *,
    settings: Settings,
    now: datetime,
    for_write: bool,
) -> Looked:
    """See app.sweeps.purging.

    Raises: ServiceError.
    """
    request = _request(fields)
    params, found = prepare(database, store, request, settings=settings, now=now, for_write=for_write)
    return looked(store, params, found)


def unseen(db: Session, store: Store, fields: Mapping[str, Any]) -> Looked:
    """See app.sweeps.purging.

    Raises: StoreKindWrong, InvalidRequest.
    """
    return looked(store, snapshot(db, store, _request(fields, at="/params"), None), EarlyLook(None))


def _request(fields: Mapping[str, Any], *, at: str = "") -> PurgeRequest:
    """A request whose word about what is stranded fits its kind.

    Args:
        at: where the request lies in the body.
    Raises: InvalidRequest.
    """
    request = PurgeRequest.model_validate(fields)
    kind, said = KINDS[request.kind], request.stranded
    known = " or ".join(sorted(kind.words))
    detail = ""
    if said is not None and said not in kind.words:
        detail = f"{said} makes no sense for {request.kind}: say {known}"
    elif said is None and kind.must_say and request.plan_id is None:
        detail = (
            f"say {known}: these rows may never have been sent, and SymmetricDS would capture them again,"
            " as RECAPTURE does"
        )
    if detail:
        raise InvalidRequest(
            "1 field(s) are not valid", errors=[{"pointer": f"{at}/stranded", "detail": detail}]
        )
    return request


def looked(store: Store, params: PurgeParams, found: EarlyLook) -> Looked:
    """What the route submits; what the look told of the target is kept with the job."""
    seen = found.inspection
    return Looked(
        params=params,
        resource=fence_resource(store, KINDS[params.kind].resource),
        identity=seen.identity if seen else None,
        keep=partial(_note, store, found),
    )


def _note(store: Store, found: EarlyLook, db: Session, _caller: Caller) -> None:
    seen = found.inspection
    if seen is not None:
        note_target(db, store.id, store, identity=seen.identity, parameters=target_parameters(seen))


def _purging(kind: Kind) -> Purging:
    alone: dict[str, str | None] = {STRICT: PurgeKind.OUTGOING.value, STRANDED: None}
    refused = {**{name: alone[name] for name in kind.refused}, "max_entries": CHANGELOG}
    own = frozenset({"channel_retention_minutes"} if kind.kind is PurgeKind.OUTGOING else ())
    return Purging(store_kind=StoreKind.SYMMETRICDS, look=look, unseen=unseen, own=own, refused=refused)


PURGINGS: Final[Purgings] = {name.value: _purging(kind) for name, kind in KINDS.items()}
