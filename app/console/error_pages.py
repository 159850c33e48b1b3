"""Errors as pages: people in a browser read what happened and what to do next.

A problem of the API is made as ever, so that refusals are counted and logged alike; where the request was
for a page it leaves as HTML with the same status.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from app.auth.holders import is_of_console
from app.console.rendering import render
from app.console.sessions import CODE, login_url
from app.errors import ServiceError
from app.runbook.registry import RUNBOOK

KINDS: Final = (ServiceError, RequestValidationError, HTTPException, Exception)
KEPT_HEADERS: Final = ("retry-after", "x-request-id")
Handler = Callable[[Request, Any], Response | Awaitable[Response]]


def install(app: FastAPI) -> None:
    """Show the errors of the console's paths as pages; all others leave as before."""
    for kind in KINDS:
        app.add_exception_handler(kind, _shown_by(app.exception_handlers[kind]))


def _shown_by(problems: Handler) -> Handler:
    async def shown(request: Request, error: Any) -> Response:
        answer = problems(request, error)
        if not isinstance(answer, Response):
            answer = await answer
        if not is_of_console(request.url.path):
            return answer
        problem = json.loads(bytes(answer.body))
        if problem["code"] == CODE:
            return _to_login(request)
        headers = {name: value for name, value in answer.headers.items() if name in KEPT_HEADERS}
        return _page(request, problem, headers)

    return shown


def _to_login(request: Request) -> Response:
    """Lead whoever is not signed in to the form; a page of another session comes anew, whole."""
    if request.headers.get("hx-request") == "true":
        if getattr(request.state, "signed_in", None) is not None:
            return Response(status_code=200, headers={"HX-Refresh": "true"})
        return Response(status_code=200, headers={"HX-Redirect": login_url(request)})
    if request.method != "GET" or "text/event-stream" in request.headers.get("accept", ""):
        return Response("sign in again", status_code=401, media_type="text/plain")
    return RedirectResponse(login_url(request), status_code=303)


def _page(request: Request, problem: dict[str, Any], headers: dict[str, str]) -> Response:
    entry = RUNBOOK.get(problem["code"])
    signed_in = getattr(request.state, "signed_in", None)
    return render(request, "error.html", signed_in, headers=headers, problem=problem, entry=entry)
