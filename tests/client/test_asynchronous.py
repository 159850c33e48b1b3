"""AsyncLethe is the sync client, written by a program: as committed, with the same operations."""

import asyncio
import importlib.util
import inspect
import json
import sys
import types
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from lethe_client import (
    AsyncLethe,
    ConfigurationInvalid,
    Lethe,
    RequestInvalid,
    RetryPolicy,
    ServiceUnavailable,
    TransportFailed,
)

ROOT = Path(__file__).parents[2]
TWIN = ROOT / "client" / "lethe_client" / "asynchronous"
NOT_RETRYABLE = {"code": "INVALID_REQUEST", "detail": "2 field(s) are not valid", "retryable": False}


def render() -> dict[str, str]:
    """What `make client` would write."""
    spec = importlib.util.spec_from_file_location("async_client", ROOT / "setup" / "async_client.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.render())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="its f-strings are not for 3.11; make client refuses")
def test_the_committed_files_are_those_of_the_sync_client(monkeypatch: pytest.MonkeyPatch) -> None:
    # Dataclasses look their module up by its name.
    monkeypatch.setitem(sys.modules, "async_client", types.ModuleType("async_client"))
    committed = {path.name: path.read_text() for path in TWIN.glob("*.py")}
    assert render() == committed, "stale: make client"


def groups(client: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(client).items() if not name.startswith("_")}


def methods(value: Any) -> dict[str, Any]:
    found = inspect.getmembers(value, inspect.ismethod)
    return {name: method for name, method in found if not name.startswith("_")}


def test_every_operation_is_there_with_the_same_parameters() -> None:
    sync, other = groups(Lethe("http://127.0.0.1:9")), groups(AsyncLethe("http://127.0.0.1:9"))
    assert sync.keys() == other.keys()
    compared = 0
    for name, group in sync.items():
        mine, its = methods(group), methods(other[name])
        assert mine.keys() == its.keys()
        for verb, method in mine.items():
            its_parameters = inspect.signature(its[verb]).parameters
            assert list(inspect.signature(method).parameters) == list(its_parameters), f"{name}.{verb}"
            answer = str(inspect.signature(method).return_annotation)
            yields = "Iterator" in answer or "Generator" in answer
            waits = inspect.iscoroutinefunction(its[verb])
            assert waits != yields, f"{name}.{verb} must be awaited or iterated, one of both"
            compared += 1
    assert compared > 120


class Service:
    """Answers one reply after the other."""

    def __init__(self, *replies: httpx.Response | Exception) -> None:
        self.replies = list(replies)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def ask(
    service: Service, question: Callable[[AsyncLethe], Awaitable[Any]], **policy: Any
) -> tuple[Any, list[float]]:
    """Run one question; its answer, and what was slept."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def run() -> Any:
        retries = RetryPolicy(asleep=sleep, uniform=lambda _low, high: high, **policy)
        transport = httpx.MockTransport(service)
        async with AsyncLethe("http://lethe", "t", retries=retries, transport=transport) as lethe:
            return await question(lethe)

    return asyncio.run(run()), slept


def test_a_postponed_request_is_sent_again_under_the_same_key() -> None:
    service = Service(
        httpx.Response(503, headers={"retry-after": "2"}),
        httpx.ConnectError("refused"),
        httpx.Response(201, json={"id": "tok_1", "name": "n"}),
    )
    token, slept = ask(service, lambda lethe: lethe.tokens.create("n", role="viewer"))
    assert token.id == "tok_1"
    assert len({request.headers["idempotency-key"] for request in service.requests}) == 1
    assert slept[0] > 2
    assert len(slept) == 2


def test_what_may_have_been_done_is_not_sent_twice() -> None:
    service = Service(
        httpx.Response(200, json={"id": "shop", "kind": "SQL"}, headers={"etag": '"1"'}),
        httpx.ReadError("cut"),
    )

    async def update(lethe: AsyncLethe) -> Any:
        return await lethe.stores.update(await lethe.stores.get("shop"), {"labels": {}})

    with pytest.raises(TransportFailed) as failed:
        ask(service, update)
    assert failed.value.maybe_done
    assert len(service.requests) == 2


def test_attempts_come_to_an_end() -> None:
    service = Service(*[httpx.Response(503) for _ in range(3)])
    with pytest.raises(ServiceUnavailable):
        ask(service, lambda lethe: lethe.fleet.whoami(), attempts=3)
    assert service.replies == []


def test_pages_are_fetched_as_they_are_needed() -> None:
    def page(*names: str, token: str | None) -> httpx.Response:
        items = [{"id": name, "kind": "SQL"} for name in names]
        return httpx.Response(200, json={"items": items, "next_page_token": token})

    service = Service(page("a", "b", token="2"), page("c", token=None))

    async def two(lethe: AsyncLethe) -> list[str]:
        return [store.id async for store in lethe.stores.list()]

    found, _ = ask(service, two)
    assert found == ["a", "b", "c"]
    assert service.requests[1].url.params["page_token"] == "2"


@pytest.mark.parametrize("count", [1, 7])
def test_the_message_of_a_refused_request_names_the_fields(count: int) -> None:
    errors = [{"pointer": f"/field{number}", "detail": "is wrong"} for number in range(count)]
    service = Service(httpx.Response(422, content=json.dumps(NOT_RETRYABLE | {"errors": errors})))
    with pytest.raises(RequestInvalid, match="/field0: is wrong") as refused:
        ask(service, lambda lethe: lethe.fleet.whoami())
    assert ("and 2 more" in str(refused.value)) == (count == 7)
    assert len(refused.value.errors) == count


@pytest.mark.parametrize("kind", [Lethe, AsyncLethe])
def test_a_client_is_made_from_the_environment(
    kind: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("LETHE_URL", "LETHE_TOKEN", "LETHE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationInvalid, match="LETHE_URL is not set"):
        kind.from_env()
    monkeypatch.setenv("LETHE_URL", "http://lethe:8765/")
    assert kind.from_env().url == "http://lethe:8765"
    monkeypatch.setenv("LETHE_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(ConfigurationInvalid, match="cannot be read"):
        kind.from_env()
    (tmp_path / "token").write_text("of-the-file\n")
    made = kind.from_env(timeout_s=3.0)
    assert made._transport._http.headers["authorization"] == "Bearer of-the-file"
    monkeypatch.setenv("LETHE_TOKEN", "of-the-variable")
    assert kind.from_env()._transport._http.headers["authorization"] == "Bearer of-the-variable"
