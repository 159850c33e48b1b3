"""Groups of routes lead every path where the walk over all routes leads it."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.exceptions import HTTPException

from app.db import Database
from app.kit.http.routes import RouteGroups, key_of
from app.main import create_app
from app.settings import Settings

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW")
SAMPLES = ("job_" + "0" * 26, "store-1", "a:b", "x", "ä ö", "1", ".", "a%2Fb")
TAILS = ("", "", "", "/", "\n", ":pause", ":batch", "//", "/x", " ", "?", "/..")
RANDOM_PATHS, RANDOM_PATHS_LONG = 300, 3_000
PARAMETER = re.compile(r"{[^}]*}")


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(Settings(), Database("sqlite://"))


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where requests were led; what a route refuses, it refuses itself."""
    found: list[Any] = []
    handle = APIRoute.handle

    async def note(self: APIRoute, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] not in self.methods:
            await handle(self, scope, receive, send)
        parameters = scope["path_params"]
        found.append((self.path, scope["endpoint"], parameters, scope["route"], scope["router"]))

    monkeypatch.setattr(APIRoute, "handle", note)
    return found


def outcome(router: Any, app: FastAPI, method: str, path: str, led: list[Any]) -> Any:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": "",
        "headers": [],
        "query_string": b"",
        "app": app,
    }
    led.clear()
    try:
        router(scope, None, None).send(None)  # nothing of it waits
    except StopIteration:
        [found] = led
        return found
    except HTTPException as error:
        return error.status_code, error.headers
    raise AssertionError("it waits for something")


def templates(app: FastAPI) -> list[str]:
    return [str(context.path) for context in iter_route_contexts(app.routes)]


def paths(app: FastAPI, drawn_paths: int) -> Iterator[str]:
    rng = random.Random(5)
    known = templates(app)
    pieces = sorted({piece for template in known for piece in template.split("/")})
    for template in known:
        yield PARAMETER.sub(lambda _: rng.choice(SAMPLES), template)
    for _ in range(drawn_paths):
        path = PARAMETER.sub(lambda _: rng.choice(SAMPLES), rng.choice(known))
        if rng.random() < 0.4:
            drawn = [rng.choice(pieces) for _ in range(rng.randint(0, 5))]
            path = "/" + PARAMETER.sub(lambda _: rng.choice(SAMPLES), "/".join(drawn))
        yield path + rng.choice(TAILS)


@pytest.mark.parametrize("count", [RANDOM_PATHS, pytest.param(RANDOM_PATHS_LONG, marks=pytest.mark.long)])
def test_every_path_is_led_where_all_routes_lead_it(app: FastAPI, led: list[Any], count: int) -> None:
    rng = random.Random(6)
    groups = app.router.middleware_stack
    assert isinstance(groups, RouteGroups)
    outcomes = set()
    first = len(templates(app))
    for number, path in enumerate(paths(app, count)):
        for method in METHODS if number < first else (*rng.sample(METHODS, 2), "GET"):
            grouped = outcome(groups, app, method, path, led)
            assert grouped == outcome(app.router.app, app, method, path, led), (method, path)
            outcomes.add(grouped[0])
    assert {404, 405} < outcomes
    assert len(outcomes - {404, 405}) >= 0.9 * len(set(templates(app)))


def test_the_walk_over_all_routes_is_not_taken_for_what_a_group_has(
    app: FastAPI, led: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def walk(*_: Any) -> None:
        raise AssertionError("all routes were asked")

    monkeypatch.setattr(app.router, "middleware_stack", walk)
    groups = RouteGroups(app.router)
    for template in templates(app):
        assert outcome(groups, app, "BREW", PARAMETER.sub("x", template), led)[0] == 405
    with pytest.raises(AssertionError, match="all routes were asked"):
        outcome(groups, app, "GET", "/nothing/here", led)


def test_routes_that_come_later_are_found(led: list[Any]) -> None:
    app = create_app(Settings(), Database("sqlite://"))
    groups = app.router.middleware_stack
    assert outcome(groups, app, "GET", "/v1/jobs/later/on", led)[0] == 404

    @app.get("/v1/jobs/later/on")
    def later() -> None:
        """Nothing."""

    @app.get("/{any}/{thing:path}")
    def anything() -> None:
        """Everything else."""

    assert outcome(groups, app, "GET", "/v1/jobs/later/on", led)[1] is later
    assert outcome(groups, app, "GET", "/v1/jobs/later/off", led)[1] is anything


def test_a_path_below_a_root_is_matched_by_all_routes(app: FastAPI, led: list[Any]) -> None:
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/below/livez", "root_path": "/below"}
    asyncio.run(app.router(scope | {"app": app}, None, None))  # type: ignore[arg-type]
    assert led[0][0] == "/livez"


def test_a_key_is_of_the_first_two_parts() -> None:
    assert key_of("/v1/jobs/job_1:pause") == ("v1", "jobs")
    assert key_of("/livez") == ("livez",)
    assert key_of("/") == ("",)
    assert key_of("") == ()
