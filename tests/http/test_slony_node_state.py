"""What checks keep of a node: the same as the node tells, there when nobody asks it."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.slony_nodes import recorded_nodes
from tests.spark.events.catalogs import Catalogs

MOVES = {"confirmed_at", "lag"}


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough."""
    return sqlite_service


def test_check_keeps_the_matrix_and_the_log_tables(http: httpx.Client, catalogs: Catalogs) -> None:
    node = recorded_nodes(http, catalogs, [1])[1]
    empty = node.get("node-state").json()
    assert (empty["checked_at"], empty["confirmations"], empty["log_status"]) == (None, [], None)
    node.check()
    kept = node.get("node-state").json()
    assert kept["checked_at"] is not None
    items = node.get("confirmations").json()["items"]
    assert [without(each) for each in kept["confirmations"]] == [without(each) for each in items]
    assert len(items) >= 6
    now = node.get("log-switches/status").json()
    assert {name: kept["log_status"][name] for name in ("active", "status", "tables", "origins")} == {
        name: now[name] for name in ("active", "status", "tables", "origins")
    }
    lag = http.get("/v1/overview", params={"store": node.id}).json()["stores"][0]["lag"]
    assert lag["consumer"].startswith("node ")


def without(item: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in item.items() if name not in MOVES}


def test_store_of_another_kind_has_no_state_of_a_node(http: httpx.Client, shop: Shop) -> None:
    before = shop.digest
    problem(http.get(f"/v1/stores/{shop.id}/node-state"), 409, "STORE_KIND_WRONG")
    problem(http.get("/v1/stores/nobody/node-state"), 404, "STORE_NOT_FOUND")
    assert shop.digest == before


def test_token_of_another_store_reads_no_state_of_this_node(
    service: ServiceProcess, http: httpx.Client, catalogs: Catalogs, make_token: Callable[..., str]
) -> None:
    node = recorded_nodes(http, catalogs, [1])[1]
    with service.http(make_token("admin", stores=["another"])) as other:
        problem(other.get(f"{node.url}/node-state"), 403, "STORE_FORBIDDEN")
    with service.http(make_token("stores:read", stores=[node.id])) as own:
        assert own.get(f"{node.url}/node-state").status_code == 200
