"""Operations that are analysed when somebody asks for them: the same as FastAPI's own, only later."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import httpx
import pytest
from fastapi import FastAPI, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app import errors
from app.kit.http.routing import LateRoute, add_routes, new_router


class Body(BaseModel):
    count: int


class Answer(BaseModel):
    name: str
    count: int


router = new_router(tags=["things"])


@router.get("/v1/things/{name}", response_model=Answer)
def show(name: str, more: Annotated[int, Query(ge=0)] = 0) -> Any:
    return {"name": name, "count": more, "secret": 1}


@router.post("/v1/things/{name}:count", status_code=202)
def count(name: str, body: Body) -> Answer:
    return Answer(name=name, count=body.count)


@router.get("/v1/thingsome")
def other() -> dict[str, str]:
    return {"is": "other"}


def client() -> Callable[..., httpx.Response]:
    app = FastAPI()
    errors.install(app)
    add_routes(app, router)

    def ask(method: str, path: str, **given: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lethe") as http:
                return await http.request(method, path, **given)

        return asyncio.run(asked())

    return ask


def analysed() -> list[str]:
    return [route.name for route in router.routes if "dependant" in vars(route)]


@pytest.fixture(autouse=True)
def _not_asked_yet() -> None:
    for route in router.routes:
        assert isinstance(route, LateRoute)
        for name in {"dependant", "app", "body_field", "response_field"} & vars(route).keys():
            delattr(route, name)


def test_an_operation_is_analysed_when_it_is_asked_for_and_no_other_is() -> None:
    ask = client()
    assert analysed() == []
    assert ask("GET", "/v1/things/a", params={"more": 2}).json() == {"name": "a", "count": 2}
    assert analysed() == ["show"]


def test_a_path_that_only_begins_alike_is_another() -> None:
    ask = client()
    assert ask("GET", "/v1/thingsome").json() == {"is": "other"}
    assert ask("GET", "/v1/thing").status_code == 404
    assert ask("GET", "/v1/things").status_code == 404


def test_what_fastapi_refuses_is_refused() -> None:
    ask = client()
    assert ask("GET", "/v1/things/a", params={"more": -1}).status_code == 422
    assert ask("POST", "/v1/things/a:count", json={"count": "x"}).status_code == 422
    refused = ask("DELETE", "/v1/things/a")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
    assert ask("GET", "/v1/things/a", params={"less": 1}).json()["allowed"] == ["more"]


def test_a_key_that_is_given_twice_is_refused() -> None:
    headers = {"Content-Type": "application/json"}
    refused = client()("POST", "/v1/things/a:count", content=b'{"count":1,"count":2}', headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_JSON")


def test_an_operation_is_described_as_fastapi_describes_it() -> None:
    plain = FastAPI()
    for route in router.routes:
        assert isinstance(route, LateRoute)
        plain.router.routes.append(APIRoute(route.path, route.endpoint, **route._given))
    late = FastAPI()
    add_routes(late, router)
    assert late.openapi() == plain.openapi()


def test_what_no_operation_has_is_missing() -> None:
    [route, *_others] = router.routes
    assert not hasattr(route, "nothing_of_it")
    assert analysed() == []
