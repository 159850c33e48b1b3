"""The request of a plan, carried in the address of its page: a page that is loaded again still knows it."""

import json
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Query

from app.errors import BadRequest, Unprocessable

CHARS_MAX: Final = 12_000
Given = Annotated[str, Query(max_length=CHARS_MAX)]


def text_of(body: dict[str, Any]) -> str:
    """The request for an address.

    Raises: Unprocessable: CONSOLE_REQUEST_TOO_LONG.
    """
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    if len(text) > CHARS_MAX:
        raise Unprocessable(
            f"a plan here takes a request of at most {CHARS_MAX} characters; send this one to the API",
            code="CONSOLE_REQUEST_TOO_LONG",
        )
    return quote(text)


def read_given(text: str) -> dict[str, Any]:
    """The request again; of no text an empty one.

    Raises: BadRequest: CONSOLE_FORM_INVALID.
    """
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadRequest("the form cannot be read", code="CONSOLE_FORM_INVALID")
    return found
