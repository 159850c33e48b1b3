"""`:check` and `:recover` of a store: looks at its target, and takes it back."""

from typing import Annotated

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, requires
from app.auth.actions import Action
from app.auth.audit_rows import audit_look
from app.auth.mutation import Answer, IdempotencyKeyHeader, find_replay, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.parameters.service import global_values
from app.stores.api import HooksDep, Reader, StoreId, read_row
from app.stores.borders import judge_at_check
from app.stores.checks.keeping import check_period, keep_check
from app.stores.checks.models import RecoveryRead, StoreCheck
from app.stores.models import StoreKind
from app.stores.same_target import kept_same_target, others_on_target, shown_check
from app.stores.service import get_store, note_target

router = new_router(tags=["stores"])
Admin = Annotated[Caller, Depends(requires(Scope.ADMIN))]


@router.post(
    "/v1/stores/{store_id}:check",
    response_model=StoreCheck,
    summary="Look at a store's target",
    operation_id="check_store",
    responses=problems(404, 409, 502),
)
def post_check(
    store_id: StoreId,
    request: Request,
    caller: Reader,
    settings: SettingsDep,
    database: DatabaseDep,
    clock: ClockDep,
    hooks: HooksDep,
) -> StoreCheck:
    """Connects, reads and reports; a target that cannot be used is a finding, not an error."""
    store = read_row(database, store_id, caller)
    judge_at_check(database, settings, store)
    found = hooks.checks[StoreKind(store.kind)](database, store, settings, clock.now())
    with database.transaction() as db:
        period = check_period(db, store, global_values(db), settings)
        if found.identity is not None:
            note_target(
                db,
                store_id,
                store,
                identity=found.identity,
                parameters=found.parameters,
            )
        seen = get_store(db, store_id)
        others = others_on_target(db, seen, found.findings, found.identity)
        kept = found.model_copy(update={"findings": [*found.findings, *kept_same_target(others)]})
        keep_check(db, seen, kept, period=period, now=clock.now())
        audit_look(db, request, caller, Action.STORE_CHECK, store=store_id, detail={"ok": found.ok})
    return shown_check(found, others, visible=caller.visible_stores())


@router.post(
    "/v1/stores/{store_id}:recover",
    response_model=RecoveryRead,
    summary="Raise our epoch above the target's",
    operation_id="recover_store",
    responses=problems(404, 409, 502),
)
def post_recover(
    store_id: StoreId,
    request: Request,
    caller: Admin,
    settings: SettingsDep,
    database: DatabaseDep,
    hooks: HooksDep,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """After the metadata was restored from an older copy: EPOCH_AHEAD ends, foreign jobs are marked."""
    replay = find_replay(request, caller)
    if replay is not None:
        return replay
    store = read_row(database, store_id, caller)
    found = hooks.recover(database, settings, store, caller.name)

    def effect(_db: Session) -> Answer:
        return Answer(body=found, audit=found.model_dump())

    return mutate(
        request, caller, effect, action=Action.STORE_RECOVER, subject=("store", store_id), store=store_id
    )
