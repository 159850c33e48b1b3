"""A small act: a page that asks for the reason, and the act."""

from typing import Annotated, Final

from fastapi import Path, Query, Request
from starlette.responses import Response

from app.auth.rows import StoreName
from app.console.acting import ActDep, show_again
from app.console.lists.doings import DOINGS, Doing
from app.console.rendering import render
from app.console.sessions import SignedInDep
from app.errors import NotFound, ServiceError, Unprocessable
from app.kit.http.routing import new_router

PAGE: Final = "/console/do/{doing}/{subject}"
Subject = Annotated[str, Path(pattern=r"^[a-z]{2,5}_[0-9a-z]{26}$")]
Store = Annotated[StoreName | None, Query()]
router = new_router(include_in_schema=False)


def _doing(doing: str) -> Doing:
    found = DOINGS.get(doing)
    if found is None:
        raise NotFound("there is no such act")
    return found


@router.get(PAGE)
def get_doing(
    request: Request, signed_in: SignedInDep, doing: str, subject: Subject, store: Store = None
) -> Response:
    """Say what would happen, and ask why."""
    return _page(request, signed_in, doing, subject, store)


def _page(
    request: Request,
    signed_in: SignedInDep,
    doing: str,
    subject: str,
    store: str | None,
    problem: ServiceError | None = None,
    reason: str = "",
) -> Response:
    return render(
        request,
        "doing.html",
        signed_in,
        doing=_doing(doing),
        subject=subject,
        store=store,
        problem=problem,
        reason=reason,
    )


@router.post(PAGE)
async def post_doing(
    request: Request, signed_in: SignedInDep, act: ActDep, doing: str, subject: Subject, store: Store = None
) -> Response:
    """Do it."""
    found = _doing(doing)
    act.require(*found.scopes)
    try:
        if act.reason is None:
            raise Unprocessable("say why", code="INVALID_REQUEST")
        method, path, body = found.call(subject, store or "")
        await act.send(method, *path, body=body)
    except ServiceError as error:
        return _page(request, signed_in, doing, subject, store, error, act.fields.get("reason", ""))
    return show_again(found.back)
