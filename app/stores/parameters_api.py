"""`/v1/stores/{s}/parameters`: a store's own values, and what is in effect."""

from collections.abc import Mapping

from fastapi import Request
from sqlmodel import Session
from starlette.responses import JSONResponse, Response

from app.auth.access import ClockDep, DatabaseDep
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.service import Caller
from app.kinds.parameter import ParameterSpec, ParameterValue
from app.kit.conditional import IfMatch, etag, require_match
from app.kit.http.routing import new_router
from app.kit.pagination import Page
from app.kit.problems import problems
from app.parameters.api import ParameterName, Reader, Writer
from app.parameters.models import ParameterRead, ParameterWrite, read_parameter
from app.parameters.registry import REGISTRY
from app.parameters.service import check_store_scope, effective, global_values, known_parameter
from app.stores.api import StoreId, read_row
from app.stores.rows import Store
from app.stores.service import get_store, save_store, store_version

router = new_router(tags=["parameters"])


def _shown(
    db: Session, store: Store, spec: ParameterSpec, values: Mapping[str, ParameterValue] | None = None
) -> ParameterRead:
    in_effect = effective(db, spec, store.parameters, target_values=store.target_parameters, values=values)
    return read_parameter(spec, in_effect.value, in_effect.source)


@router.get(
    "/v1/stores/{store_id}/parameters",
    response_model=Page[ParameterRead],
    summary="List a store's parameters",
    operation_id="list_store_parameters",
    responses=problems(404),
)
def get_store_parameters(store_id: StoreId, caller: Reader, database: DatabaseDep) -> Page[ParameterRead]:
    """Those of its kind, with the value in effect and its source; one page."""
    store = read_row(database, store_id, caller)
    with database.reading() as db:
        values = global_values(db)
        shown = [_shown(db, store, spec, values) for spec in REGISTRY if store.kind in spec.kinds]
        return Page(items=shown)


@router.get(
    "/v1/stores/{store_id}/parameters/{name}",
    response_model=ParameterRead,
    summary="Get a store's parameter",
    operation_id="get_store_parameter",
    responses=problems(404),
)
def get_store_parameter(
    store_id: StoreId, name: ParameterName, caller: Reader, database: DatabaseDep
) -> Response:
    """The ETag is the store's: its own values are part of it."""
    spec = known_parameter(name)
    store = read_row(database, store_id, caller)
    check_store_scope(spec, store.kind)
    with database.reading() as db:
        shown = _shown(db, store, spec)
    return JSONResponse(shown.model_dump(mode="json"), headers={"ETag": etag(store_version(store))})


def _change(
    request: Request,
    caller: Caller,
    clock: ClockDep,
    named: tuple[str, str],
    if_match: str | None,
    body: ParameterWrite | None,
) -> Response:
    store_id, name = named
    caller.require_store(store_id)
    spec = known_parameter(name)
    if spec.needs is not None:
        caller.require(spec.needs)
    value = None if body is None else spec.parse(body.value)

    def effect(db: Session) -> Answer:
        store = get_store(db, store_id, lock=True)
        check_store_scope(spec, store.kind)
        require_match(if_match, store_version(store))
        others = {key: kept for key, kept in store.parameters.items() if key != spec.name}
        store.parameters = others if value is None else others | {spec.name: value}
        save_store(db, store, now=clock.now())
        return Answer(
            body=_shown(db, store, spec), headers={"ETag": etag(store_version(store))}, audit={"value": value}
        )

    verb = "unset" if body is None else "set"
    return mutate(
        request,
        caller,
        effect,
        action=Action(f"parameter.{verb}"),
        subject=("parameter", spec.name),
        store=store_id,
        body=body,
    )


@router.put(
    "/v1/stores/{store_id}/parameters/{name}",
    response_model=ParameterRead,
    summary="Set a store's parameter",
    operation_id="set_store_parameter",
    responses=problems(404, 409, 412, 428),
)
def put_store_parameter(
    store_id: StoreId,
    name: ParameterName,
    body: ParameterWrite,
    request: Request,
    caller: Writer,
    clock: ClockDep,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Jobs that were submitted before keep what they were submitted with."""
    return _change(request, caller, clock, (store_id, name), if_match, body)


@router.delete(
    "/v1/stores/{store_id}/parameters/{name}",
    response_model=ParameterRead,
    summary="Unset a store's parameter",
    operation_id="unset_store_parameter",
    responses=problems(404, 409, 412, 428),
)
def delete_store_parameter(
    store_id: StoreId,
    name: ParameterName,
    request: Request,
    caller: Writer,
    clock: ClockDep,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """The value for all stores, the target's own or the default holds again."""
    return _change(request, caller, clock, (store_id, name), if_match, None)
