"""Whether somebody holds a token, asked without a statement for each question.

An address from which too many were refused is sent away before its token is looked at. Whoever holds a good
one is not: the hashes of all live tokens are read once in a while, however many questions come.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from sqlmodel import Session, col, or_, select
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from app.auth.rows import ConsoleSession, Token
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable

FRESH_S: Final = 2.0
TOKENS_MAX: Final = 100_000
PREFIX: Final = "bearer "
COOKIE: Final = "lethe_console"
"""What the console's session is called in a browser."""
CONSOLE: Final = "/console"


def secret_of(authorization: str | None) -> str:
    """The bearer token of a header; empty: none."""
    given = authorization or ""
    return given[len(PREFIX) :].strip() if given[: len(PREFIX)].lower() == PREFIX else ""


def is_of_console(path: str) -> bool:
    """Whether a path is one of the console's."""
    return path == CONSOLE or path.startswith(CONSOLE + "/")


def console_cookie_of(headers: Headers) -> str | None:
    """The session of the console that a request brings: of several the last, as the pages take it."""
    found = ""
    for header in headers.getlist("cookie"):
        found = cookie_parser(header).get(COOKIE, found)
    return found or None


class Holders:
    """The live tokens of a metadata database; one event loop's."""

    def __init__(self, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._known: frozenset[str] = frozenset()
        self._read_s: float | None = None
        self._reading = asyncio.Lock()

    async def has(self, secret: str, database: Database) -> bool:
        """Whether a token is live, as of some seconds ago."""
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
        if digest in self._known:
            return True
        if self._is_fresh():
            return False
        async with self._reading:
            if not self._is_fresh():
                self._known = await asyncio.to_thread(_live, database)
                self._read_s = self._clock_s()
        return digest in self._known

    def _is_fresh(self) -> bool:
        return self._read_s is not None and self._clock_s() - self._read_s < FRESH_S


def _live(database: Database) -> frozenset[str]:
    try:
        with database.reading() as db:
            return _hashes(db, database.now(db))
    except (MetadataBusy, MetadataUnavailable):
        return frozenset()


def _hashes(db: Session, now: datetime) -> frozenset[str]:
    """Those of live tokens, and of the cookies of live sessions of the console."""
    is_live = (
        col(Token.revoked_at).is_(None),
        or_(col(Token.expires_at).is_(None), col(Token.expires_at) > now),
    )
    tokens = db.exec(select(Token.secret_sha256).where(*is_live).limit(TOKENS_MAX)).all()
    of_token = select(ConsoleSession.id).join(Token, col(Token.id) == col(ConsoleSession.token_id))
    sessions = db.exec(of_token.where(*is_live, ConsoleSession.expires_at > now).limit(TOKENS_MAX)).all()
    return frozenset((*tokens, *sessions))
