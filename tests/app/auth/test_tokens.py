"""api.md, Security: tokens with scopes, stores and an expiry; nobody gives away more than it has."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlmodel import Session, select

from app.auth.models import TokenCreate
from app.auth.rows import Token
from app.auth.scopes import ROLES, Role, Scope
from app.auth.service import Caller, authenticate, create_token, ensure_admin_token, revoke_token
from app.db import Database
from app.errors import Forbidden, NotFound, ScopeMissing, StoreForbidden, TokenExpired, Unauthenticated
from tests.app.fake_clock import FakeClock


def make(db: Session, clock: FakeClock, *, caller: Caller | None = None, **fields: Any) -> tuple[Token, str]:
    request = TokenCreate(**({"name": "ann", "scopes": [Scope.ADMIN]} | fields))
    return create_token(db, request, now=clock.now(), caller=caller)


def caller(*scopes: Scope, stores: set[str] | None = None) -> Caller:
    limited = None if stores is None else frozenset(stores)
    return Caller(token_id="tok_x", name="bob", scopes=frozenset(scopes), stores=limited)


def test_token_is_known_by_its_secret_and_kept_as_a_hash(database: Database, clock: FakeClock) -> None:
    with database.transaction() as db:
        token, secret = make(db, clock, role=Role.BACKUP, scopes=[], stores=["shop", "shop"])
        found = authenticate(db, secret, now=clock.now())
        rows = [str(row) for row in db.exec(select(*Token.__table__.c)).all()]
    assert (found.token_id, found.name, found.stores) == (token.id, "ann", frozenset({"shop"}))
    assert found.scopes == {Scope.BACKUPS_WRITE, Scope.STORES_READ, Scope.JOBS_READ}  # "and nothing else"
    assert not any(secret in row for row in rows)
    with database.reading() as db, pytest.raises(Unauthenticated, match="not known"):
        authenticate(db, secret[:-1], now=clock.now())


def test_admin_holds_every_scope_and_roles_only_theirs() -> None:
    assert ROLES[Role.ADMIN] == {Scope.ADMIN}
    assert all(Scope.ADMIN not in ROLES[role] for role in Role if role is not Role.ADMIN)
    assert ROLES[Role.BACKUP] == {Scope.BACKUPS_WRITE, Scope.STORES_READ, Scope.JOBS_READ}


def test_token_expires_at_its_moment(database: Database, clock: FakeClock) -> None:
    with database.transaction() as db:
        _, secret = make(db, clock, expires_in=timedelta(hours=1))
    clock.advance(3_599)
    with database.reading() as db:
        assert authenticate(db, secret, now=clock.now()).name == "ann"
    clock.advance(1)
    with database.reading() as db, pytest.raises(TokenExpired) as expired:
        authenticate(db, secret, now=clock.now())
    assert (expired.value.status, expired.value.code) == (401, "TOKEN_EXPIRED")


@pytest.mark.parametrize(
    "fields",
    [
        {"expires_in": timedelta(0)},
        {"expires_in": timedelta(days=-1)},
        {"expires_at": "2001-01-01T00:00:00Z"},
    ],
)
def test_token_that_is_expired_from_the_start_is_refused(
    database: Database, clock: FakeClock, fields: dict[str, Any]
) -> None:
    with pytest.raises(Exception, match="already be expired") as refused, database.transaction() as db:
        make(db, clock, **fields)
    assert (refused.value.status, refused.value.code) == (422, "EXPIRY_IN_THE_PAST")


def test_expiry_beyond_the_calendar_is_refused_as_a_value(database: Database, clock: FakeClock) -> None:
    # `expires_in: P999999D` has no end in the calendar: the sum overflowed, and the answer was 500.
    with pytest.raises(Exception, match="expires_in") as refused, database.transaction() as db:
        make(db, clock, expires_in=timedelta(days=9_999_999))
    assert getattr(refused.value, "status", 422) == 422


@pytest.mark.parametrize(
    "fields",
    [
        {"scopes": []},
        {"scopes": ["everything"]},
        {"expires_in": "PT1H", "expires_at": "2999-01-01T00:00:00Z"},
        {"expires_at": "2999-01-01T00:00:00"},
        {"stores": ["Not A Store"]},
        {"name": ""},
        {"name": "a\x00b"},
        {"surplus": 1},
    ],
)
def test_malformed_token_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TokenCreate(**({"name": "ann", "scopes": ["admin"]} | fields))


def test_revoked_token_is_refused_and_stays_revoked(database: Database, clock: FakeClock) -> None:
    with database.transaction() as db:
        token, secret = make(db, clock)
        revoked_at = revoke_token(db, token.id, now=clock.now(), caller=caller()).revoked_at
    clock.advance(60)
    with database.transaction() as db:
        db.refresh(again := revoke_token(db, token.id, now=clock.now(), caller=caller()))
        assert again.revoked_at == revoked_at == clock.now() - timedelta(seconds=60)
    with database.reading() as db, pytest.raises(Unauthenticated) as refused:
        authenticate(db, secret, now=clock.now())
    assert refused.value.code == "TOKEN_REVOKED"
    with pytest.raises(NotFound), database.transaction() as db:
        revoke_token(db, "tok_" + "0" * 26, now=clock.now(), caller=caller())


@pytest.mark.parametrize(
    ("giver", "fields", "allowed"),
    [
        (caller(*Scope), {"scopes": ["admin"]}, True),
        (caller(Scope.PURGES_WRITE), {"scopes": ["purges:write"]}, True),
        (caller(Scope.PURGES_WRITE), {"scopes": ["purges:write", "jobs:read"]}, False),
        (caller(Scope.PURGES_WRITE), {"scopes": ["admin"]}, False),
        (caller(Scope.PURGES_WRITE), {"scopes": [], "role": "viewer"}, False),
        (caller(*(set(Scope) - {Scope.AUDIT_READ})), {"scopes": ["admin"]}, False),
        (caller(*Scope, stores={"shop"}), {"scopes": ["admin"]}, False),
        (caller(*Scope, stores={"shop"}), {"scopes": ["jobs:read"], "stores": ["shop", "other"]}, False),
        (caller(*Scope, stores={"shop"}), {"scopes": ["jobs:read"], "stores": ["shop"]}, True),
        (caller(*Scope, stores={"shop", "x"}), {"scopes": ["jobs:read"], "stores": []}, True),
    ],
)
def test_nobody_gives_away_more_than_it_has(
    database: Database, clock: FakeClock, giver: Caller, fields: dict[str, Any], allowed: bool
) -> None:
    with database.transaction() as db:
        if allowed:
            token, _ = make(db, clock, caller=giver, **fields)
            assert token.created_by == "tok_x"
            return
        with pytest.raises(Forbidden) as refused:
            make(db, clock, caller=giver, **fields)
    assert refused.value.status == 403


def test_limited_token_revokes_none_that_reaches_further(database: Database, clock: FakeClock) -> None:
    limited = caller(*Scope, stores={"shop"})
    with database.transaction() as db:
        own, _ = make(db, clock, stores=["shop"])
        wide, secret = make(db, clock)
        assert revoke_token(db, own.id, now=clock.now(), caller=limited).revoked_at == clock.now()
        with pytest.raises(StoreForbidden):
            revoke_token(db, wide.id, now=clock.now(), caller=limited)
        assert authenticate(db, secret, now=clock.now()).token_id == wide.id


def test_caller_is_held_to_its_scopes_and_stores() -> None:
    limited = caller(Scope.JOBS_READ, stores={"shop"})
    limited.require(Scope.JOBS_READ)
    limited.require_store("shop")
    with pytest.raises(ScopeMissing) as missing:
        limited.require(Scope.PURGES_WRITE)
    assert missing.value.extra == {"scope": "purges:write"}
    for store in ("other", None):
        with pytest.raises(StoreForbidden):
            limited.require_store(store)
    assert limited.visible_stores() == ["shop"]
    assert caller(stores=set()).visible_stores() == []
    assert caller().visible_stores() is None


def test_first_start_writes_the_admin_token_once(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    for _ in range(2):
        with database.transaction() as db:
            path = ensure_admin_token(db, tmp_path, now=clock.now())
        secret = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    with database.reading() as db:
        assert Scope.ADMIN in authenticate(db, secret, now=clock.now()).scopes
        assert len(db.exec(select(Token)).all()) == 1


def test_admin_token_of_the_file_survives_a_new_metadata_database(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "admin.token").write_text("lethe_from-before\n")
    with database.transaction() as db:
        ensure_admin_token(db, tmp_path, now=clock.now())
    with database.reading() as db:
        assert authenticate(db, "lethe_from-before", now=clock.now()).stores is None
