"""Rules of stores: create, change, remove."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from sqlalchemy import delete
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from app.db import Database
from app.errors import Unprocessable
from app.figures.rows import SeriesPoint
from app.kinds.table import RULES, fields_of_other_kinds
from app.kit.conditional import require_match, version_of
from app.kit.pagination import Page, read_page
from app.parameters.service import check_store_values
from app.secrets.service import permitted_secret, uses_by_label
from app.settings import Settings
from app.stores.borders import Choice, require_border
from app.stores.errors import (
    ExtinctionsKept,
    StoreChanged,
    StoreExists,
    StoreInUse,
    StoreKindWrong,
    StoreNotFound,
    StoreUrlRefused,
)
from app.stores.models import (
    NO_BYTES_LIMIT,
    StoreCreate,
    StoreKind,
    StoreLimits,
    StoreMode,
    StorePatch,
    StoreRead,
    read_store,
)
from app.stores.rows import Store, is_of_known_kind
from app.stores.targets import check_allowed, check_environment_allowed, user_of
from app.stores.telling import StoreChange, tell_change
from spark.targets.target import network_place

TARGET_FIELDS = frozenset({"url", "schema_name", "table_prefix", "time_zone", "path", "cluster", "suffix"})
PLACE_FIELDS = TARGET_FIELDS - {"time_zone"}
"""Which database, tables or files are meant: whoever sets one of them chooses a target."""
ADMINS_FIELDS: Mapping[str, Any] = {"mode": StoreMode.CLOSED, "backups": None, "accept_medium": False}
"""What only an admin says of an environment, and what holds when nobody does."""
SECRET_FIELDS = ("password", "labels")
"""What decides which secret a store may use."""
ANYBODYS: Final = Choice()
"""Of a token without a limit, and of a target that nobody has asked."""
NULLABLE_FIELDS = frozenset({"password", "schema_name", "backups"})


def get_store(db: Session, store_id: str, *, lock: bool = False) -> Store:
    """The row of a store.

    Raises: StoreNotFound.
    """
    store = db.get(Store, store_id, with_for_update=lock)
    if store is None:
        raise StoreNotFound("there is no such store")
    return store


def lock_unchanged(db: Session, seen: Store, target: Callable[[Store], object]) -> Store:
    """The row of a store, locked, if it still names the target that was looked at.

    Args:
        seen: the row as it was then.
        target: what tells one target of a store from another.
    Raises: StoreNotFound, StoreChanged.
    """
    store = get_store(db, seen.id, lock=True)
    if target(store) != target(seen):
        raise StoreChanged
    return store


def list_stores(
    db: Session,
    *,
    kinds: Sequence[str],
    labels: Mapping[str, str],
    visible: Sequence[str] | None,
    page_size: int,
    page_token: str,
) -> Page[StoreRead]:
    """Stores by id."""
    filters = {"list": "stores", "kinds": sorted(kinds), "labels": dict(labels), "visible": visible}
    query = select(Store).where(is_of_known_kind())
    if kinds:
        query = query.where(col(Store.kind).in_(list(kinds)))
    if visible is not None:
        query = query.where(col(Store.id).in_(list(visible)))
    for name, value in labels.items():
        query = query.where(col(Store.labels)[name].as_string() == value)
    return read_page(
        db,
        query,
        col(Store.id),
        ascending=True,
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=read_store,
    )


def new_store(request: StoreCreate, *, choice: Choice = ANYBODYS, now: datetime) -> Store:
    """The row of a store, not written yet.

    Raises: ParameterNotFound, ParameterScopeInvalid.
    """
    fields = request.model_dump(by_alias=False, exclude={"parameters", "limits"})
    return Store(
        **fields,
        parameters=check_store_values(request.parameters, request.kind),
        limits=request.limits.model_dump(),
        target_limit=None if choice.limit is None else sorted(choice.limit),
        target_proof=choice.proof,
        created_at=now,
        updated_at=now,
    )


def create_store(
    db: Session,
    request: StoreCreate,
    *,
    choice: Choice = ANYBODYS,
    settings: Settings,
    database: Database,
    now: datetime,
) -> Store:
    """Register a target.

    Raises: StoreExists, StoreUrlRefused, TargetOfOtherStores, ParameterNotFound, ParameterScopeInvalid.
    """
    store = new_store(request, choice=choice, now=now)
    check_target_allowed(db, store, settings=settings, database=database)
    require_border(db, store, store.target_proof)
    if db.get(Store, request.id) is not None:
        raise StoreExists("a store of this id exists")
    db.add(store)
    try:
        db.flush()
    except IntegrityError as error:
        raise StoreExists("a store of this id exists") from error
    tell_change(db, store.id, StoreChange.ADDED, now=now)
    return store


def change_store(
    db: Session,
    store_id: str,
    patch: StorePatch,
    *,
    if_match: str | None,
    active_jobs: int,
    choice: Choice = ANYBODYS,
    extinctions: int = 0,
    settings: Settings,
    database: Database,
    now: datetime,
) -> Store:
    """Change what a client chose.

    Args:
        choice: of the target, where the patch speaks of it.
    Raises: StoreNotFound, EtagMismatch, PreconditionMissing, TargetOfOtherStores, StoreInUse: jobs use the
        target as it was.
    """
    store = get_store(db, store_id, lock=True)
    require_match(if_match, store_version(store), learned_of(store))
    changes: dict[str, Any] = patch.model_dump(by_alias=False, exclude_unset=True)
    empty = [name for name, value in changes.items() if value is None and name not in NULLABLE_FIELDS]
    if empty:
        raise Unprocessable(f"{', '.join(empty)} cannot be null", code="INVALID_REQUEST")
    if wrong := sorted(set(changes) & fields_of_other_kinds(StoreKind(store.kind))):
        raise Unprocessable(f"a store of kind {store.kind} has no {', '.join(wrong)}", code="INVALID_REQUEST")
    if TARGET_FIELDS & set(changes) and active_jobs:
        raise StoreInUse("jobs or protections of this store have not ended; its target stays")
    if TARGET_FIELDS & set(changes) and extinctions:
        raise ExtinctionsKept(f"{extinctions} extinction(s) speak of this environment; its path stays")
    if "parameters" in changes:
        changes["parameters"] = check_store_values(changes["parameters"], store.kind)
    if "limits" in changes:
        limits = StoreLimits.model_validate(changes["limits"])
        if limits.max_bytes is not None and store.kind != StoreKind.JE:
            raise Unprocessable(NO_BYTES_LIMIT, code="INVALID_REQUEST")
        changes["limits"] = limits.model_dump()
    if TARGET_FIELDS & set(changes):
        changes |= {"target_identity": None, "target_parameters": {}}
        changes |= _chosen(store, changes, choice)
    store.sqlmodel_update(changes)
    check_target_allowed(db, store, settings=settings, database=database)
    if PLACE_FIELDS & set(changes):
        require_border(db, store, store.target_proof)
    return save_store(db, store, now=now)


def _chosen(store: Store, changes: Mapping[str, Any], choice: Choice) -> dict[str, Any]:
    """What is kept of a choice; a limited token that names the target that is there chooses nothing."""
    named = PLACE_FIELDS & set(changes)
    is_same = all(getattr(store, name) == changes[name] for name in named)
    if not named or (is_same and choice.limit is not None and store.target_limit is None):
        return {}
    limit = None if choice.limit is None else sorted(choice.limit)
    return {"target_limit": limit, "target_proof": choice.proof}


def check_target_allowed(db: Session, store: Store, *, settings: Settings, database: Database) -> None:
    """Refuse a target outside of what this service may touch, and LIVE without the word that it needs.

    Raises: StoreUrlRefused, SecretNotAllowed, Unprocessable.
    """
    if store.kind == StoreKind.JE:
        assert store.path is not None, "a JE store has a path"
        check_environment_allowed(Path(store.path), settings=settings)
        if store.mode == StoreMode.LIVE and store.backups is None:
            raise Unprocessable(
                "LIVE needs `backups: VIA_LETHE`: a backup that Lethe does not know of would be corrupt",
                code="BACKUPS_UNDECLARED",
            )
        return
    assert store.url is not None, "a store on a database has a URL"
    if (reason := RULES[StoreKind(store.kind)].refuses(store.url)) is not None:
        raise StoreUrlRefused(reason, code="TARGET_URL_INVALID")
    check_allowed(url=store.url, schema_name=store.schema_name, settings=settings, database=database)
    permitted_secret(db, store.password, user_of(store), place=network_place(store.url))


def takes_secret_by_label(db: Session, store: Store, before: Mapping[str, Any]) -> bool:
    """Whether a change lets a store use a secret for labels, which whoever may change stores can write.

    Args:
        before: password and labels as they were; empty for a new store.
    """
    is_unchanged = bool(before) and all(getattr(store, name) == value for name, value in before.items())
    if store.password is None or is_unchanged:
        return False
    row = permitted_secret(db, store.password, user_of(store), place=None)
    return row is not None and uses_by_label(row, user_of(store))


def stores_naming(db: Session, reference: str) -> list[str]:
    """The stores whose password is a secret."""
    rows = db.exec(select(Store.id).where(Store.password == reference).order_by(col(Store.id))).all()
    return [f"the store {store_id}" for store_id in rows]


def needs_admin(store: Store, before: Mapping[str, Any]) -> bool:
    """Whether a change of a store is an admin's word: how its environment is shared and backed up.

    Args:
        before: the fields as they were; empty for a new store.
    """
    if store.kind != StoreKind.JE:
        return False
    return any(getattr(store, name) != before.get(name, usual) for name, usual in ADMINS_FIELDS.items())


def require_kind(store: Store, kind: StoreKind) -> None:
    """Raise StoreKindWrong unless the store is of the kind that a request is about."""
    if store.kind != kind:
        raise StoreKindWrong(f"{store.id} is of kind {store.kind}; this needs {kind}")


def save_store(
    db: Session, store: Store, *, now: datetime, change: StoreChange = StoreChange.CHANGED
) -> Store:
    """Write a changed store under its next version, with its event in the feed."""
    store.version += 1
    store.updated_at = now
    db.add(store)
    tell_change(db, store.id, change, now=now)
    db.flush()
    return store


def target_of_row(store: Store) -> dict[str, str | None]:
    """The fields that say which target a store is: what was seen of another is of no use."""
    fields = (
        TARGET_FIELDS if store.suffix is not None else TARGET_FIELDS - {"suffix"}
    )  # as it was kept before
    return {name: getattr(store, name) for name in sorted(fields)}


def note_target(
    db: Session, store_id: str, seen: Store, *, identity: str, parameters: Mapping[str, int]
) -> None:
    """Keep what a look at the target told, unless the store names another target by now.

    The version stays: a client that has read the store before may change it still.
    """
    store = get_store(db, store_id, lock=True)
    if target_of_row(store) != target_of_row(seen):
        return
    if (store.target_identity, store.target_parameters) != (identity, dict(parameters)):
        store.target_identity, store.target_parameters = identity, dict(parameters)
        db.add(store)
        db.flush()


def store_version(store: Store) -> str:
    """The version of a store, as ETags have it."""
    return version_of(store.version, store.created_at)


def learned_of(store: Store) -> str:
    """What distinguishes what a look at the target told: part of the ETag, and no change by a client."""
    if store.target_identity is None:
        return ""
    told = f"{store.target_identity} {sorted(store.target_parameters.items())}"
    return sha256(told.encode()).hexdigest()[:8]


def remove_store(
    db: Session, store_id: str, *, if_match: str | None, active_jobs: int, now: datetime, extinctions: int = 0
) -> None:
    """Forget a store; its jobs stay as history, its target is not touched.

    Args:
        extinctions: that would be forgotten with it.
    Raises: StoreNotFound, EtagMismatch, PreconditionMissing, StoreInUse, ExtinctionsKept.
    """
    store = get_store(db, store_id, lock=True)
    require_match(if_match, store_version(store), learned_of(store))
    if active_jobs:
        raise StoreInUse("jobs or protections of this store have not ended")
    if extinctions:
        detail = f"{extinctions} extinction(s) of this environment are kept here alone: forget_extinctions"
        raise ExtinctionsKept(f"{detail} says that nobody will ask for their keys again")
    db.execute(delete(SeriesPoint).where(col(SeriesPoint.store) == store_id))
    db.delete(store)
    tell_change(db, store_id, StoreChange.REMOVED, now=now)
    db.flush()


def parallel_limits(db: Session, stores: Collection[str]) -> dict[str, int]:
    """How many jobs of each of some stores may run at once."""
    rows = db.exec(select(Store.id, Store.limits).where(col(Store.id).in_(sorted(stores)))).all()
    return {
        store_id: int((limits or {}).get("max_parallel_jobs", StoreLimits().max_parallel_jobs))
        for store_id, limits in rows
    }
