"""Rows of the audit that come of a request."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from fastapi import Request
from sqlmodel import Session

from app.auth.access import clock_of, via_of
from app.auth.actions import Action
from app.auth.rows import AuditEvent, audited
from app.auth.service import Caller

Done = TypeVar("Done")


def with_reason(effect: Callable[[Session], Done], body: Any) -> Callable[[Session], Done]:
    """An effect whose `audit` says why, where the request does: nobody who answers has to think of it."""
    reason = body.get("reason") if isinstance(body, Mapping) else getattr(body, "reason", None)
    if reason is None:
        return effect

    def reasoned(db: Session) -> Done:
        done: Any = effect(db)
        return cast(Done, replace(done, audit={"reason": reason} | dict(done.audit)))

    return reasoned


def audit_row(
    request: Request,
    caller: Caller,
    action: Action,
    subject: tuple[str, str],
    *,
    store: str | None = None,
    detail: Mapping[str, Any],
) -> AuditEvent:
    """What a caller does by a request; `subject` is its type and its id."""
    return audited(
        action,
        subject,
        at=clock_of(request).now(),
        actor=caller.name,
        token_id=caller.token_id,
        store=store,
        request_id=request.state.request_id,
        detail=detail,
    )


def audit_look(
    db: Session, request: Request, caller: Caller, action: Action, *, store: str, detail: dict[str, Any]
) -> None:
    """Add the row of a look by the console: it changes nothing, and has its reason.

    Those of programs come every minute, and leave none.
    """
    via = via_of(request)
    if via:
        db.add(audit_row(request, caller, action, ("store", store), store=store, detail=detail | via))
