"""A token that a newer version beside us has made, with a scope that we do not know, was answered by 500 to
whatever it asked. So was every list of tokens, and its revocation, which was undone with that.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlmodel import select

from app.auth.models import TokenCreate, TokenRead
from app.auth.queries import list_tokens
from app.auth.rows import Token
from app.auth.scopes import Role, Scope
from app.auth.service import Caller, authenticate, create_token, revoke_token
from app.db import Database

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


def _strange(database: Database, *scopes: str) -> str:
    """Make a token as a newer version would; returns its secret."""
    with database.transaction() as db:
        made, secret = create_token(db, TokenCreate(name="new", role=Role.VIEWER), now=NOW, caller=None)
        made.scopes = [*made.scopes, *scopes]  # type: ignore[list-item]
        db.add(made)
    return secret


def test_it_may_what_we_know_of(sqlite_database: Database) -> None:
    secret = _strange(sqlite_database, "rockets:launch")
    with sqlite_database.reading() as db:
        caller = authenticate(db, secret, now=NOW)
        page = list_tokens(db, visible=None, page_size=10, page_token="")
    assert caller.scopes == {Scope.STORES_READ, Scope.JOBS_READ, Scope.AUDIT_READ}
    (shown,) = page.items
    assert set(shown.scopes) == caller.scopes


def test_it_can_be_revoked(sqlite_database: Database) -> None:
    _strange(sqlite_database, "rockets:launch")
    admin = Caller("tok_x", "ann", frozenset(Scope), None)
    with sqlite_database.transaction() as db:
        (token_id,) = db.exec(select(Token.id)).all()
        shown = TokenRead.of(revoke_token(db, token_id, now=NOW, caller=admin))
    assert shown.revoked_at == NOW
