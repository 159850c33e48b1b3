"""Tokens of a provider over HTTP: beside our own, in audit rows, and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlmodel import select

from app.auth.oidc.bearer import caller_of_jwt
from app.auth.rows import AuditEvent
from app.auth.service import ensure_admin_token
from app.db import Database
from app.jobs.service import JobRequest, submit
from app.main import create_app
from app.settings import Settings
from tests.app.auth.identity_provider import Provider, rsa_key, running_provider
from tests.app.fake_clock import FakeClock


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as found:
        yield found


class House:
    """The application with a provider, asked over ASGI."""

    def __init__(
        self, settings: Settings, database: Database, clock: FakeClock, provider: Provider | None
    ) -> None:
        if provider is not None:
            settings.oidc = provider.settings(stores_claim="stores")
        self.app = create_app(settings, database, clock=clock)

    def ask(self, method: str, path: str, secret: str, **more: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://lethe") as client:
                return await client.request(
                    method, path, headers={"Authorization": f"Bearer {secret}"}, **more
                )

        return asyncio.run(asked())


def test_both_kinds_of_tokens_serve_and_an_audit_row_names_the_caller(
    settings: Settings, database: Database, clock: FakeClock, provider: Provider
) -> None:
    house = House(settings, database, clock, provider)
    with database.transaction() as db:
        own = ensure_admin_token(db, settings.data_dir, now=clock.now()).read_text().strip()
    assert house.ask("GET", "/v1/stores", own).status_code == 200
    boss = provider.token(clock.now(), roles=["boss"], stores=["*"])
    made = house.ask("POST", "/v1/tokens", boss, json={"name": "ci", "role": "viewer"})
    assert made.status_code == 201, made.text
    with database.reading() as db:
        [row] = db.exec(select(AuditEvent).where(AuditEvent.action == "token.create")).all()
    assert row.actor == "oidc:alice"
    assert str(row.token_id).startswith("oidc_")


def test_rights_are_those_of_the_role_and_of_the_stores(
    settings: Settings, database: Database, clock: FakeClock, provider: Provider
) -> None:
    house = House(settings, database, clock, provider)
    limited = provider.token(clock.now(), stores=["shop"])
    assert house.ask("GET", "/v1/stores", limited).status_code == 200
    assert house.ask("GET", "/v1/stores/desk", limited).json()["code"] == "STORE_FORBIDDEN"
    assert house.ask("POST", "/v1/tokens", limited, json={"name": "x", "role": "viewer"}).status_code == 403
    nobody = provider.token(clock.now(), roles=["guest"], stores=["*"])
    refused = house.ask("GET", "/v1/stores", nobody)
    assert (refused.status_code, refused.json()["code"]) == (403, "NO_ROLE")


def test_a_token_that_was_good_is_refused_once_it_has_ended_or_its_key_is_gone(
    settings: Settings, database: Database, clock: FakeClock, provider: Provider
) -> None:
    house = House(settings, database, clock, provider)
    secret = provider.token(clock.now(), stores=["*"])
    assert house.ask("GET", "/v1/stores", secret).status_code == 200
    clock.advance(400)
    refused = house.ask("GET", "/v1/stores", secret)
    assert (refused.status_code, refused.json()["code"]) == (401, "TOKEN_EXPIRED")
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    forged = provider.token(clock.now(), key=rsa_key("stranger"), stores=["*"])
    assert house.ask("GET", "/v1/stores", forged).json()["code"] == "TOKEN_REFUSED"


def test_a_provider_that_is_away_is_503_and_our_own_tokens_go_on(
    settings: Settings, database: Database, clock: FakeClock, provider: Provider
) -> None:
    provider.answers.clear()
    house = House(settings, database, clock, provider)
    with database.transaction() as db:
        own = ensure_admin_token(db, settings.data_dir, now=clock.now()).read_text().strip()
    refused = house.ask("GET", "/v1/stores", provider.token(clock.now()))
    assert (refused.status_code, refused.json()["code"]) == (503, "IDENTITY_PROVIDER_UNAVAILABLE")
    assert house.ask("GET", "/v1/stores", own).status_code == 200


def test_a_right_that_was_taken_back_does_not_live_on_in_jobs(
    settings: Settings, database: Database, clock: FakeClock, provider: Provider
) -> None:
    house = House(settings, database, clock, provider)
    with database.transaction() as db:
        subject = caller_of_jwt(
            provider.token(clock.now(), stores=["shop"]),
            settings.oidc,
            house.app.state.oidc_keys,
            now=clock.now(),
        )
        who = {"requested_by": subject.name, "token_id": subject.token_id}
        one = submit(db, JobRequest("PURGE", "shop", {}, **who), now=clock.now(), queued_max=9).id
        many = submit(
            db, JobRequest("BATCH", None, {"stores": ["shop"]}, **who), now=clock.now(), queued_max=9
        ).id
    for job in (one, many):
        for stores, status in ((["shop"], 200), (["desk"], 403), (["*"], 200)):
            answer = house.ask("GET", f"/v1/jobs/{job}", provider.token(clock.now(), stores=stores))
            assert answer.status_code == status, (stores, answer.text)


def test_no_token_of_ours_is_called_as_a_caller_of_the_provider(
    settings: Settings, database: Database, clock: FakeClock, provider: Provider
) -> None:
    house = House(settings, database, clock, provider)
    boss = provider.token(clock.now(), roles=["boss"], stores=["*"])
    refused = house.ask("POST", "/v1/tokens", boss, json={"name": "oidc:alice", "role": "viewer"})
    assert (refused.status_code, refused.json()["code"]) == (422, "NAME_RESERVED")


def test_a_schedule_is_not_written_with_rights_that_nobody_knows_later(
    settings: Settings, database: Database, clock: FakeClock, provider: Provider
) -> None:
    house = House(settings, database, clock, provider)
    boss = provider.token(clock.now(), roles=["boss"], stores=["*"])
    body = {"verb": "PURGE", "body": {}, "labels": {"tier": "gold"}, "cron": "0 3 * * *"}
    refused = house.ask("POST", "/v1/schedules", boss, json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "TOKEN_OF_PROVIDER")


def test_without_an_issuer_a_jwt_is_an_unknown_token(
    settings: Settings, database: Database, clock: FakeClock, provider: Provider
) -> None:
    house = House(settings, database, clock, None)
    refused = house.ask("GET", "/v1/stores", provider.token(clock.now()))
    assert (refused.status_code, refused.json()["code"]) == (401, "TOKEN_UNKNOWN")
