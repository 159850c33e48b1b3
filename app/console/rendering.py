"""Templates to pages: one environment that escapes everything, and the headers of every page.

Rules:
- what a template prints is text, whatever it holds; nothing is marked as safe but what macros make;
- a page runs no script and no style but those of this origin's files.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse, Response

from app.auth.access import clock_of
from app.auth.console_sessions import SignedIn
from app.auth.scopes import Scope
from app.console import words
from app.console.octets import octets
from app.console.sessions import OF_SESSION, may_change
from app.console.static_files import static_url
from app.console.streams import TOPICS_MAX
from app.errors import ServiceError
from app.kit.ids import new_id
from app.runbook.registry import RUNBOOK

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: forms would come from the origin "null", and not every browser tells more than that.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "HX-Request",
}
NAVIGATION: Final = (
    ("Overview", "/console/"),
    ("Jobs", "/console/jobs"),
    ("Stores", "/console/stores"),
    ("Backups", "/console/backups"),
    ("New act", "/console/acts"),
    ("Schedules", "/console/schedules"),
    ("Audit", "/console/audit"),
    ("System", "/console/system"),
    ("API", "/console/api"),
)


@cache
def environment() -> "Environment":
    """The templates, read when the first page is shown: most services show none."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= words.FILTERS
    made.filters["octets"] = octets
    made.globals |= {"static": static_url, "navigation": NAVIGATION, "new_key": lambda: new_id("key")}
    made.globals |= {"next_step": _next_step}
    made.globals |= {"topics_max": TOPICS_MAX, "of_session": OF_SESSION}
    return made


def _next_step(code: str) -> str:
    """What the runbook says to do about a code."""
    entry = RUNBOOK.get(code)
    return "" if entry is None else entry.next


@cache
def _templates() -> frozenset[str]:
    return frozenset(environment().list_templates())


class Rights:
    """What the buttons of a page may be: those of the token, and none where the console only shows."""

    def __init__(self, signed_in: SignedIn, *, is_changing: bool) -> None:
        self._caller = signed_in.caller
        self._is_changing = is_changing

    def has(self, scope: str) -> bool:
        """Whether the token has a scope, for what is only shown."""
        return Scope(scope) in self._caller.scopes

    def may(self, *scopes: str) -> bool:
        """Whether a button is shown that needs all of these scopes."""
        return self._is_changing and all(self.has(scope) for scope in scopes)


def is_live_part(request: Request) -> bool:
    """Whether an open page asks for its live part."""
    return request.headers.get("hx-request") == "true"


def _status_of(problem: ServiceError | Mapping[str, Any] | None) -> int:
    if problem is None:
        return 200
    return int(problem["status"]) if isinstance(problem, Mapping) else problem.status


def render(
    request: Request,
    template: str,
    signed_in: SignedIn | None,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    problem: ServiceError | Mapping[str, Any] | None = None,
    **values: Any,
) -> Response:
    """A page, or the part of it that is live where an open page asks for that.

    Args:
        template: `overview.html`; its live part is `overview_live.html`.
        signed_in: None: a page without navigation.
        status: None: that of the problem, 200 where there is none.
        problem: shown by the template; an error, or its problem+json.
    """
    live = template.replace(".html", "_live.html")
    name = live if is_live_part(request) and live in _templates() else template
    given = {
        "request_path": request.url.path,
        "request_url": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "now": clock_of(request).now(),
        "signed_in": signed_in,
        "rights": None if signed_in is None else Rights(signed_in, is_changing=may_change(request)),
        "is_read_only": not may_change(request),
        "problem": problem,
    }
    text = environment().get_template(name).render(given | values)
    return HTMLResponse(
        text, status_code=status or _status_of(problem), headers={**HEADERS, **(headers or {})}
    )
