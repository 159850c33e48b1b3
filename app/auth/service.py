"""Tokens: who is calling, and with which rights."""

import hashlib
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Row, Select, bindparam, update
from sqlalchemy import select as sa_select
from sqlmodel import Session, col, select

from app.auth.models import TokenCreate
from app.auth.rows import Token
from app.auth.scopes import ROLES, Scope, implied, known_scopes
from app.db import RIGHTS
from app.errors import (
    Forbidden,
    NotFound,
    ScopeMissing,
    StoreForbidden,
    TokenExpired,
    TokenLimitedToStores,
    Unauthenticated,
    Unprocessable,
)
from app.kit.ids import new_id
from app.kit.instants import instant_text

TOKEN_PREFIX = "lethe_"
PROVIDER_NAMES = "oidc:"
PROVIDER_PREFIX = "oidc_"
"""What the ids of callers begin with whose token is of an identity provider."""
ADMIN_TOKEN_FILE = "admin.token"
_TOKENS: Final[Any] = Token.__table__  # type: ignore[attr-defined]
TOKEN_OF_SECRET: Final[Select[Any]] = sa_select(_TOKENS).where(
    _TOKENS.c.secret_sha256 == bindparam("secret_sha256")
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: a token's rights, read once per request.

    Args:
        declared: every scope that the operation says it may ask for; None: the service calls itself.
    """

    token_id: str
    name: str
    scopes: frozenset[Scope]
    stores: frozenset[str] | None
    declared: frozenset[Scope] | None = None
    expires_at: datetime | None = None

    @property
    def is_of_provider(self) -> bool:
        """Whether the token is of an identity provider: Lethe has no row of it."""
        return self.token_id.startswith(PROVIDER_PREFIX)

    def require(self, scope: Scope) -> None:
        """Raise ScopeMissing unless the token holds the scope."""
        assert self.declared is None or scope in self.declared, f"the operation does not declare {scope}"
        if scope not in self.scopes:
            raise ScopeMissing(f"this needs the scope {scope}", extra={"scope": str(scope)})

    def require_store(self, store: str | None) -> None:
        """Raise StoreForbidden unless the token may touch the store."""
        if self.stores is not None and store not in self.stores:
            raise StoreForbidden("this token is limited to other stores")

    def require_unlimited(self) -> None:
        """Raise TokenLimitedToStores unless the token may touch every store, there now or later."""
        if self.stores is not None:
            raise TokenLimitedToStores("this is of all stores: it needs a token that is not limited to some")

    def visible_stores(self) -> Sequence[str] | None:
        """The stores that lists are narrowed to; None: all."""
        return None if self.stores is None else sorted(self.stores)


def hash_of(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def authenticate(db: Session, secret: str, *, now: datetime) -> Caller:
    """Find the caller of a bearer secret.

    Raises:
        Unauthenticated: unknown or revoked.
        TokenExpired: it was good once.
    """
    return judge(
        db.connection().execute(TOKEN_OF_SECRET, {"secret_sha256": hash_of(secret)}).first(), now=now
    )


def judge(token: Token | Row[Any] | None, *, now: datetime) -> Caller:
    """The caller of a token's row.

    Raises: as `authenticate`.
    """
    if token is None:
        raise Unauthenticated("the token is not known", code="TOKEN_UNKNOWN")
    if token.revoked_at is not None:
        raise Unauthenticated("the token was revoked", code="TOKEN_REVOKED")
    if token.expires_at is not None and token.expires_at <= now:
        raise TokenExpired(f"the token expired at {instant_text(token.expires_at)}")
    return caller_of(token)


def caller_of(token: Token | Row[Any]) -> Caller:
    """The rights of a token row."""
    scopes = implied(frozenset(known_scopes(token.scopes)))
    stores = None if token.stores is None else frozenset(token.stores)
    return Caller(
        token_id=token.id, name=token.name, scopes=scopes, stores=stores, expires_at=token.expires_at
    )


def create_token(
    db: Session, request: TokenCreate, *, now: datetime, caller: Caller | None
) -> tuple[Token, str]:
    """Make a token; returns the row and the secret, which is nowhere else.

    Raises:
        Unprocessable: it would be expired from the start, or look like a caller of an identity provider.
        Forbidden: the caller would give away scopes or stores that it lacks.
    """
    wanted = frozenset(request.scopes) | (ROLES[request.role] if request.role else frozenset())
    expires_at = now + request.expires_in if request.expires_in is not None else request.expires_at
    if request.name.startswith(PROVIDER_NAMES):
        raise Unprocessable(
            f"names of an identity provider's callers begin with {PROVIDER_NAMES}; choose another",
            code="NAME_RESERVED",
        )
    if expires_at is not None and expires_at <= now:
        raise Unprocessable("the token would already be expired", code="EXPIRY_IN_THE_PAST")
    if caller is not None and not implied(wanted) <= caller.scopes:
        raise Forbidden("a token cannot give away scopes that it lacks", code="SCOPES_EXCEED_CALLER")
    if caller is not None:
        _require_stores(caller, request.stores)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = Token(
        id=new_id("tok"),
        name=request.name,
        scopes=sorted(wanted),
        stores=None if request.stores is None else sorted(set(request.stores)),
        expires_at=expires_at,
        secret_sha256=hash_of(secret),
        created_at=now,
        created_by=caller.token_id if caller else None,
    )
    db.add(token)
    db.flush()
    return token, secret


def _require_stores(caller: Caller, stores: Sequence[str] | None) -> None:
    """Raise StoreForbidden where a token of these stores would reach further than the caller."""
    if caller.stores is not None and (stores is None or not caller.stores.issuperset(stores)):
        raise StoreForbidden("this token is limited to other stores")


def revoke_token(db: Session, token_id: str, *, now: datetime, caller: Caller) -> Token:
    """Revoke for good; again is harmless.

    Raises:
        NotFound.
        StoreForbidden: the token reaches further than the caller.
    """
    found = db.get(Token, token_id)
    if found is not None:
        _require_stores(caller, found.stores)
        db.expire(found)
    db.info[RIGHTS] = True
    db.execute(
        update(Token).where(col(Token.id) == token_id, col(Token.revoked_at).is_(None)).values(revoked_at=now)
    )
    token = db.get(Token, token_id)
    if token is None:
        raise NotFound("there is no such token", code="TOKEN_NOT_FOUND")
    return token


def ensure_admin_token(db: Session, data_dir: Path, *, now: datetime) -> Path:
    """Write the first admin token to a 0600 file in the data directory, once.

    A file that is there is never replaced; a file whose token this metadata does not know gets
    its token registered, so that a new metadata database keeps the operators' token.
    """
    path = data_dir / ADMIN_TOKEN_FILE
    if path.exists():
        secret = path.read_text().strip()
        known = db.exec(select(Token).where(Token.secret_sha256 == hash_of(secret))).first()
        if known is None and secret.startswith(TOKEN_PREFIX):
            _register_admin(db, secret, now=now)
        return path
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    _register_admin(db, secret, now=now)
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    return path


def _register_admin(db: Session, secret: str, *, now: datetime) -> None:
    db.add(
        Token(
            id=new_id("tok"),
            name="admin",
            scopes=[Scope.ADMIN],
            stores=None,
            expires_at=None,
            secret_sha256=hash_of(secret),
            created_at=now,
        )
    )
    db.flush()
