"""`/v1/stores`: registered targets."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, Condition, DatabaseDep, SettingsDep, requires, tell_changed
from app.auth.actions import Action
from app.auth.audit_rows import audit_row
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.errors import StoreForbidden
from app.kinds.parameter import ParameterScope, ParameterValue
from app.kit.conditional import IfMatch, IfNoneMatch, conditional_answer, etag, shown
from app.kit.http.at_once import at_once
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.kit.values import STORE_ID, Text
from app.parameters.service import parameters_by_need, scopes_of_change
from app.stores.choosing import choice_of, choice_of_patch
from app.stores.errors import StoreChanged
from app.stores.hooks import StoreHooks, hooks_of
from app.stores.labels import parse_labels
from app.stores.models import (
    StoreCreate,
    StoreKind,
    StorePatch,
    StoreRead,
    StoreWritten,
    SuspendRequest,
    read_store,
)
from app.stores.resting import resume_store, suspend_store
from app.stores.rows import Store
from app.stores.same_target import warn_of_same_target
from app.stores.service import (
    ADMINS_FIELDS,
    PLACE_FIELDS,
    SECRET_FIELDS,
    change_store,
    create_store,
    get_store,
    learned_of,
    list_stores,
    needs_admin,
    new_store,
    remove_store,
    store_version,
    takes_secret_by_label,
)

router = new_router(tags=["stores"])
StoreId = Annotated[str, Path(pattern=STORE_ID)]
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]
Writer = Annotated[Caller, Depends(requires(Scope.STORES_WRITE))]
OF_ADMIN = Condition(
    Scope.ADMIN,
    f"{', '.join(f'`{name}`' for name in sorted(ADMINS_FIELDS))} are other than usual, or change",
)
SWITCHES = tuple(
    Condition(scope, f"`parameters` change {', '.join(names)}")
    for scope, names in parameters_by_need(ParameterScope.STORE).items()
)
Chooser = Annotated[Caller, Depends(requires(Scope.STORES_WRITE, OF_ADMIN, *SWITCHES))]
FORGET = Condition(Scope.ADMIN, "`forget_extinctions` is true")
Remover = Annotated[Caller, Depends(requires(Scope.STORES_WRITE, FORGET))]
HooksDep = Annotated[StoreHooks, Depends(at_once(hooks_of))]


def read_row(database: Database, store_id: str, caller: Caller) -> Store:
    """The row of a store that the caller may see, in a transaction of its own."""
    caller.require_store(store_id)
    with database.reading() as db:
        return get_store(db, store_id)


def _answer(store: Store, *, status: int = 200) -> Answer:
    headers = {"ETag": etag(store_version(store), learned_of(store))}
    if status == 201:
        headers["Location"] = f"/v1/stores/{store.id}"
    return Answer(body=read_store(store), status=status, headers=headers)


def _written(
    db: Session, store: Store, caller: Caller, *, status: int = 200, is_moved: bool = True
) -> Answer:
    """The store, and what whoever has chosen its target should know."""
    plain = _answer(store, status=status)
    warnings = warn_of_same_target(db, store, visible=caller.visible_stores()) if is_moved else []
    body = StoreWritten(**read_store(store).model_dump(by_alias=True), warnings=warnings)
    return Answer(body=body, status=status, headers=plain.headers)


def _require_scopes(caller: Caller, before: Mapping[str, ParameterValue], store: Store) -> None:
    """Refuse a switch that makes Lethe act to a token that may not do what it does."""
    for scope in sorted(scopes_of_change(before, store.parameters)):
        caller.require(scope)


def _require_reach(caller: Caller, db: Session, store: Store, before: Mapping[str, Any]) -> None:
    """Refuse a secret by label to a token of some stores: it could write the label of others' secrets."""
    if caller.stores is not None and takes_secret_by_label(db, store, before):
        raise StoreForbidden("a secret that goes by labels is for a token that is not limited to stores")


def _mutated(
    request: Request,
    caller: Caller,
    effect: Callable[[Session], Answer],
    action: Action,
    store_id: str,
    body: object = None,
) -> Response:
    """Change a store, with the audit row of it."""
    return mutate(
        request, caller, effect, action=action, subject=("store", store_id), store=store_id, body=body
    )


@router.post(
    "/v1/stores",
    status_code=201,
    response_model=StoreWritten,
    summary="Register a store",
    operation_id="create_store",
    responses=problems(404, 409),
)
def post_store(
    body: StoreCreate,
    request: Request,
    caller: Chooser,
    settings: SettingsDep,
    database: DatabaseDep,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """The target is asked who it is, where it answers within 2 s; `:check` looks at the rest.

    A token that is limited to stores names a target that others know only if it has access to all of these.
    """
    caller.require_store(body.id)
    choice = choice_of(caller, database, settings, new_store(body, now=clock.now()))

    def effect(db: Session) -> Answer:
        store = create_store(db, body, choice=choice, settings=settings, database=database, now=clock.now())
        _require_scopes(caller, {}, store)
        if needs_admin(store, {}):
            caller.require(OF_ADMIN.scope)
        _require_reach(caller, db, store, {})
        return _written(db, store, caller, status=201)

    return _mutated(request, caller, effect, Action.STORE_CREATE, body.id, body=body)


@router.get(
    "/v1/stores",
    response_model=Page[StoreRead],
    summary="List stores",
    operation_id="list_stores",
    responses=problems(),
)
def get_stores(
    caller: Reader,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
    kind: Annotated[list[StoreKind], Query(max_length=10)] = [],  # noqa: B006
    label: Annotated[list[Text], Query(max_length=20, description="NAME=VALUE; all must match.")] = [],  # noqa: B006
) -> Response:
    """Stores by id; a token limited to stores sees those."""
    with database.reading() as db:
        found = list_stores(
            db,
            kinds=kind,
            labels=parse_labels(label),
            visible=caller.visible_stores(),
            page_size=page_size,
            page_token=page_token,
        )
    return shown(found)


@router.get(
    "/v1/stores/{store_id}",
    response_model=StoreRead,
    summary="Get a store",
    operation_id="get_store",
    responses=problems(404) | {304: {"description": "Still the version of If-None-Match"}},
)
def get_one_store(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The ETag is what PATCH and DELETE want."""
    store = read_row(database, store_id, caller)
    return conditional_answer(
        read_store(store), store_version(store), if_none_match, learned=learned_of(store)
    )


@router.patch(
    "/v1/stores/{store_id}",
    response_model=StoreWritten,
    summary="Change a store",
    operation_id="change_store",
    responses=problems(404, 409, 412, 428),
)
def patch_store(
    store_id: StoreId,
    body: StorePatch,
    request: Request,
    caller: Chooser,
    settings: SettingsDep,
    database: DatabaseDep,
    clock: ClockDep,
    hooks: HooksDep,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """What is left out stays. Running jobs keep the parameters that they were submitted with.

    Another target is asked who it is, as at its registration.
    """
    caller.require_store(store_id)
    choice, asked = choice_of_patch(caller, database, settings, store_id, body)

    def effect(db: Session) -> Answer:
        seen = get_store(db, store_id, lock=True)
        before = {name: getattr(seen, name) for name in ADMINS_FIELDS}
        parameters = dict(seen.parameters)
        secret = {name: getattr(seen, name) for name in SECRET_FIELDS}
        store = change_store(
            db,
            store_id,
            body,
            if_match=if_match,
            choice=choice,
            active_jobs=hooks.count_active_jobs(db, store_id),
            extinctions=hooks.count_extinctions(db, seen),
            settings=settings,
            database=database,
            now=clock.now(),
        )
        if any(getattr(store, name) != value for name, value in asked.items()):
            raise StoreChanged  # since its target was asked
        if body.labels is not None:
            hooks.relabelled(db, database.now(db))
        _require_scopes(caller, parameters, store)
        if needs_admin(store, before):
            caller.require(OF_ADMIN.scope)
        _require_reach(caller, db, store, secret)
        changed = sorted(body.model_dump(exclude_unset=True, by_alias=True))
        is_moved = bool(PLACE_FIELDS & set(body.model_dump(exclude_unset=True, by_alias=False)))
        answer = _written(db, store, caller, is_moved=is_moved)
        return Answer(body=answer.body, headers=answer.headers, audit={"changed": changed})

    return _mutated(request, caller, effect, Action.STORE_CHANGE, store_id, body=body)


@router.delete(
    "/v1/stores/{store_id}",
    status_code=204,
    response_class=Response,
    summary="Remove a store",
    operation_id="remove_store",
    responses=problems(404, 409, 412, 428),
)
def delete_store(
    store_id: StoreId,
    request: Request,
    caller: Remover,
    hooks: HooksDep,
    clock: ClockDep,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
    forget_extinctions: Annotated[
        bool,
        Query(
            description="JE, by an admin: its extinctions are forgotten with it; their keys count as alive."
        ),
    ] = False,
) -> Response:
    """The registration goes; its jobs stay as history, and the target is not touched."""
    caller.require_store(store_id)
    if forget_extinctions:
        caller.require(FORGET.scope)

    def effect(db: Session) -> Answer:
        store = get_store(db, store_id, lock=True)  # before its schedules, as by whoever fires one
        kept = 0 if forget_extinctions else hooks.count_extinctions(db, store)
        users = hooks.count_active_jobs(db, store_id)
        now = clock.now()
        leaving = hooks.leave(db, store_id, now)
        remove_store(db, store_id, if_match=if_match, active_jobs=users, extinctions=kept, now=now)
        for each in leaving:
            detail = {"because": Action.STORE_REMOVE, **each.detail}
            db.add(audit_row(request, caller, each.action, each.subject, store=store_id, detail=detail))
        return Answer(status=204, audit={"forget_extinctions": forget_extinctions})

    return _mutated(request, caller, effect, Action.STORE_REMOVE, store_id)


@router.post(
    "/v1/stores/{store_id}:suspend",
    response_model=StoreRead,
    summary="Let a store's jobs rest",
    operation_id="suspend_store",
    responses=problems(404, 409),
)
def post_suspend(
    store_id: StoreId,
    body: SuspendRequest,
    request: Request,
    caller: Writer,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Running jobs finish their unit and wait; new ones wait before their first."""
    caller.require_store(store_id)

    def effect(db: Session) -> Answer:
        return _answer(suspend_store(db, store_id, body, now=clock.now()))

    response = _mutated(request, caller, effect, Action.STORE_SUSPEND, store_id, body=body)
    tell_changed(request, "")
    return response


@router.post(
    "/v1/stores/{store_id}:resume",
    response_model=StoreRead,
    summary="End a store's rest",
    operation_id="resume_store",
    responses=problems(404, 409),
)
def post_resume(
    store_id: StoreId,
    request: Request,
    caller: Writer,
    clock: ClockDep,
    hooks: HooksDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Its waiting jobs go on."""
    caller.require_store(store_id)

    def effect(db: Session) -> Answer:
        store = resume_store(db, store_id, now=clock.now())
        hooks.resumed(db, store_id, clock.now())
        return _answer(store)

    response = _mutated(request, caller, effect, Action.STORE_RESUME, store_id)
    tell_changed(request, "")
    return response
