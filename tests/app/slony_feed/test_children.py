"""The later feeds of a batch are made without its caller: with the rights that the token has by then."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlmodel import select

from app.auth.models import TokenCreate
from app.auth.scopes import Scope
from app.auth.service import Caller, create_token, revoke_token
from app.db import Database
from app.errors import ServiceError
from app.jobs.rows import Job
from app.settings import Settings
from app.slony_feed.submitting import submit_feed_child
from app.stores.models import StoreKind
from app.stores.rows import Store
from tests.app.auth.test_tokens import caller
from tests.app.fake_clock import FakeClock


def make_stores(database: Database, clock: FakeClock) -> None:
    with database.transaction() as db:
        for name, kind in (("replica", StoreKind.REPLICA), ("node", StoreKind.SLONY)):
            row = Store(id=name, kind=kind, url=f"sqlite:////{name}", cluster="shop")
            row.created_at = row.updated_at = clock.now()
            db.add(row)


def make_token(database: Database, clock: FakeClock, **fields: object) -> str:
    scopes = [Scope.REPLICATION_WRITE, Scope.DATA_READ]
    request = TokenCreate.model_validate({"name": "feeder", "scopes": scopes} | fields)
    with database.transaction() as db:
        return create_token(db, request, now=clock.now(), caller=None)[0].id


def feed(database: Database, clock: FakeClock, settings: Settings, token_id: str) -> Job:
    without_rights = Caller(token_id, "feeder", frozenset(), None)
    with database.transaction() as db:
        store = db.get_one(Store, "replica")
        return submit_feed_child(db, store, {"source": "node"}, without_rights, None, settings, clock.now())


def test_a_token_that_may_still_read_the_node_feeds_on(
    database: Database, clock: FakeClock, settings: Settings
) -> None:
    make_stores(database, clock)
    found = feed(database, clock, settings, make_token(database, clock))
    assert (found.kind, found.store, found.requested_by) == ("SLONY_FEED", "replica", "feeder")
    assert "sqlite" not in str(found.params["node"])


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("revoked", "TOKEN_REVOKED"),
        ("expired", "TOKEN_EXPIRED"),
        ("of a provider", "TOKEN_UNKNOWN"),
        ("not of the node", "INVALID_REQUEST"),
        ("without data", "SCOPE_MISSING"),
    ],
)
def test_a_token_that_may_no_longer_feeds_nothing(
    database: Database, clock: FakeClock, settings: Settings, how: str, code: str
) -> None:
    make_stores(database, clock)
    fields = {
        "expired": {"expires_in": "PT1H"},
        "not of the node": {"stores": ["replica"]},
        "without data": {"scopes": [Scope.REPLICATION_WRITE]},
    }.get(how, {})
    token_id = make_token(database, clock, **fields) if how != "of a provider" else "oidc"
    if how == "revoked":
        with database.transaction() as db:
            revoke_token(db, token_id, now=clock.now(), caller=caller(Scope.ADMIN))
    clock.advance(timedelta(hours=2).total_seconds())
    with pytest.raises(ServiceError) as refused:
        feed(database, clock, settings, token_id)
    assert refused.value.code == code
    with database.reading() as db:
        assert db.exec(select(Job)).all() == []
