"""`/v1/tokens` and `/v1/audit-events`."""

from typing import Annotated

from fastapi import Depends, Path, Query, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, DatabaseDep, Requirement, database_of, requires
from app.auth.actions import Action
from app.auth.models import AuditEventRead, TokenCreate, TokenCreated, TokenRead, WhoAmI
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.queries import AuditFilters, list_audit_events, list_tokens
from app.auth.scopes import Scope
from app.auth.service import Caller, create_token, revoke_token
from app.auth.token_cache import HOLDS_S
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken
from app.kit.problems import problems
from app.kit.values import Instant, Text

router = new_router(tags=["tokens and audit"])
Anybody = Annotated[Caller, Depends(Requirement(()))]
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]
Auditor = Annotated[Caller, Depends(requires(Scope.AUDIT_READ))]
TokenId = Annotated[str, Path(pattern=r"^tok_[0-9a-z]{26}$")]


@router.get(
    "/v1/whoami",
    response_model=WhoAmI,
    summary="What this token is",
    operation_id="whoami",
    responses=problems(),
)
def get_whoami(caller: Anybody) -> WhoAmI:
    """Its name, its scopes with all that they imply, its stores, and until when it is good."""
    return WhoAmI(
        token_id=caller.token_id,
        name=caller.name,
        scopes=sorted(caller.scopes),
        stores=None if caller.stores is None else sorted(caller.stores),
        expires_at=caller.expires_at,
        provider=caller.is_of_provider,
    )


@router.post(
    "/v1/tokens",
    status_code=201,
    response_model=TokenCreated,
    summary="Create a token",
    operation_id="create_token",
    responses=problems(409),
)
def post_token(
    body: TokenCreate,
    request: Request,
    caller: Admin,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """Make a token. Its secret is shown here and never again, not even to a replay."""

    def effect(db: Session) -> Answer:
        token, secret = create_token(db, body, now=clock.now(), caller=caller)
        shown = TokenCreated(**token.model_dump(warnings=False), token=secret)
        return Answer(
            body=shown,
            replay_body=shown.model_copy(update={"token": None}),
            status=201,
            headers={"Cache-Control": "no-store"},
            subject_id=token.id,
            audit={"name": token.name, "scopes": token.scopes, "stores": token.stores},
        )

    return mutate(request, caller, effect, action=Action.TOKEN_CREATE, subject=("token", ""), body=body)


@router.get(
    "/v1/tokens",
    response_model=Page[TokenRead],
    summary="List tokens",
    operation_id="list_tokens",
    responses=problems(),
)
def get_tokens(
    caller: Admin, database: DatabaseDep, page_size: PageSize = PAGE_SIZE_DEFAULT, page_token: PageToken = ""
) -> Page[TokenRead]:
    """All tokens, newest first; never their secrets. A limited token sees those that reach no further."""
    with database.reading() as db:
        return list_tokens(db, visible=caller.visible_stores(), page_size=page_size, page_token=page_token)


@router.post(
    "/v1/tokens/{token_id}:revoke",
    response_model=TokenRead,
    summary="Revoke a token",
    operation_id="revoke_token",
    responses=problems(404, 409),
)
def post_revoke(
    token_id: TokenId,
    request: Request,
    caller: Admin,
    clock: ClockDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """From the next request on the token is refused, on every instance."""

    def effect(db: Session) -> Answer:
        token = revoke_token(db, token_id, now=clock.now(), caller=caller)
        return Answer(body=TokenRead.of(token))

    answer = mutate(request, caller, effect, action=Action.TOKEN_REVOKE, subject=("token", token_id))
    if not database_of(request).is_sqlite:  # other instances may have looked it up just before
        clock.sleep(HOLDS_S)
    return answer


def audit_filters(
    action: Annotated[Text | None, Query(max_length=80)] = None,
    actor: Annotated[Text | None, Query(max_length=120, description="The name of a token.")] = None,
    token_id: Annotated[Text | None, Query(max_length=40)] = None,
    store: Annotated[Text | None, Query(max_length=63)] = None,
    subject_id: Annotated[Text | None, Query(max_length=80)] = None,
    created_after: Annotated[Instant | None, Query()] = None,
    created_before: Annotated[Instant | None, Query()] = None,
) -> AuditFilters:
    """What a list of audit rows is narrowed to."""
    return AuditFilters(
        action=None if action is None else action.replace("_", "-"),  # as versions before wrote it
        actor=actor,
        token_id=token_id,
        store=store,
        subject_id=subject_id,
        after=created_after,
        before=created_before,
    )


@router.get(
    "/v1/audit-events",
    response_model=Page[AuditEventRead],
    summary="List audit events",
    operation_id="list_audit_events",
    responses=problems(),
)
def get_audit_events(
    caller: Auditor,
    database: DatabaseDep,
    wanted: Annotated[AuditFilters, Depends(audit_filters)],
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[AuditEventRead]:
    """Who changed what, newest first; a token limited to stores sees theirs."""
    with database.reading() as db:
        return list_audit_events(
            db,
            page_size=page_size,
            page_token=page_token,
            stores=caller.visible_stores(),
            wanted=wanted,
        )
