"""What somebody has had looked at by hand, in the audit: it changes nothing, and has its reason."""

from typing import Any

from fastapi import Request
from sqlmodel import Session

from app.auth.access import clock_of, via_of
from app.auth.actions import Action
from app.auth.rows import AuditEvent
from app.auth.service import Caller
from app.kit.ids import new_id


def audit_look(
    db: Session, request: Request, caller: Caller, action: Action, *, store: str, detail: dict[str, Any]
) -> None:
    """Add the row of a look by the console; those of programs come every minute, and are none."""
    via = via_of(request)
    if not via:
        return
    db.add(
        AuditEvent(
            id=new_id("aud"),
            at=clock_of(request).now(),
            token_id=caller.token_id,
            actor=caller.name,
            action=action,
            subject_type="store",
            subject_id=store,
            store=store,
            request_id=request.state.request_id,
            detail=detail | via,
        )
    )
