"""The dependency that turns a bearer token into a Caller, and the service's own objects on a request."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Final, cast

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.openapi.models import SecurityBase as SecurityBaseModel
from fastapi.security import HTTPBearer
from fastapi.security.base import SecurityBase

from app.auth.oidc.form import is_jwt
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.auth.token_cache import READING, TokenCache
from app.clock import Clock
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable, ScopeMissing, Unauthenticated
from app.kit.http.at_once import at_once
from app.settings import Settings

if TYPE_CHECKING:
    from starlette.datastructures import State

    from app.auth.oidc.keys import Keys

SIGNED_IN: Final = "lethe.signed_in"
"""Where a request's scope has its Caller that comes from the console; nothing from outside gets there."""
REASON: Final = "lethe.reason"
"""The same, of why somebody does it."""
_BEARER: Final = HTTPBearer(auto_error=False, description="A token made by `POST /v1/tokens`.")


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


def owner_of(request: Request) -> str:
    """Who works on this request, as rows name it: of several processes of an instance each has its name."""
    return cast(str, request.app.state.owner)


def via_of(request: Request) -> dict[str, str]:
    """For the audit: by which door a request came, if not by the API itself, and the reason given there."""
    if SIGNED_IN not in request.scope:
        return {}
    reason: str | None = request.scope.get(REASON)
    return {"via": "console"} | ({} if reason is None else {"reason": reason})


def tell_changed(request: Request, name: str) -> None:
    """Wake whoever waits in this process for a job or a store; an empty name: for any."""
    cast(Callable[[str], None], request.app.state.changed)(name)


DatabaseDep = Annotated[Database, Depends(at_once(database_of))]
SettingsDep = Annotated[Settings, Depends(at_once(settings_of))]
ClockDep = Annotated[Clock, Depends(at_once(clock_of))]


async def authenticated(request: Request, secret: str | None) -> Caller:
    """Whoever has a token that is good; it may have no scope at all.

    Raises: Unauthenticated; of a provider's token also Forbidden, IdentityProviderUnavailable.
    """
    signed_in: Caller | None = request.scope.get(SIGNED_IN)
    if signed_in is not None:
        return signed_in
    if secret is None:
        raise Unauthenticated("send Authorization: Bearer TOKEN", code="TOKEN_MISSING")
    caller = await _caller_of(request, secret)
    request.state.token_id, request.state.token_name = caller.token_id, caller.name
    return caller


async def _caller_of(request: Request, secret: str) -> Caller:
    now = clock_of(request).now()
    oidc: Keys | None = request.app.state.oidc_keys
    if oidc is not None and is_jwt(secret):
        from app.auth.oidc.bearer import caller_of_jwt  # a twentieth of a second where there is a provider

        return await run_in_threadpool(caller_of_jwt, secret, settings_of(request).oidc, oidc, now=now)
    tokens: TokenCache = request.app.state.tokens
    known = tokens.known(secret, now=now) if request.method in READING else None
    if known is None:
        known = await tokens.look_up_soon(secret, now=now)
    if known is None:
        known = await run_in_threadpool(tokens.look_up, secret, now=now)
    return known


async def is_still_good(request: Request, caller: Caller) -> bool:
    """Whether the token of a request that is being answered may still be used; asked without a statement
    where somebody has asked a moment ago.
    """
    if caller.expires_at is not None and caller.expires_at <= clock_of(request).now():
        return False
    if caller.is_of_provider:  # Lethe has no row of it
        return True
    credentials = await _BEARER(request)
    tokens: TokenCache = request.app.state.tokens
    try:
        async with tokens.turn:  # of many streams that hear the same, the first asks for all
            await authenticated(request, None if credentials is None else credentials.credentials)
    except Unauthenticated:
        return False
    except (MetadataBusy, MetadataUnavailable):  # it is asked again
        return True
    return True


@dataclass(frozen=True, slots=True)
class Condition:
    """A scope that only some requests of an operation need.

    Args:
        when: completes "needed when ..." in the operation's description.
    """

    scope: Scope
    when: str


@dataclass(frozen=True)
class Requirement(SecurityBase):
    """A dependency that demands rights of the caller, and tells the OpenAPI document of them.

    Args:
        any_of: one of these is needed, whatever the request says; empty: any token will do.
        conditions: what a request may need besides; whoever asks for another scope is a programmer's error.
        is_unlimited: a token limited to stores will not do.
    """

    any_of: tuple[Scope, ...]
    conditions: tuple[Condition, ...] = ()
    is_unlimited: bool = False
    declared: frozenset[Scope] = field(init=False, repr=False, compare=False)
    """Every scope that a request may be asked for."""
    model: SecurityBaseModel = field(init=False, repr=False, compare=False)
    scheme_name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        declared = frozenset(self.any_of).union(condition.scope for condition in self.conditions)
        found = {"declared": declared, "model": _BEARER.model, "scheme_name": _BEARER.scheme_name}
        for name, value in found.items():
            object.__setattr__(self, name, value)

    async def __call__(self, request: Request) -> Caller:
        """The caller, who holds what is needed.

        Raises: ScopeMissing, TokenLimitedToStores, and as `authenticated`.
        """
        credentials = await _BEARER(request)
        secret = None if credentials is None else credentials.credentials
        caller = replace(await authenticated(request, secret), declared=self.declared)
        if len(self.any_of) == 1:
            caller.require(self.any_of[0])
        elif self.any_of and not caller.scopes.intersection(self.any_of):
            names = [str(scope) for scope in self.any_of]
            raise ScopeMissing(f"this needs one of the scopes {', '.join(names)}", extra={"scopes": names})
        if self.is_unlimited:
            caller.require_unlimited()
        return caller


def requires(scope: Scope, *conditions: Condition) -> Requirement:
    """Make a dependency that demands a scope."""
    return Requirement((scope,), conditions)


def requires_unlimited(scope: Scope, *conditions: Condition) -> Requirement:
    """Make a dependency that demands a scope, and a token that is not limited to stores."""
    return Requirement((scope,), conditions, is_unlimited=True)


def requires_one_of(*scopes: Scope, conditions: tuple[Condition, ...] = ()) -> Requirement:
    """Make a dependency that demands any of the scopes."""
    return Requirement(scopes, conditions)
