"""Small things that every answer keeps to: HEAD, slashes, doubled keys, secrets, and what an answer costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app import description
from app.auth.scopes import Scope
from app.db import Database
from app.description import rendered
from app.main import create_app
from app.settings import Settings
from tests.app.auth.requests import Http, make_token

MakeClient = Callable[..., Http]


@pytest.fixture
def client(settings: Settings, sqlite_database: Database) -> MakeClient:
    app = create_app(settings, sqlite_database)

    def make(*scopes: Scope) -> Http:
        return Http(app, make_token(sqlite_database, sqlite_database.clock, scopes=list(scopes)))

    return make


@contextmanager
def counted(database: Database) -> Iterator[list[str]]:
    """The statements that the block costs."""
    seen: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/v1/jobs", "/v1/parameters"])
def test_head_is_get_without_a_body(client: MakeClient, path: str) -> None:
    """HEAD was 405."""
    _expect_head_to_be_get(client(Scope.ADMIN), path)


def _expect_head_to_be_get(by: Http, path: str) -> None:
    with_body, without = by("GET", path), by("HEAD", path)
    assert without.status_code == with_body.status_code
    assert without.content == b""
    assert with_body.content
    assert without.headers["content-length"] == with_body.headers["content-length"]
    assert without.headers["content-type"] == with_body.headers["content-type"]


def test_head_where_there_is_no_get_is_405(client: MakeClient) -> None:
    assert client(Scope.ADMIN)("HEAD", "/v1/jobs:batch").status_code == 405


@pytest.mark.parametrize("path", ["/v1/jobs/", "/v1/stores/", "/livez/"])
def test_trailing_slash_leads_nowhere(client: MakeClient, path: str) -> None:
    """It was a 307 to a URL made of the client's Host header."""
    answer = client(Scope.ADMIN)("GET", path, headers={"Host": "attacker.example"})
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    assert "location" not in answer.headers


BODIES = {
    "top": '{"name": "a", "scopes": [], "name": "b"}',
    "deep": '{"name": "a", "scopes": [], "x": {"y": [{"z": 1, "z": 2}]}}',
    "escaped": '{"name": "a", "scopes": [], "n\\u0061me": "b"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("path", ["/v1/tokens", "/v1/stores", "/v1/replication:decide"])
def test_key_that_is_given_twice_is_refused(client: MakeClient, path: str, body: str) -> None:
    admin = client(Scope.ADMIN)
    answer = admin("POST", path, content=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_JSON"), answer.text
    assert "given twice" in answer.json()["detail"]


def test_new_token_is_not_kept_by_anybody_on_its_way(client: MakeClient) -> None:
    answer = client(Scope.ADMIN)("POST", "/v1/tokens", json={"name": "a", "scopes": ["jobs:read"]})
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")


def kept_description() -> dict[str, Any]:
    """That of the repository."""
    kept = Path(__file__).parents[2] / "openapi" / "openapi.json"
    found: dict[str, Any] = json.loads(kept.read_bytes())
    return found


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where neither a wheel nor a checkout is: the description has to be made."""
    rendered.cache_clear()
    monkeypatch.setattr(description, "KEPT", Path("/nowhere"))
    yield
    rendered.cache_clear()


def test_description_is_the_kept_one_which_nobody_makes(
    client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make it took two seconds of processor time, in which everybody else waited."""
    rendered.cache_clear()
    monkeypatch.setattr(description, "describe", lambda app: pytest.fail("it was made anew"))
    assert client(Scope.REPLICATION_PEER)("GET", "/openapi.json").json() == kept_description()


@pytest.mark.usefixtures("nothing_kept")
def test_description_is_made_where_none_is_kept(client: MakeClient) -> None:
    assert client(Scope.REPLICATION_PEER)("GET", "/openapi.json").json() == kept_description()


def test_description_is_for_any_token_and_made_once(client: MakeClient) -> None:
    """It cost 0.8 s of CPU each time, and a peer's token got 403 though the README says any."""
    peer = client(Scope.REPLICATION_PEER)
    first = peer("GET", "/openapi.json")
    assert first.status_code == 200
    assert first.json()["openapi"].startswith("3.1")
    again = peer("GET", "/openapi.json", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert Http(peer.app, "wrong")("GET", "/openapi.json").status_code == 401
    _expect_head_to_be_get(peer, "/openapi.json")


def test_parameters_cost_three_statements_at_most(client: MakeClient, sqlite_database: Database) -> None:
    """They were 37: one for each parameter."""
    admin = client(Scope.ADMIN)
    admin(
        "POST", "/v1/stores", json={"id": "shop", "kind": "SYMMETRICDS", "url": "sqlite:////tmp/none.sqlite"}
    )
    with counted(sqlite_database) as statements:
        assert len(admin("GET", "/v1/parameters").json()["items"]) > 10
    asked = [each for each in statements if not each.startswith("BEGIN")]
    assert len(asked) <= 3, asked
    with counted(sqlite_database) as statements:
        assert admin("GET", "/v1/stores/shop/parameters").status_code == 200
    asked = [each for each in statements if not each.startswith("BEGIN")]
    assert len(asked) <= 3, asked
