"""A browser without a screen: requests of one session to an application of this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import httpx
from fastapi import FastAPI

Headers = Sequence[tuple[str, str]]


class Browser:
    """Keeps the cookie, and fills in the mark of its session."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, *, headers: Headers = (), **more: object) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://lethe", cookies=self.cookies
            ) as client:
                given = [("Sec-Fetch-Site", "same-origin"), *headers]
                return await client.request(method, path, headers=given, **more)  # type: ignore[arg-type]

        answer = asyncio.run(ask())
        self.cookies |= dict(answer.cookies)
        return answer

    def get(self, path: str) -> httpx.Response:
        return self.ask("GET", path)

    def login(self, token: str) -> httpx.Response:
        return self.ask("POST", "/console/login", data={"token": token})

    def post(self, path: str, **fields: str) -> httpx.Response:
        mark = re.search(r'name="csrf" value="(\w+)"', self.get("/console/help").text)
        assert mark is not None
        return self.ask("POST", path, data={"csrf": mark[1]} | fields)
