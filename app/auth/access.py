"""The dependency that turns a bearer token into a Caller, and the service's own objects on a request."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.auth.scopes import Scope
from app.auth.service import Caller, authenticate
from app.clock import Clock
from app.db import Database
from app.errors import ScopeMissing, Unauthenticated
from app.settings import Settings

if TYPE_CHECKING:
    from starlette.datastructures import State

_bearer = HTTPBearer(auto_error=False, description="A token made by `POST /v1/tokens`.")


def database_of(request: Request) -> Database:
    """The metadata database of this application."""
    state: State = request.app.state
    return cast(Database, state.database)


def settings_of(request: Request) -> Settings:
    """The settings of this application."""
    return cast(Settings, request.app.state.settings)


def clock_of(request: Request) -> Clock:
    """The clock of this application."""
    return cast(Clock, request.app.state.clock)


def instance_id_of(request: Request) -> str:
    """This instance, as rows name whoever works on them."""
    return cast(str, request.app.state.instance_id)


DatabaseDep = Annotated[Database, Depends(database_of)]
SettingsDep = Annotated[Settings, Depends(settings_of)]
ClockDep = Annotated[Clock, Depends(clock_of)]


def authenticated(
    request: Request,
    database: DatabaseDep,
    clock: ClockDep,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Caller:
    """Whoever has a token that is good; it may have no scope at all.

    Raises: Unauthenticated.
    """
    if credentials is None:
        raise Unauthenticated("send Authorization: Bearer TOKEN", code="TOKEN_MISSING")
    with database.reading() as db:
        caller = authenticate(db, credentials.credentials, now=clock.now())
    request.state.token_id = caller.token_id
    return caller


def requires(scope: Scope) -> Callable[..., Caller]:
    """Make a dependency that demands a scope."""

    def caller_with_scope(caller: Annotated[Caller, Depends(authenticated)]) -> Caller:
        caller.require(scope)
        return caller

    return caller_with_scope


def requires_one_of(*scopes: Scope) -> Callable[..., Caller]:
    """Make a dependency that demands any of the scopes."""

    def caller_with_one(caller: Annotated[Caller, Depends(authenticated)]) -> Caller:
        if not caller.scopes.intersection(scopes):
            names = [str(scope) for scope in scopes]
            raise ScopeMissing(f"this needs one of the scopes {', '.join(names)}", extra={"scopes": names})
        return caller

    return caller_with_one
