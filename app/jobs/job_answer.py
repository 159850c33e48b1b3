"""The answer of a request that queues a job: 202 with it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fastapi import Request
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import tell_changed
from app.auth.actions import Action
from app.auth.mutation import Answer, mutate
from app.auth.service import Caller
from app.jobs.api import accepted
from app.jobs.rows import Job


def job_answer(
    request: Request,
    caller: Caller,
    queue: Callable[[Session], Job],
    *,
    action: Action,
    store_id: str,
    body: Any,
    audit: Mapping[str, Any] | None = None,
) -> Response:
    """Queue a job in the transaction of the request's key and audit row, and wake who runs it.

    Args:
        action, body: as of `mutate`.
        audit: further facts for the audit row.
    Raises: as `mutate`, and what `queue` raises.
    """

    def effect(db: Session) -> Answer:
        return replace(accepted(queue(db)), audit=audit or {})

    response = mutate(request, caller, effect, action=action, subject=("job", ""), store=store_id, body=body)
    tell_changed(request, store_id)
    return response
