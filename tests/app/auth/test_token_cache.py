"""Reads need not look the token up each time; no revoked or expired token is taken for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from app.auth.scopes import Scope
from app.auth.service import revoke_token
from app.auth.token_cache import HOLDS_S, KEPT_MAX, TokenCache
from app.db import Database
from app.errors import TokenExpired, Unauthenticated
from app.kit.metadata import engines, postgresql_glance
from tests.app.auth.requests import MakeHttp, make_token
from tests.app.auth.test_tokens import caller
from tests.app.fake_clock import FakeClock


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    found: list[str] = []

    def saw(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", saw)
    glance = database._glance
    if glance is not None:
        glance._forget()
        glance._connection = glance._connect()
        glance._connection.set_trace_callback(found.append)
    soon = database._soon
    if soon is not None:
        real = soon.rows

        async def noted(statement: Any, parameters: Any) -> Any:
            found.append(str(statement))
            return await real(statement, parameters)

        soon.rows = noted  # type: ignore[method-assign]
    yield found
    sa.event.remove(database.engine, "before_cursor_execute", saw)
    if glance is not None:
        glance._forget()
    if soon is not None:
        del soon.rows


@pytest.fixture
def cache(database: Database, clock: FakeClock) -> TokenCache:
    return TokenCache(database, clock.boottime_s)


@pytest.fixture
def other(database: Database, clock: FakeClock) -> Iterator[Database]:
    """Another instance's."""
    other = Database(database.url.render_as_string(hide_password=False), clock=clock)
    yield other
    other.close()


@pytest.fixture
def other_sqlite(sqlite_database: Database, clock: FakeClock) -> Iterator[Database]:
    other = Database(sqlite_database.url.render_as_string(hide_password=False), clock=clock)
    yield other
    other.close()


def revoke(database: Database, clock: FakeClock, token_id: str) -> None:
    with database.transaction() as db:
        revoke_token(db, token_id, now=clock.now(), caller=caller(Scope.ADMIN))


def test_a_token_is_known_for_a_second_without_any_statement(
    database: Database, clock: FakeClock, cache: TokenCache
) -> None:
    secret = make_token(database, clock)
    assert cache.known(secret, now=clock.now()) is None
    found = cache.look_up(secret, now=clock.now())
    with statements(database) as seen:
        assert cache.known(secret, now=clock.now()) is found
    assert seen == []
    assert cache.known(secret + "x", now=clock.now()) is None
    clock.advance(HOLDS_S)
    assert cache.known(secret, now=clock.now()) is None


def test_a_revocation_of_this_instance_ends_it_at_once(
    database: Database, clock: FakeClock, cache: TokenCache
) -> None:
    secret = make_token(database, clock)
    found = cache.look_up(secret, now=clock.now())
    revoke(database, clock, found.token_id)
    assert cache.known(secret, now=clock.now()) is None
    with pytest.raises(Unauthenticated, match="revoked"):
        cache.look_up(secret, now=clock.now())


def test_a_revocation_of_another_instance_ends_it_when_it_is_seen_and_at_the_latest_in_time(
    database: Database, other: Database, clock: FakeClock, cache: TokenCache
) -> None:
    secret = make_token(database, clock)
    found = cache.look_up(secret, now=clock.now())
    revoke(other, clock, found.token_id)
    if not database.is_sqlite:  # nobody listens here
        assert cache.known(secret, now=clock.now()) is found
        database.heard()
    assert cache.known(secret, now=clock.now()) is None


def test_what_was_looked_up_before_a_revocation_is_never_kept_after_it(
    database: Database, clock: FakeClock, cache: TokenCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revocation is committed between the look and what is kept of it."""
    secret = make_token(database, clock)
    reading = database.reading

    @contextmanager
    def slow() -> Iterator[Any]:
        with reading() as db:
            yield db
        revoke(database, clock, cache_token)

    cache_token = cache.look_up(secret, now=clock.now()).token_id
    monkeypatch.setattr(database, "reading", slow)
    cache.look_up(secret, now=clock.now())
    assert cache.known(secret, now=clock.now()) is None


def test_a_token_that_expires_meanwhile_is_not_taken(
    database: Database, clock: FakeClock, cache: TokenCache
) -> None:
    secret = make_token(database, clock, expires_in=timedelta(seconds=1))
    cache.look_up(secret, now=clock.now())
    later = clock.now() + timedelta(seconds=1)
    assert cache.known(secret, now=later) is None
    with pytest.raises(TokenExpired):
        cache.look_up(secret, now=later)


def test_strangers_do_not_fill_it(database: Database, clock: FakeClock, cache: TokenCache) -> None:
    secret = make_token(database, clock)
    for number in range(3):
        with pytest.raises(Unauthenticated):
            cache.look_up(f"lethe_{number}", now=clock.now())
    assert cache._kept == {}
    cache.look_up(secret, now=clock.now())
    [(key, found)] = cache._kept.items()
    cache._kept = {number.to_bytes(2): found for number in range(KEPT_MAX)}
    cache.look_up(secret, now=clock.now())
    assert list(cache._kept) == [key]


def test_nobody_waits_for_the_commit_of_another(
    sqlite_database: Database, other_sqlite: Database, clock: FakeClock
) -> None:
    cache = TokenCache(sqlite_database, clock.boottime_s)
    secret = make_token(sqlite_database, clock)
    found = cache.look_up(secret, now=clock.now())
    with sqlite_database._news_guard:
        assert cache.known(secret, now=clock.now()) is found
        revoke(other_sqlite, clock, found.token_id)
        assert cache.known(secret, now=clock.now()) is found
    assert cache.known(secret, now=clock.now()) is None


def test_commits_of_this_instance_that_take_no_rights_leave_it(
    database: Database, clock: FakeClock, cache: TokenCache
) -> None:
    secret = make_token(database, clock)
    found = cache.look_up(secret, now=clock.now())
    for name in ("first", "second"):
        make_token(database, clock, name=name)
        assert cache.known(secret, now=clock.now()) is found


def test_a_revocation_by_another_shows_before_a_commit_of_our_own_has_ended(
    sqlite_database: Database, other_sqlite: Database, clock: FakeClock
) -> None:
    """The log changes by both commits: that of the other must not be taken for ours."""
    cache = TokenCache(sqlite_database, clock.boottime_s)
    secret = make_token(sqlite_database, clock)
    found = cache.look_up(secret, now=clock.now())
    revoke(other_sqlite, clock, found.token_id)
    with sqlite_database._counted(is_news=True):
        assert cache.known(secret, now=clock.now()) is None
    assert cache.known(secret, now=clock.now()) is None


def test_a_revocation_that_is_rolled_back_takes_nothing(
    database: Database, clock: FakeClock, cache: TokenCache
) -> None:
    secret = make_token(database, clock)
    found = cache.look_up(secret, now=clock.now())
    with suppress(ZeroDivisionError), database.transaction() as db:
        revoke_token(db, found.token_id, now=clock.now(), caller=caller(Scope.ADMIN))
        raise ZeroDivisionError
    assert cache.look_up(secret, now=clock.now()) == found


def test_a_look_without_a_thread_judges_as_one_with_it(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SLOW_S", 60.0)  # the machine may be busy
    monkeypatch.setattr(postgresql_glance, "PATIENCE_S", 60.0)
    cache = TokenCache(database, clock.boottime_s)
    secret = make_token(database, clock, expires_in=timedelta(seconds=1))

    async def look() -> None:
        found = await cache.look_up_soon(secret, now=clock.now())
        assert found is not None
        assert found == cache.look_up(secret, now=clock.now())
        with pytest.raises(Unauthenticated, match="not known"):
            await cache.look_up_soon(secret + "x", now=clock.now())
        with pytest.raises(TokenExpired):
            await cache.look_up_soon(secret, now=clock.now() + timedelta(seconds=1))
        revoke(database, clock, found.token_id)
        assert cache.known(secret, now=clock.now()) is None
        with pytest.raises(Unauthenticated, match="revoked"):
            await cache.look_up_soon(secret, now=clock.now())

    asyncio.run(look())


def test_reads_are_answered_by_it_and_whatever_changes_anything_is_not(
    database: Database, clock: FakeClock, make_http: MakeHttp
) -> None:
    http = make_http()
    asks_for_token: Callable[[list[str]], bool] = lambda seen: any("secret_sha256" in each for each in seen)  # noqa: E731
    assert http("GET", "/v1/whoami").status_code == 200
    with statements(database) as seen:
        assert http("GET", "/v1/whoami").status_code == 200
    assert not asks_for_token(seen)
    with statements(database) as seen:
        http.add()
    assert asks_for_token(seen)


def test_a_revocation_is_answered_when_no_instance_takes_the_token(
    database: Database, other: Database, clock: FakeClock, make_http: MakeHttp
) -> None:
    http = make_http()
    secret = make_token(database, clock, name="leaver")
    elsewhere = TokenCache(other, clock.boottime_s)
    leaver = elsewhere.look_up(secret, now=clock.now())
    assert http("POST", f"/v1/tokens/{leaver.token_id}:revoke").status_code == 200
    assert elsewhere.known(secret, now=clock.now()) is None
    assert http("GET", "/v1/whoami", token=secret).status_code == 401
