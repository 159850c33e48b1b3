"""`/v1/stores/{s}/erasure:abort`: no write to protected files happens any more, or nothing is promised."""

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.access import database_of, requires_one_of
from app.auth.actions import Action
from app.auth.mutation import Answer, Begun, Conclude, IdempotencyKeyHeader, problem_answer
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.protection.access import Place, answer_after_wait, wait_until_quiet
from app.protection.errors import (
    EraseAbortTimeout,
    NotProtected,
    ProtectionEnded,
    ProtectionExpired,
    some_names,
)
from app.protection.files import covers, name_of, number_of
from app.protection.models import AbortRead, AbortRequest
from app.protection.queries import get_protection
from app.protection.rows import Protection
from app.protection.service import require_active
from app.protection.waiting import Silence
from app.stores.api import StoreId

router = new_router(tags=["protections"])
Keeper = Annotated[Caller, Depends(requires_one_of(Scope.BACKUPS_WRITE, Scope.ERASURE_WRITE))]


@router.post(
    "/v1/stores/{store_id}/erasure:abort",
    response_model=AbortRead,
    summary="Stop erasing protected files",
    operation_id="abort_erasure",
    responses=problems(404, 409, 429),
)
async def post_abort(
    store_id: StoreId,
    body: AbortRequest,
    request: Request,
    caller: Keeper,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """200 only when no further write of Lethe to these files can happen, until the protection ends.

    503 ERASE_ABORT_TIMEOUT where that cannot be had in time: nothing is promised, the protection stays. Try
    again with a new Idempotency-Key; the answer of the former one stays.
    """
    return await answer_after_wait(
        request,
        caller,
        store_id,
        lambda place: _Abort(request, place, body),
        action=Action.ERASURE_ABORT,
        subject_type="protection",
        body=body,
    )


class _Abort:
    """From the request to the proof, or to the timeout."""

    def __init__(self, request: Request, place: Place, body: AbortRequest) -> None:
        self._request = request
        self._place = place
        self._protection_id = body.protection_id
        self._timeout = place.abort_timeout if body.timeout is None else body.timeout
        self._wanted = None if body.files is None else sorted({number_of(name) for name in body.files})

    def begin(self, db: Session) -> Begun:
        files = len(self._covered(db))
        until = database_of(self._request).now(db) + self._timeout
        return Begun(self._protection_id, until, audit={"files": files})

    async def wait(self, begun: Begun) -> Conclude:
        numbers = await run_in_threadpool(self._read_covered)
        silence = await wait_until_quiet(
            self._request, self._place.environment, self._protection_id, numbers, until=begun.until
        )
        return partial(self._conclude, silence=silence, files=len(numbers))

    def _conclude(self, db: Session, *, silence: Silence, files: int) -> Answer:
        if not silence.is_proved:
            return problem_answer(self._request, EraseAbortTimeout.after(self._timeout))
        self._covered(db)  # still protected: else the next round may have begun
        return Answer(
            body=AbortRead(
                protection_id=self._protection_id,
                files=files,
                erasure_aborted=silence.was_busy,
                abort_latency_ms=silence.latency_ms,
            )
        )

    def _read_covered(self) -> list[int]:
        with database_of(self._request).reading() as db:
            return self._covered(db)

    def _covered(self, db: Session) -> list[int]:
        """The files to look at.

        Raises: ProtectionNotFound; NotProtected: it is over, or does not cover all that is asked for.
        """
        row = get_protection(db, self._place.store.id, self._protection_id)
        _require_holding(row, now=database_of(self._request).now(db))
        if self._wanted is None:
            return [number for number in self._place.numbers if covers(row.file_ranges, number)]
        foreign = [name_of(number) for number in self._wanted if not covers(row.file_ranges, number)]
        if foreign:
            raise NotProtected(f"{row.id} does not cover {some_names(foreign)}")
        return self._wanted


def _require_holding(row: Protection, *, now: datetime) -> None:
    try:
        require_active(row, now=now)
    except (ProtectionEnded, ProtectionExpired) as error:
        raise NotProtected(error.detail) from error
