"""Every POST of the console, as its router tells: a new one is asked the same without a word here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from app.auth.models import TokenCreate
from app.auth.scopes import Role
from app.auth.service import create_token
from app.db import Database
from app.main import create_app
from app.settings import Settings
from app.stores.rows import Store
from migrations.upgrade import upgrade
from tests.app.console.browser import Browser
from tests.console.browsing import csrf_of
from tests.console.conftest import MakeShop
from tests.console.fleet import Fleet, make_fleet
from tests.console.paths import PATHS
from tests.http.service_process import NO_TLS, ServiceProcess

OPEN_TO_ALL = {"/console/login", "/console/logout"}
"""Whoever has a token may sign in and out; what they ask of a form is tested with them."""


def _posts() -> Iterator[str]:
    app = create_app(Settings(), Database("sqlite://"))
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if (
            isinstance(route, APIRoute)
            and route.path.startswith("/console")
            and "POST" in (route.methods or ())
        ) and route.path not in OPEN_TO_ALL:
            yield route.path


POSTS = sorted(_posts())
CHOICES = {"verb": "abort", "doing": "backup-end", "key": "purge-outgoing"}
SUBJECTS = {"job_id": "job", "plan_id": "plan", "store": "store", "store_id": "store", "subject": "backup"}


@pytest.fixture(scope="module")
def fleet(http: httpx.Client, roots: Any, make_shop: MakeShop) -> Fleet:
    return make_fleet(http, roots, make_shop(), hostile=False)


def address(path: str, fleet: Fleet) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1]
        return CHOICES[name] if name in CHOICES else fleet.names[SUBJECTS[name]]

    filled = re.sub(r"{(\w+)}", value, path)
    return filled + (f"?store={fleet.environment.id}" if "/do/" in path else "")


@pytest.mark.parametrize("path", POSTS)
def test_post_without_the_mark_or_of_a_foreign_page_is_refused(
    service: ServiceProcess, operator: httpx.Client, fleet: Fleet, path: str
) -> None:
    url, mark = address(path, fleet), csrf_of(operator)
    for fields in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
        answer = operator.post(url, data={"reason": "x"} | fields)
        assert answer.status_code == 403, answer.text
        assert "CONSOLE_FORM_FOREIGN" in answer.text
    for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        with httpx.Client(
            base_url=service.url, cookies=operator.cookies, headers=headers, verify=NO_TLS
        ) as foreign:
            answer = foreign.post(url, data={"csrf": mark, "reason": "x"})
        assert answer.status_code == 403, headers
        assert "CONSOLE_FORM_FOREIGN" in answer.text


@pytest.mark.parametrize("path", POSTS)
def test_viewer_may_post_nothing(viewer: httpx.Client, fleet: Fleet, path: str) -> None:
    fields = {"csrf": csrf_of(viewer), "reason": "x", "confirm": fleet.shop.id}
    answer = viewer.post(address(path, fleet), data=fields)
    assert answer.status_code == 403, answer.text
    assert "SCOPE_MISSING" in answer.text


def test_console_that_only_shows_refuses_every_post(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'lethe.db'}")
    upgrade(database)
    browser = Browser(create_app(Settings(data_dir=tmp_path, console="READ_ONLY"), database))
    request = TokenCreate.model_validate({"name": "t", "role": Role.ADMIN})
    with database.transaction() as db:
        now = database.now(db)
        secret = create_token(db, request, now=now, caller=None)[1]
        db.add(Store(id="any", kind="SYMMETRICDS", url="sqlite:////x", created_at=now, updated_at=now))
    assert browser.login(secret).status_code == 303
    ids = CHOICES | dict.fromkeys(SUBJECTS, "any")
    for path in POSTS:
        answer = browser.post(path.format(**ids) + ("?store=any" if "/do/" in path else ""), reason="x")
        assert answer.status_code == 403, (path, answer.text)
        assert "CONSOLE_READ_ONLY" in answer.text, path
    database.close()


@pytest.mark.parametrize("path", PATHS)
def test_viewer_sees_no_button_of_the_further_pages(viewer: httpx.Client, fleet: Fleet, path: str) -> None:
    answer = viewer.get(path.format(**fleet.names))
    assert answer.status_code in (200, 403), answer.text
    main = answer.text.partition("<main")[2]
    assert 'method="post"' not in main
    assert "/console/do/" not in main
    assert [each for each in re.findall(r"<button[^>]*>([^<]*)<", main) if each != "Show"] == []
