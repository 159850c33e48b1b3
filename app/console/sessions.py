"""Who asks for a page: the cookie, and what it is worth."""

from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Depends, Request
from starlette.responses import Response

from app.auth.access import settings_of
from app.auth.console_sessions import SignedIn, session_of
from app.auth.holders import CONSOLE, COOKIE
from app.console.calls import Api
from app.errors import Unauthenticated

PATH: Final = CONSOLE
LOGIN: Final = "/console/login"
CODE: Final = "CONSOLE_SIGN_IN_NEEDED"
OF_SESSION: Final = "X-Lethe-Session"
"""The session that an open page was made for; parts of it are given to no other."""
NEXT_MAX_CHARS: Final = 2_500


class SignInNeeded(Unauthenticated):
    """There is no session, it has ended, or the open page is of another one: the form, or the page anew."""


def is_secure(request: Request) -> bool:
    """Whether the browser speaks TLS with us, or with the proxy that we trust."""
    return request.url.scheme == "https"


def set_cookie(request: Request, response: Response, signed_in: SignedIn, *, max_age_s: int) -> None:
    """Give the browser its session."""
    response.set_cookie(
        COOKIE,
        signed_in.secret,
        max_age=max_age_s,
        path="/",
        httponly=True,
        samesite="strict",
        secure=is_secure(request),
    )


def drop_cookie(request: Request, response: Response) -> None:
    """Take it away."""
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=is_secure(request))


def known(request: Request) -> SignedIn | None:
    """Who has signed in; None: nobody."""
    cookie = request.cookies.get(COOKIE)
    found = None if cookie is None else session_of(request, cookie)
    if found is not None:
        request.state.token_id, request.state.token_name = found.caller.token_id, found.caller.name
        request.state.signed_in = found
    return found


def signed_in(request: Request) -> SignedIn:
    """Who has signed in.

    Raises: SignInNeeded.
    """
    found = known(request)
    if found is None or is_of_another(request, found):
        raise SignInNeeded("sign in to see this page", code=CODE)
    return found


def is_of_another(request: Request, signed_in: SignedIn) -> bool:
    """Whether a part is asked for by a page that was made for another session of the same browser."""
    return request.headers.get(OF_SESSION, signed_in.name) != signed_in.name


def login_url(request: Request) -> str:
    """The form, which leads back to the page that was asked for."""
    path, query = request.url.path, request.url.query
    asked = f"{path}?{query}" if query and len(path) + len(query) < NEXT_MAX_CHARS else path
    return LOGIN if asked in (PATH, PATH + "/") else f"{LOGIN}?next={quote(asked)}"


def may_change(request: Request) -> bool:
    """Whether this console changes anything at all."""
    return settings_of(request).console == "ON"


SignedInDep = Annotated[SignedIn, Depends(signed_in)]


def _api(request: Request, signed_in: SignedInDep) -> Api:
    return Api(request, signed_in)


ApiDep = Annotated[Api, Depends(_api)]
