"""What a browser posts, and whether one of our own pages has sent it.

Rules:
- a form counts only from a page of this origin: by Sec-Fetch-Site, or where a browser sends none, by Origin;
- it carries the mark of its session, which nobody knows who does not know the cookie.
"""

import hmac
from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request

from app.console.sessions import SignedInDep, may_change
from app.errors import BadRequest, Forbidden, UnsupportedMediaType

CSRF: Final = "csrf"
FIELDS_MAX: Final = 200
CONTENT_TYPE: Final = "application/x-www-form-urlencoded"
NULL: Final = "null"


def require_same_origin(request: Request) -> None:
    """Refuse what a page of somebody else's has sent.

    Raises: Forbidden: CONSOLE_FORM_FOREIGN.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_here = origin is not None and urlsplit(origin).netloc == request.headers.get("host")
    # An extension may have made "null" of it.
    is_own = site == "same-origin" and (origin in (None, NULL) or is_here)
    if not (is_own or (site is None and is_here)):
        raise Forbidden(
            "this form was not sent by a page of this console; open the page again",
            code="CONSOLE_FORM_FOREIGN",
        )


async def fields_of(request: Request) -> Mapping[str, str]:
    """The fields of a form; of one that stands twice the last.

    Raises: BadRequest, UnsupportedMediaType.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != CONTENT_TYPE:
        raise UnsupportedMediaType(f"a form is {CONTENT_TYPE}")
    try:
        text = (await request.body()).decode()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError:
        raise BadRequest("the form cannot be read", code="CONSOLE_FORM_INVALID") from None
    return dict(pairs)


async def _posted(request: Request, signed_in: SignedInDep) -> Mapping[str, str]:
    require_same_origin(request)
    fields = await fields_of(request)
    if not hmac.compare_digest(fields.get(CSRF, "").encode(), signed_in.csrf.encode()):
        raise Forbidden(
            "this form is not of your session; open the page again and repeat", code="CONSOLE_FORM_FOREIGN"
        )
    return {name: value for name, value in fields.items() if name != CSRF}


PostedDep = Annotated[Mapping[str, str], Depends(_posted)]
"""The fields of a form that somebody has sent who is signed in."""


def _changing(request: Request, fields: PostedDep) -> Mapping[str, str]:
    if not may_change(request):
        raise Forbidden("this console only shows (LETHE_CONSOLE=READ_ONLY)", code="CONSOLE_READ_ONLY")
    return fields


ActionDep = Annotated[Mapping[str, str], Depends(_changing)]
"""The same, for what changes something: a console that only shows refuses it."""
