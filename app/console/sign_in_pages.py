"""The form for a token, and the end of a session."""

from typing import Annotated, Final

from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.auth.access import clock_of
from app.auth.console_sessions import sign_in, sign_out
from app.console.forms import PostedDep, fields_of, require_same_origin
from app.console.rendering import render
from app.console.sessions import LOGIN, NEXT_MAX_CHARS, PATH, SignedInDep, drop_cookie, set_cookie
from app.errors import Unauthenticated
from app.kit.http.routing import new_router

HOME: Final = PATH + "/"
router = new_router(include_in_schema=False)


def _next_page(given: str) -> str:
    """Where to go after: a page of the console, whatever the form says."""
    is_own = given.startswith(HOME) and not given.startswith("//") and "\\" not in given
    return given if is_own and len(given) <= NEXT_MAX_CHARS else HOME


@router.get("/")
@router.get(PATH)
def get_root() -> Response:
    """Lead to the console."""
    return RedirectResponse(HOME, status_code=303)


@router.get(LOGIN)
def get_login(request: Request, next: Annotated[str, Query(max_length=NEXT_MAX_CHARS)] = "") -> Response:
    """The form."""
    return render(request, "login.html", None, next_page=_next_page(next), error=None)


@router.post(LOGIN)
async def post_login(request: Request) -> Response:
    """Make a session of a token; it is shown here once, and kept nowhere."""
    require_same_origin(request)
    fields = await fields_of(request)
    next_page = _next_page(fields.get("next", ""))
    try:
        signed_in = await run_in_threadpool(sign_in, request, fields.get("token", "").strip())
    except Unauthenticated as error:
        request.scope["state"]["problem_code"] = error.code  # it is counted as one of the API is
        return render(request, "login.html", None, status=error.status, next_page=next_page, error=error)
    answer = RedirectResponse(next_page, status_code=303)
    lasts = signed_in.ends_at - clock_of(request).now()
    set_cookie(request, answer, signed_in, max_age_s=int(lasts.total_seconds()))
    return answer


@router.post(PATH + "/logout")
def post_logout(request: Request, signed_in: SignedInDep, fields: PostedDep) -> Response:  # noqa: ARG001
    """End the session."""
    sign_out(request, signed_in)
    answer = RedirectResponse(LOGIN, status_code=303)
    drop_cookie(request, answer)
    return answer
