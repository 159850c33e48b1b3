"""Live parts that many open pages ask for at once are made once.

Rules:
- a part is given again only to who sees the same, with the same scopes, and only while nothing has happened
  since its making began;
- it holds nothing of a session: no form, no name.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, cast

from fastapi import Request
from starlette.responses import Response

from app.auth.service import Caller
from app.fleet.stream import FeedWatch

PARTS_MAX: Final = 64
FRESH_S: Final = 2.0


@dataclass(slots=True)
class _Part:
    """One part, and how things stood when its making began."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer: Response | None = None
    place: int | None = None
    made_s: float = 0.0


class SharedParts:
    """Of one application; only the event loop's thread touches it."""

    def __init__(self) -> None:
        self._parts: OrderedDict[object, _Part] = OrderedDict()

    async def get(
        self, request: Request, caller: Caller, make: Callable[[], Awaitable[Response]]
    ) -> Response:
        """The part that a request asks for; made now where there is none that still holds."""
        feed = cast(FeedWatch, request.app.state.feed)
        part = self._part(_key(request, caller))
        async with part.lock:
            now_s = asyncio.get_running_loop().time()
            is_same = part.place is not None and part.place == feed.place and now_s - part.made_s < FRESH_S
            if part.answer is None or not is_same:
                part.place, part.made_s = feed.place, now_s
                part.answer = None
                part.answer = await make()
            made = part.answer
        return Response(bytes(made.body), status_code=made.status_code, headers=dict(made.headers))

    def forget(self, request: Request, caller: Caller) -> None:
        """Somebody has loaded the whole page: its first live part must not be older."""
        self._parts.pop(_key(request, caller), None)

    def _part(self, key: object) -> _Part:
        part = self._parts.setdefault(key, _Part())
        self._parts.move_to_end(key)
        while len(self._parts) > PARTS_MAX:
            self._parts.popitem(last=False)
        return part


def _key(request: Request, caller: Caller) -> object:
    """Who asks with the same key sees the same: a limited token has its own jobs of no store."""
    own = None if caller.stores is None else caller.token_id
    return (request.url.path, request.url.query, caller.stores, caller.scopes, own)
