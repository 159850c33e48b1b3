"""Sessions of the console: a cookie that stands for a token for a while.

Rules:
- a session has the rights that its token has now, and ends with it: revoked, expired, or after SESSION_MAX;
- of a cookie only the hash is kept, and of the token nothing but its id;
- a token has at most SESSIONS_PER_TOKEN_MAX sessions: one more ends the oldest.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fastapi import Request
from sqlalchemy import delete
from sqlmodel import Session, col, or_, select

from app.auth.access import clock_of, database_of
from app.auth.actions import Action
from app.auth.audit_rows import audit_row
from app.auth.oidc.form import is_jwt
from app.auth.rows import ConsoleSession, Token
from app.auth.service import Caller, authenticate, caller_of
from app.errors import Unauthenticated

SESSION_MAX: Final = timedelta(hours=8)
SESSIONS_PER_TOKEN_MAX: Final = 50
FORGET_MAX: Final = 1_000
SECRET_MAX_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Somebody who has signed in.

    Args:
        secret: the cookie's value; it leaves in the cookie only.
    """

    caller: Caller
    secret: str
    ends_at: datetime

    @property
    def csrf(self) -> str:
        """What forms of this session carry: whoever does not know the cookie cannot make it."""
        return self._derived(b"lethe console: form")

    @property
    def name(self) -> str:
        """By which the windows of one browser know that they are of one session; it opens nothing."""
        return self._derived(b"lethe console: windows")[:16]

    def _derived(self, what: bytes) -> str:
        return hmac.new(self.secret.encode(), what, hashlib.sha256).hexdigest()


def sign_in(request: Request, token: str) -> SignedIn:
    """Make a session of a token that somebody shows once.

    Raises: Unauthenticated: as the API; CONSOLE_TOKEN_OF_PROVIDER: its rights are its provider's to tell.
    """
    if is_jwt(token):
        detail = "a token of an identity provider cannot sign in here; take one that Lethe has made"
        raise Unauthenticated(detail, code="CONSOLE_TOKEN_OF_PROVIDER")
    database, now = database_of(request), clock_of(request).now()
    with database.reading() as db:  # a stranger's guess writes nothing
        caller = authenticate(db, token, now=now)
    with database.transaction() as db:
        begun = begin_session(db, caller, now=now)
        _audit(db, request, caller, Action.CONSOLE_SIGN_IN)
    return begun


def sign_out(request: Request, signed_in: SignedIn) -> None:
    """End the session of whoever asks."""
    with database_of(request).transaction() as db:
        db.execute(delete(ConsoleSession).where(col(ConsoleSession.id) == session_id_of(signed_in.secret)))
        _audit(db, request, signed_in.caller, Action.CONSOLE_SIGN_OUT)


def session_of(request: Request, cookie: str) -> SignedIn | None:
    """Who has signed in; None: nobody, or it has ended."""
    with database_of(request).reading() as db:
        return find_session(db, cookie, now=clock_of(request).now())


def _audit(db: Session, request: Request, caller: Caller, action: Action) -> None:
    db.add(audit_row(request, caller, action, ("token", caller.token_id), detail={}))


def session_id_of(secret: str) -> str:
    """Under what a session is kept."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def begin_session(db: Session, caller: Caller, *, now: datetime) -> SignedIn:
    """Make a session of a token that was just shown."""
    _forget_ended(db, now=now)
    _end_surplus(db, caller.token_id)
    secret, ends_at = secrets.token_urlsafe(32), now + SESSION_MAX
    if caller.expires_at is not None:
        ends_at = min(ends_at, caller.expires_at)
    db.add(
        ConsoleSession(id=session_id_of(secret), token_id=caller.token_id, created_at=now, expires_at=ends_at)
    )
    return SignedIn(caller, secret, ends_at)


def find_session(db: Session, secret: str, *, now: datetime) -> SignedIn | None:
    """Whose cookie it is; None: nobody's, or it has ended."""
    if not secret or len(secret) > SECRET_MAX_CHARS:
        return None
    query = (
        select(Token, ConsoleSession.expires_at)
        .join(ConsoleSession, col(ConsoleSession.token_id) == col(Token.id))
        .where(ConsoleSession.id == session_id_of(secret), col(ConsoleSession.expires_at) > now)
        .where(col(Token.revoked_at).is_(None))
        .where(or_(col(Token.expires_at).is_(None), col(Token.expires_at) > now))
    )
    found = db.exec(query).first()
    return None if found is None else SignedIn(caller_of(found[0]), secret, found[1])


def end_all_sessions(db: Session) -> int:
    """End each session, whoever's it is; returns how many there were."""
    return len(db.execute(delete(ConsoleSession).returning(col(ConsoleSession.id))).all())


def _forget_ended(db: Session, *, now: datetime) -> None:
    ended = select(ConsoleSession.id).where(col(ConsoleSession.expires_at) <= now).limit(FORGET_MAX)
    db.execute(delete(ConsoleSession).where(col(ConsoleSession.id).in_(ended)))


def _end_surplus(db: Session, token_id: str) -> None:
    surplus = (
        select(ConsoleSession.id)
        .where(ConsoleSession.token_id == token_id)
        .order_by(col(ConsoleSession.created_at).desc(), col(ConsoleSession.id))
        .offset(SESSIONS_PER_TOKEN_MAX - 1)
        .limit(FORGET_MAX)
    )
    db.execute(delete(ConsoleSession).where(col(ConsoleSession.id).in_(surplus)))
