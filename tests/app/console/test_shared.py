"""A live part is made once while nothing happens, and never given to who sees something else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.console.shared import SharedParts

FULL = Caller("tok_1", "a", frozenset({Scope.JOBS_READ}), None)
OTHER = Caller("tok_2", "b", frozenset({Scope.JOBS_READ}), None)
LIMITED = Caller("tok_3", "c", frozenset({Scope.JOBS_READ}), frozenset({"shop"}))


class Page:
    """A page, and the feed that it depends on."""

    def __init__(self) -> None:
        self.feed = SimpleNamespace(place=1)
        self.made = 0
        self.parts = SharedParts()
        self.request: Any = Request(
            {
                "type": "http",
                "app": SimpleNamespace(state=SimpleNamespace(feed=self.feed)),
                "path": "/console/",
                "query_string": b"",
                "headers": [(b"host", b"lethe")],
            }
        )

    async def make(self) -> Response:
        self.made += 1
        made = self.made
        await asyncio.sleep(0)
        return HTMLResponse(str(made))

    async def get(self, caller: Caller) -> str:
        return bytes((await self.parts.get(self.request, caller, self.make)).body).decode()


def test_part_is_one_for_all_who_see_the_same_until_something_happens() -> None:
    async def ask() -> None:
        page = Page()
        assert set(await asyncio.gather(*(page.get(each) for each in (FULL, OTHER, FULL)))) == {"1"}
        assert await page.get(LIMITED) == "2"
        page.feed.place = 2
        assert await page.get(OTHER) == "3"
        assert await page.get(FULL) == "3"
        page.parts.forget(page.request, FULL)
        assert await page.get(FULL) == "4"

    asyncio.run(ask())


def test_part_is_made_anew_where_nobody_knows_what_has_happened() -> None:
    async def ask() -> None:
        page = Page()
        page.feed.place = None
        assert [await page.get(FULL), await page.get(FULL)] == ["1", "2"]

    asyncio.run(ask())
