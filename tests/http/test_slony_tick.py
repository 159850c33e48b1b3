"""The recurring cleanup of a store, as it is switched on over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.slony_nodes import NodeStore, new_name, register


@pytest.fixture
def node(http: httpx.Client) -> NodeStore:
    """A node that nobody looks at: its database is not there."""
    return register(http, url="postgresql+psycopg://lethe@127.0.0.1:1/nowhere", cluster=new_name())


def _change(http: httpx.Client, node: NodeStore, **parameters: object) -> httpx.Response:
    etag = http.get(node.url).headers["etag"]
    return http.patch(node.url, json={"parameters": parameters}, headers={"If-Match": etag})


def test_a_store_that_is_not_switched_on_has_no_recurring_cleanup(node: NodeStore) -> None:
    answer = node.get("event-cleanups/recurring")
    assert (answer.status_code, answer.json()) == (200, None)


def test_switched_on_it_tells_its_interval_and_its_next_time(node: NodeStore, http: httpx.Client) -> None:
    answer = _change(http, node, **{"start.cleanup_thread": True, "cleanup_interval": "PT30M"})
    assert answer.status_code == 200, answer.text
    shown = node.get("event-cleanups/recurring").json()
    assert (shown["interval"], shown["last_outcome"], shown["last_job_id"]) == ("PT30M", None, None)
    next_in = datetime.fromisoformat(shown["next_at"]) - datetime.now(UTC)
    assert timedelta(minutes=28) < next_in <= timedelta(minutes=30)
    assert node.get("event-cleanups").json()["items"] == []
    assert _change(http, node).status_code == 200
    assert node.get("event-cleanups/recurring").json() is None


def test_it_is_not_switched_on_for_all_nor_by_who_may_not_write_events(
    node: NodeStore, http: httpx.Client, service: ServiceProcess, make_token: Callable[..., str]
) -> None:
    problem(
        http.put("/v1/parameters/start.cleanup_thread", json={"value": True}, headers={"If-Match": '"0"'}),
        422,
        "PARAMETER_SCOPE_INVALID",
    )
    with service.http(make_token("stores:read", "stores:write", "parameters:write")) as other:
        problem(_change(other, node, **{"start.cleanup_thread": True}), 403, "SCOPE_MISSING")
    assert node.get("event-cleanups/recurring").json() is None


def test_other_stores_have_neither_the_switch_nor_the_answer(http: httpx.Client, shop: Shop) -> None:
    other = NodeStore(http, shop.id)
    problem(other.get("event-cleanups/recurring"), 409, "STORE_KIND_WRONG")
    problem(_change(http, other, **{"start.cleanup_thread": True}), 422, "PARAMETER_SCOPE_INVALID")
