"""The application in this process, asked over ASGI, with a toy change on a path of its own."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel
from sqlmodel import Session
from starlette.responses import Response

from app.auth.access import requires
from app.auth.models import TokenCreate
from app.auth.mutation import Answer, IdempotencyKeyHeader, mutate
from app.auth.scopes import Scope
from app.auth.service import Caller, create_token
from app.clock import Clock
from app.db import Database
from app.errors import Conflict
from app.jobs.rows import Counter
from app.main import create_app
from app.settings import Settings

PATH = "/v1/tally"


class Add(BaseModel):
    """The toy change: adds to a counter."""

    amount: int = 1


@dataclass
class Gate:
    """Holds the effect inside its transaction until a test lets it go on, or breaks it."""

    entered: threading.Event = field(default_factory=threading.Event)
    open: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def pass_through(self) -> None:
        self.entered.set()
        assert self.open.wait(20)
        if self.error is not None:
            raise self.error


def open_gate() -> Gate:
    gate = Gate()
    gate.open.set()
    return gate


def build(settings: Settings, database: Database, clock: Clock, gate: Gate) -> FastAPI:
    app = create_app(settings, database, clock=clock)

    @app.post(PATH)
    def post_tally(
        body: Add,
        request: Request,
        caller: Annotated[Caller, Depends(requires(Scope.PURGES_WRITE))],
        idempotency_key: IdempotencyKeyHeader = None,
    ) -> Response:
        def effect(db: Session) -> Answer:
            row = db.get(Counter, "tally") or Counter(name="tally", value=0)
            row.value += body.amount
            db.add(row)
            db.flush()
            gate.pass_through()
            if body.amount == 13:
                raise Conflict("not thirteen", code="UNLUCKY")
            headers = {"ETag": f'"{row.value}"', "Location": PATH}
            return Answer(body={"value": row.value}, status=201, headers=headers, audit={"by": body.amount})

        return mutate(request, caller, effect, action="tally.add", subject=("tally", "1"), body=body)

    return app


@dataclass
class Http:
    """A client of one application; each request runs to its end."""

    app: FastAPI
    token: str

    def __call__(self, method: str, path: str, *, token: str | None = None, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.token}"} | more.pop("headers", {})

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://lethe") as client:
                return await client.request(method, path, headers=headers, **more)

        return asyncio.run(ask())

    def add(self, amount: int = 1, *, key: str | None = None, token: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self("POST", PATH, json={"amount": amount}, headers=headers, token=token)


def make_token(database: Database, clock: Clock, **fields: Any) -> str:
    request = TokenCreate(**({"name": "ann", "scopes": [Scope.ADMIN]} | fields))
    with database.transaction() as db:
        return create_token(db, request, now=clock.now(), caller=None)[1]


MakeHttp = Callable[..., Http]
