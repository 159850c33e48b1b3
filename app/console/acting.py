"""A button: one operation of the API with a reason, then the page again."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Depends
from starlette.responses import RedirectResponse, Response

from app.auth.scopes import Scope
from app.console.calls import Api, Query
from app.console.forms import ActionDep
from app.console.sessions import ApiDep
from app.errors import BadRequest, ScopeMissing, Unprocessable

KEY: Final = "key"
KEY_MAX_CHARS: Final = 255
REASON_MAX_CHARS: Final = 500


class Act:
    """What a posted form may do; its key makes that twice is once."""

    def __init__(self, api: Api, fields: Mapping[str, str]) -> None:
        self.api = api
        self.fields = {name: value for name, value in fields.items() if name != KEY}
        self._key = _key_of(fields)

    @property
    def reason(self) -> str | None:
        """Why, in the words of whoever asks; None: nothing was said.

        Raises: Unprocessable: INVALID_REQUEST.
        """
        said = self.fields.get("reason", "").strip()
        if len(said) > REASON_MAX_CHARS or "\x00" in said:
            raise Unprocessable(f"a reason has at most {REASON_MAX_CHARS} characters", code="INVALID_REQUEST")
        return said or None

    def require(self, *scopes: Scope) -> None:
        """Raise ScopeMissing unless the token has one of the scopes; asked before a form is judged."""
        caller = self.api.caller
        if not caller.scopes.intersection(scopes):
            names = [str(scope) for scope in scopes]
            raise ScopeMissing(f"this needs the scope {' or '.join(names)}", extra={"scopes": names})

    async def send(self, method: str, *path: str, body: Any = None, query: Query | None = None) -> Any:
        """Call an operation that changes something; returns its JSON.

        Raises: Refused: an error page tells why.
        """
        headers = {} if not self._key else {"Idempotency-Key": self._key}
        return await self.api.call(method, *path, query=query, body=body, headers=headers, reason=self.reason)


def _key_of(fields: Mapping[str, str]) -> str | None:
    """What makes that a form acts once.

    Raises: BadRequest: CONSOLE_FORM_INVALID: it cannot stand in a header.
    """
    key = fields.get(KEY)
    if key and not (len(key) <= KEY_MAX_CHARS and key.isascii() and key.isprintable() and " " not in key):
        raise BadRequest("the form cannot be read; open the page again", code="CONSOLE_FORM_INVALID")
    return key


def show_again(url: str) -> Response:
    """Lead to a page of the console after a change: to load it again repeats nothing."""
    return RedirectResponse(url, status_code=303)


def _act(api: ApiDep, fields: ActionDep) -> Act:
    return Act(api, fields)


ActDep = Annotated[Act, Depends(_act)]
"""Of a POST: same origin, the session's mark, a console that may change; else 403."""
