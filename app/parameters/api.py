"""`/v1/parameters`: the registry, and values for the whole service."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from fastapi import Depends, Path, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, Condition, DatabaseDep, requires, requires_unlimited
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kinds.parameter import ParameterScope, ParameterSpec, ParameterValue
from app.kit.conditional import IfMatch, IfNoneMatch, conditional_answer, etag, require_match
from app.kit.http.routing import new_router
from app.kit.pagination import Page
from app.kit.problems import problems
from app.parameters.errors import ParameterScopeInvalid
from app.parameters.models import ParameterRead, ParameterWrite, read_parameter
from app.parameters.registry import REGISTRY
from app.parameters.service import (
    effective,
    global_values,
    global_version,
    known_parameter,
    parameters_by_need,
    set_global,
)

router = new_router(tags=["parameters"])
Reader = Annotated[Caller, Depends(requires(Scope.STORES_READ))]


def _switches(where: ParameterScope) -> Iterator[Condition]:
    """Parameters that make Lethe act want what the act wants."""
    for scope, names in parameters_by_need(where).items():
        yield Condition(scope, f"the parameter is {', '.join(names)}")


Writer = Annotated[Caller, Depends(requires(Scope.PARAMETERS_WRITE, *_switches(ParameterScope.STORE)))]
GlobalWriter = Annotated[
    Caller, Depends(requires_unlimited(Scope.PARAMETERS_WRITE, *_switches(ParameterScope.GLOBAL)))
]
ParameterName = Annotated[str, Path(max_length=120, description="A name of the registry, or an alias.")]


def _shown(
    db: Session, spec: ParameterSpec, values: Mapping[str, ParameterValue] | None = None
) -> ParameterRead:
    in_effect = effective(db, spec, {}, values=values)
    return read_parameter(spec, in_effect.value, in_effect.source)


@router.get(
    "/v1/parameters",
    response_model=Page[ParameterRead],
    summary="List the parameters",
    operation_id="list_parameters",
    responses=problems(),
)
def get_parameters(caller: Reader, database: DatabaseDep) -> Page[ParameterRead]:
    """The whole registry with the values for the whole service; one page."""
    with database.reading() as db:
        values = global_values(db)
        return Page(items=[_shown(db, spec, values) for spec in REGISTRY])


@router.get(
    "/v1/parameters/{name}",
    response_model=ParameterRead,
    summary="Get a parameter",
    operation_id="get_parameter",
    responses=problems(404) | {304: {"description": "Still the version of If-None-Match"}},
)
def get_parameter(
    name: ParameterName, caller: Reader, database: DatabaseDep, if_none_match: IfNoneMatch = None
) -> Response:
    """Its value for stores that have none of their own; the ETag is what PUT and DELETE want."""
    spec = known_parameter(name)
    with database.reading() as db:
        version = global_version(db, spec.name)
        shown = _shown(db, spec)
    return conditional_answer(shown, version, if_none_match)


def _change(
    request: Request,
    caller: Caller,
    clock: ClockDep,
    name: str,
    if_match: str | None,
    body: ParameterWrite | None,
) -> Response:
    spec = known_parameter(name)
    if ParameterScope.GLOBAL not in spec.scopes:
        raise ParameterScopeInvalid(f"{spec.name} is set on a store, not for all")
    if spec.needs is not None:
        caller.require(spec.needs)
    value = None if body is None else spec.parse(body.value)

    def effect(db: Session) -> Answer:
        require_match(if_match, global_version(db, spec.name))
        version = set_global(db, spec, value, now=clock.now())
        return Answer(body=_shown(db, spec), headers={"ETag": etag(version)}, audit={"value": value})

    verb = "unset" if body is None else "set"
    return mutate(
        request,
        caller,
        effect,
        action=Action(f"parameter.{verb}"),
        subject=("parameter", spec.name),
        body=body,
    )


@router.put(
    "/v1/parameters/{name}",
    response_model=ParameterRead,
    summary="Set a parameter for all stores",
    operation_id="set_parameter",
    responses=problems(404, 409, 412, 428),
)
def put_parameter(
    name: ParameterName,
    body: ParameterWrite,
    request: Request,
    caller: GlobalWriter,
    clock: ClockDep,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Jobs that were submitted before keep what they were submitted with."""
    return _change(request, caller, clock, name, if_match, body)


@router.delete(
    "/v1/parameters/{name}",
    response_model=ParameterRead,
    summary="Unset a parameter for all stores",
    operation_id="unset_parameter",
    responses=problems(404, 409, 412, 428),
)
def delete_parameter(
    name: ParameterName,
    request: Request,
    caller: GlobalWriter,
    clock: ClockDep,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """The default holds again."""
    return _change(request, caller, clock, name, if_match, None)
