"""Every POST of the console, as its router tells: a new one is asked the same without a word here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from app.db import Database
from app.main import create_app
from app.settings import Settings
from tests.console.browsing import csrf_of
from tests.console.conftest import MakeShop
from tests.console.fleet import Fleet, make_fleet
from tests.console.paths import PATHS
from tests.http.service_process import ServiceProcess

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
        with httpx.Client(base_url=service.url, cookies=operator.cookies, headers=headers) as foreign:
            answer = foreign.post(url, data={"csrf": mark, "reason": "x"})
        assert answer.status_code == 403, headers
        assert "CONSOLE_FORM_FOREIGN" in answer.text


@pytest.mark.parametrize("path", POSTS)
def test_viewer_may_post_nothing(viewer: httpx.Client, fleet: Fleet, path: str) -> None:
    fields = {"csrf": csrf_of(viewer), "reason": "x", "confirm": fleet.shop.id}
    answer = viewer.post(address(path, fleet), data=fields)
    assert answer.status_code == 403, answer.text
    assert "SCOPE_MISSING" in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_viewer_sees_no_button_of_the_further_pages(viewer: httpx.Client, fleet: Fleet, path: str) -> None:
    answer = viewer.get(path.format(**fleet.names))
    assert answer.status_code in (200, 403), answer.text
    main = answer.text.partition("<main")[2]
    assert 'method="post"' not in main
    assert "/console/do/" not in main
    assert [each for each in re.findall(r"<button[^>]*>([^<]*)<", main) if each != "Show"] == []
