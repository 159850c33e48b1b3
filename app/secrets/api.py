"""`/v1/secrets`: where passwords and tokens lie, and who may use them. Their values never leave."""

from collections.abc import Callable
from typing import Annotated, cast

from fastapi import Depends, Path, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, requires_unlimited
from app.auth.actions import Action
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.conditional import IfMatch, IfNoneMatch, conditional_answer, etag
from app.kit.http.at_once import at_once
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.secrets.models import NAME_PATTERN, SecretCreate, SecretPatch, SecretRead
from app.secrets.rows import Secret
from app.secrets.service import (
    change_secret,
    create_secret,
    get_secret,
    list_secrets,
    read_secret,
    reference_of,
    remove_secret,
    secret_version,
)
from app.settings import Settings

router = new_router(tags=["secrets"])
SecretPath = Annotated[str, Path(pattern=rf"^{NAME_PATTERN}$")]
Users = Callable[[Session, str], list[str]]


def users_of(request: Request) -> Users:
    """Who names a secret: a function of the floors above, passed in by main.py."""
    return cast(Users, request.app.state.secret_users)


Admin = Annotated[Caller, Depends(requires_unlimited(Scope.ADMIN))]
"""A secret may be for any store."""


def _answer(
    row: Secret, settings: Settings, *, status: int = 200, changed: frozenset[str] = frozenset()
) -> Answer:
    headers = {"ETag": etag(secret_version(row))}
    if status == 201:
        headers["Location"] = f"/v1/secrets/{row.name}"
    # Where it lies is for admins; who may read the audit sees that it has moved.
    facts = row.model_dump(include={"stores", "labels", "hosts", "clear_text_on_loopback"}, warnings=False)
    facts |= {"changed": sorted(changed)} if changed else {}
    return Answer(body=read_secret(row, settings), status=status, headers=headers, audit=facts)


@router.post(
    "/v1/secrets",
    status_code=201,
    response_model=SecretRead,
    summary="Register a secret",
    operation_id="create_secret",
    responses=problems(409),
)
def post_secret(
    body: SecretCreate,
    request: Request,
    caller: Admin,
    settings: SettingsDep,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Where it lies, which stores may use it, and for which hosts. Its value is read at each use."""

    def effect(db: Session) -> Answer:
        return _answer(create_secret(db, body, settings=settings, now=clock.now()), settings, status=201)

    return mutate(
        request, caller, effect, action=Action.SECRET_CREATE, subject=("secret", body.name), body=body
    )


@router.get(
    "/v1/secrets",
    response_model=Page[SecretRead],
    summary="List secrets",
    operation_id="list_secrets",
    responses=problems(),
)
def get_secrets(
    caller: Admin,
    settings: SettingsDep,
    database: DatabaseDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[SecretRead]:
    """Secrets by name; never their values."""
    with database.reading() as db:
        return list_secrets(db, settings, page_size=page_size, page_token=page_token)


@router.get(
    "/v1/secrets/{name}",
    response_model=SecretRead,
    summary="Get a secret",
    operation_id="get_secret",
    responses=problems(404) | {304: {"description": "Still the version of If-None-Match"}},
)
def get_one_secret(
    name: SecretPath,
    caller: Admin,
    settings: SettingsDep,
    database: DatabaseDep,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Never its value. The ETag is what PATCH and DELETE want."""
    with database.reading() as db:
        row = get_secret(db, name)
    return conditional_answer(read_secret(row, settings), secret_version(row), if_none_match)


@router.patch(
    "/v1/secrets/{name}",
    response_model=SecretRead,
    summary="Change a secret",
    operation_id="change_secret",
    responses=problems(404, 412, 428),
)
def patch_secret(
    name: SecretPath,
    body: SecretPatch,
    request: Request,
    caller: Admin,
    settings: SettingsDep,
    clock: ClockDep,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """What is left out stays. A new reference is what the next use reads: rotate by it, or in its place."""

    def effect(db: Session) -> Answer:
        row = change_secret(db, name, body, if_match=if_match, settings=settings, now=clock.now())
        return _answer(row, settings, changed=frozenset(body.model_fields_set))

    return mutate(request, caller, effect, action=Action.SECRET_CHANGE, subject=("secret", name), body=body)


@router.delete(
    "/v1/secrets/{name}",
    status_code=204,
    response_class=Response,
    summary="Remove a secret",
    operation_id="remove_secret",
    responses=problems(404, 409, 412, 428),
)
def delete_secret(
    name: SecretPath,
    request: Request,
    caller: Admin,
    users: Annotated[Users, Depends(at_once(users_of))],
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """409 while a store or an agreement names it. The file or variable is not touched."""

    def effect(db: Session) -> Answer:
        remove_secret(db, name, if_match=if_match, users=users(db, reference_of(name)))
        return Answer(status=204)

    return mutate(request, caller, effect, action=Action.SECRET_REMOVE, subject=("secret", name))
