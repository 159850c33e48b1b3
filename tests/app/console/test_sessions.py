"""Sessions of the console: as long as their token, no longer; refused logins are slowed as the API's are."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
import sqlalchemy as sa

from app.auth.console_sessions import (
    SESSION_MAX,
    SESSIONS_PER_TOKEN_MAX,
    begin_session,
    find_session,
)
from app.auth.models import TokenCreate
from app.auth.rows import AuditEvent, ConsoleSession, Token
from app.auth.scopes import Role
from app.auth.service import Caller, authenticate, create_token
from app.db import Database
from app.main import create_app
from app.settings import Settings
from tests.app.console.browser import Browser
from tests.app.fake_clock import FakeClock


def caller(database: Database, clock: FakeClock, **fields: object) -> Caller:
    request = TokenCreate.model_validate({"name": "t", "role": Role.VIEWER} | fields)
    with database.transaction() as db:
        secret = create_token(db, request, now=clock.now(), caller=None)[1]
        return authenticate(db, secret, now=clock.now())


def test_session_ends_after_its_time(database: Database, clock: FakeClock) -> None:
    who = caller(database, clock)
    with database.transaction() as db:
        begun = begin_session(db, who, now=clock.now())
    with database.reading() as db:
        found = find_session(db, begun.secret, now=clock.now() + SESSION_MAX - timedelta(seconds=1))
        assert found is not None
        assert (found.csrf, found.caller.token_id) == (begun.csrf, begun.caller.token_id)
        assert find_session(db, begun.secret, now=clock.now() + SESSION_MAX) is None
        for other in ("", "x", "x" * 5_000):
            assert find_session(db, other, now=clock.now()) is None


def test_session_ends_when_its_token_expires_or_is_revoked(database: Database, clock: FakeClock) -> None:
    short, long = caller(database, clock, expires_in="PT1H"), caller(database, clock)
    with database.transaction() as db:
        begun = begin_session(db, short, now=clock.now())
        other = begin_session(db, long, now=clock.now())
    assert begun.ends_at == short.expires_at
    with database.transaction() as db:
        db.execute(
            sa.update(Token).where(Token.id == other.caller.token_id).values(revoked_at=clock.now())  # type: ignore[arg-type]
        )
    with database.reading() as db:
        assert find_session(db, begun.secret, now=clock.now() + timedelta(hours=1)) is None
        assert find_session(db, other.secret, now=clock.now()) is None


def test_one_session_too_many_ends_the_oldest(database: Database, clock: FakeClock) -> None:
    who = caller(database, clock)
    with database.transaction() as db:
        secrets = [
            begin_session(db, who, now=clock.now() + timedelta(seconds=second)).secret
            for second in range(SESSIONS_PER_TOKEN_MAX + 1)
        ]
    now = clock.now() + timedelta(minutes=5)
    with database.reading() as db:
        assert find_session(db, secrets[0], now=now) is None
        assert all(find_session(db, secret, now=now) for secret in secrets[1:])
    with database.transaction() as db:
        begin_session(db, who, now=now + SESSION_MAX)
    with database.reading() as db:
        assert db.execute(sa.select(sa.func.count()).select_from(ConsoleSession)).scalar_one() == 1


def test_refused_logins_are_audited_and_in_the_end_sent_away(
    database: Database, clock: FakeClock, settings: Settings
) -> None:
    hard = settings.model_copy(update={"address_failures_per_s": 0.001, "address_failures_burst": 3})
    app = create_app(hard, database, clock=clock)
    signed_in = Browser(app)
    with database.transaction() as db:
        request = TokenCreate.model_validate({"name": "t", "role": Role.VIEWER})
        secret = create_token(db, request, now=clock.now(), caller=None)[1]
    assert signed_in.login(secret).status_code == 303
    stranger = Browser(app)
    assert [stranger.login("lethe_guess").status_code for _ in range(4)] == [401, 401, 401, 429]
    assert signed_in.get("/console/help").status_code == 200  # who holds a session is not shut out
    assert app.state.refusals.write(database) == 1
    with database.reading() as db:
        query = sa.select(AuditEvent.detail).where(AuditEvent.action == "login.refuse")  # type: ignore[call-overload]
        detail = db.execute(query).scalar_one()
    assert detail["codes"]["TOKEN_UNKNOWN"] == 3
    assert detail["operations"] == ["POST /console/login"]


@pytest.mark.parametrize("how", ["authorization", "cookie"])
def test_session_counts_as_its_token_whatever_else_its_requests_bring(
    database: Database, clock: FakeClock, settings: Settings, how: str
) -> None:
    # The gate went by a header that pages never look at: a new one for each request was a new stranger.
    slow = settings.model_copy(update={"token_requests_per_s": 0.001, "token_requests_burst": 5})
    browser = Browser(create_app(slow, database, clock=clock))
    with database.transaction() as db:
        request = TokenCreate.model_validate({"name": "t", "role": Role.VIEWER})
        secret = create_token(db, request, now=clock.now(), caller=None)[1]
    assert browser.login(secret).status_code == 303
    session, browser.cookies = browser.cookies["lethe_console"], {}
    answers = []
    for number in range(12):
        headers = [("Cookie", f"lethe_console={session}")]
        if how == "cookie":  # of several the pages take the last
            headers.insert(0, ("Cookie", f"lethe_console=stranger-{number}"))
        else:
            headers.append(("Authorization", f"Bearer stranger-{number}"))
        answers.append(browser.ask("GET", "/console/help", headers=headers).status_code)
    assert answers[0] == 200
    assert answers[-1] == 429


def test_form_leads_back_to_the_page_with_its_filters(
    database: Database, clock: FakeClock, settings: Settings
) -> None:
    browser = Browser(create_app(settings, database, clock=clock))
    with database.transaction() as db:
        request = TokenCreate.model_validate({"name": "t", "role": Role.VIEWER})
        secret = create_token(db, request, now=clock.now(), caller=None)[1]
    asked = "/console/jobs?state=FAILED&store=a%26b&kind="
    form = browser.get(asked).headers["location"]
    page = browser.get(form)
    found = re.search(r'name="next" value="([^"]*)"', page.text)
    assert found is not None
    assert html.unescape(found[1]) == asked
    answer = browser.ask("POST", "/console/login", data={"token": secret, "next": html.unescape(found[1])})
    assert answer.headers["location"] == asked
    part = Browser(browser.app).ask("GET", asked, headers=[("HX-Request", "true")])
    assert part.headers["hx-redirect"] == form
    long = "/console/stores?page_token=" + "x" * 2_000
    assert Browser(browser.app).get(long).headers["location"].endswith("x")
    for given in ("//evil.example/?a", "/console/\\evil", "https://evil.example/console/"):
        answer = browser.ask("POST", "/console/login", data={"token": secret, "next": given})
        assert answer.headers["location"] == "/console/"


@pytest.mark.parametrize("console", ["READ_ONLY", "OFF"])
def test_console_that_is_not_on_changes_nothing(
    database: Database, clock: FakeClock, settings: Settings, console: str
) -> None:
    app = create_app(settings.model_copy(update={"console": console}), database, clock=clock)
    with database.transaction() as db:
        request = TokenCreate.model_validate({"name": "t", "role": Role.ADMIN})
        secret = create_token(db, request, now=clock.now(), caller=None)[1]
    browser = Browser(app)
    if console == "OFF":
        assert browser.get("/").status_code == 404
        assert browser.get("/console/").headers["content-type"] == "application/problem+json"
        return
    browser.login(secret)
    assert "shows only" in browser.get("/console/").text
    answer = browser.post("/console/stores/shop/suspend", reason="x")
    assert answer.status_code == 403
    assert "CONSOLE_READ_ONLY" in answer.text
    assert browser.post("/console/logout").status_code == 303
