"""Events and the matrix of confirmations of a node, as its catalog holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.slony_nodes import NodeStore, new_name, recorded_nodes, register
from tests.spark.events.catalogs import Catalogs, recorded_rows

BASE = 5_000_000_000


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: events come from the target."""
    return sqlite_service


@pytest.fixture
def node(http: httpx.Client, catalogs: Catalogs) -> NodeStore:
    """Node 1 while node 3 was down."""
    return recorded_nodes(http, catalogs, [1])[1]


def recorded_events(node: int = 1) -> list[list[Any]]:
    """(origin, seqno, timestamp, snapshot, type, data1 to data5), by origin and seqno."""
    rows: list[list[Any]] = recorded_rows("fxa", node)["sl_event"]
    return sorted(rows, key=lambda row: (row[0], row[1]))


def keys(items: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(item["origin"], item["seqno"]) for item in items]


def test_pages_hold_every_event_once_in_the_order_of_its_key(node: NodeStore) -> None:
    expected = recorded_events()
    for size in (7, 61, 500):
        items = node.events(page_size=size)
        assert keys(items) == [(row[0], row[1]) for row in expected]
    shown = [
        [item["origin"], item["seqno"], item["snapshot"], item["type"], *item["data"][:5]] for item in items
    ]
    assert shown == [[row[0], row[1], row[3], row[4], *row[5:]] for row in expected]


def test_an_event_is_shown_as_it_stands_in_the_catalog(node: NodeStore) -> None:
    [item] = node.events(from_seqno=BASE + 71, upto_seqno=BASE + 71)
    assert item == {
        "origin": 1,
        "seqno": BASE + 71,
        "type": "SYNC",
        "created_at": "2026-11-20T08:01:28.273361Z",
        "snapshot": "2530:2530:",
        "data": [None] * 8,
    }


def test_filters_narrow_the_list(node: NodeStore) -> None:
    rows = recorded_events()
    config = [(row[0], row[1]) for row in rows if row[4] != "SYNC"]
    types = sorted({row[4] for row in rows} - {"SYNC"})
    assert keys(node.events(type=types, page_size=5)) == config
    assert keys(node.events(origin=[2, 3])) == [(row[0], row[1]) for row in rows if row[0] != 1]
    between = node.events(origin=1, from_seqno=BASE + 10, upto_seqno=BASE + 12)
    assert keys(between) == [(1, BASE + number) for number in (10, 11, 12)]
    after, before = "2026-11-20T08:01:28.273361Z", "2026-11-20T08:01:50Z"
    expected = [
        (row[0], row[1])
        for row in rows
        if "2026-11-20 08:01:28.273361+00:00" < row[2] < "2026-11-20 08:01:50.000000+00:00"
    ]
    assert expected
    assert keys(node.events(created_after=after, created_before=before, page_size=3)) == expected
    assert node.events(type="DROP_NODE") == []
    assert node.events(origin=99) == []


@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"origin": "-1"}, "query:origin.0"),
        ({"origin": "2147483648"}, "query:origin.0"),
        ({"origin": "one"}, "query:origin.0"),
        ({"type": "sync"}, "query:type.0"),
        ({"type": ""}, "query:type.0"),
        ({"from_seqno": "-1"}, "query:from_seqno"),
        ({"from_seqno": "9223372036854775808"}, "query:from_seqno"),
        ({"from_seqno": "8", "upto_seqno": "7"}, "query:upto_seqno"),
        ({"created_after": "2026-11-20T08:00:00"}, "query:created_after"),
        (
            {"created_after": "2026-11-20T08:00:00Z", "created_before": "2026-11-20T08:00:00Z"},
            "query:created_before",
        ),
        ({"page_size": "0"}, "query:page_size"),
        ({"page_size": "501"}, "query:page_size"),
    ],
)
def test_a_filter_that_can_fit_nothing_is_refused(
    node: NodeStore, params: dict[str, str], pointer: str
) -> None:
    assert pointer in pointers(problem(node.get("events", **params), 422, "INVALID_REQUEST"))


def test_a_token_belongs_to_its_filters(node: NodeStore) -> None:
    token = node.get("events", page_size=1).json()["next_page_token"]
    problem(node.get("events", page_size=1, origin=1, page_token=token), 400, "INVALID_PAGE_TOKEN")
    problem(node.get("events", page_token="e30"), 400, "INVALID_PAGE_TOKEN")


def test_one_event_tells_who_has_confirmed_it_and_who_has_not(node: NodeStore) -> None:
    newest = {pair: item["confirmed_seqno"] for pair, item in node.matrix().items()}
    assert (newest[1, 2], newest[1, 3]) == (BASE + 141, BASE + 113)
    old = node.get(f"events/1/{BASE + 113}").json()
    assert [(each["receiver"], each["seqno"]) for each in old["confirmed_by"]] == [
        (2, BASE + 141),
        (3, BASE + 113),
    ]
    assert all(each["at"].endswith("Z") for each in old["confirmed_by"])
    assert (old["outstanding"], old["is_confirmed_by_all"]) == ([], True)
    later = node.get(f"events/1/{BASE + 114}").json()
    assert [each["receiver"] for each in later["confirmed_by"]] == [2]
    assert (later["outstanding"], later["is_confirmed_by_all"]) == ([3], False)
    newest_event = node.get(f"events/1/{BASE + 142}").json()
    assert (newest_event["confirmed_by"], newest_event["outstanding"]) == ([], [2, 3])


def test_who_never_confirmed_is_outstanding_and_infinitely_behind(node: NodeStore) -> None:
    node.loaded.execute("delete from sl_confirm where con_origin = 1 and con_received = 3")
    assert node.get(f"events/1/{BASE + 1}").json()["outstanding"] == [3]
    pair = node.matrix()[1, 3]
    assert pair == {
        "origin": 1,
        "receiver": 3,
        "receiver_is_active": True,
        "state": "NEVER_CONFIRMED",
        "confirmed_seqno": None,
        "confirmed_at": None,
        "last_seqno": BASE + 142,
        "lag_events": 142,
        "lag": None,
    }


def test_a_node_that_takes_no_part_is_not_waited_for(node: NodeStore) -> None:
    node.loaded.execute("update sl_node set no_active = false where no_id = 3")
    assert node.get(f"events/1/{BASE + 141}").json()["outstanding"] == []
    matrix = node.matrix()
    assert {pair: item["receiver_is_active"] for pair, item in matrix.items()} == {
        (origin, receiver): receiver != 3
        for origin in (1, 2, 3)
        for receiver in (1, 2, 3)
        if origin != receiver
    }
    node.loaded.execute("update sl_node set no_active = true, no_failed = true where no_id = 3")
    assert node.get(f"events/1/{BASE + 141}").json()["outstanding"] == []


def test_the_matrix_has_every_pair_with_its_lag(node: NodeStore) -> None:
    answer = node.get("confirmations").json()
    assert answer["local_node"] == 1
    assert answer["as_of"].endswith("Z")
    shown = {
        (item["origin"], item["receiver"]): (
            item["state"],
            item["confirmed_seqno"] - BASE,
            item["last_seqno"] - BASE,
            item["lag_events"],
        )
        for item in answer["items"]
    }
    assert shown == {
        (1, 2): ("BEHIND", 141, 142, 1),
        (1, 3): ("BEHIND", 113, 142, 29),
        (2, 1): ("CURRENT", 22, 22, 0),
        (2, 3): ("BEHIND", 19, 22, 3),
        (3, 1): ("CURRENT", 19, 19, 0),
        (3, 2): ("CURRENT", 19, 19, 0),
    }
    lags = {(item["origin"], item["receiver"]): item["lag"] for item in answer["items"]}
    assert lags[2, 1] == "PT0S"
    assert lags[1, 3].startswith("P")


@pytest.mark.parametrize("key", ["9/5000000001", "1/5", f"1/{BASE + 143}", "0/0"])
def test_an_event_that_is_not_there_is_not_found(node: NodeStore, key: str) -> None:
    problem(node.get(f"events/{key}"), 404, "EVENT_NOT_FOUND")


@pytest.mark.parametrize("key", ["x/1", "1/x", "1/9223372036854775808", "-1/1"])
def test_a_key_that_no_event_can_have_is_not_found(node: NodeStore, key: str) -> None:
    answer = node.get(f"events/{key}")
    assert answer.status_code == 404
    assert answer.json()["code"] in ("ORIGIN_NOT_FOUND", "SEQNO_NOT_FOUND")


def test_a_sync_needs_the_functions_of_the_cluster(node: NodeStore) -> None:
    before = node.loaded.rows()
    answer = node.http.post(f"{node.url}/events", json={"type": "SYNC"})
    problem(answer, 409, "FUNCTIONS_MISSING")
    assert node.loaded.rows() == before


@pytest.mark.parametrize("body", [{}, {"type": "DROP_NODE"}, {"type": "SYNC", "data": []}, []])
def test_nothing_but_a_sync_is_made(node: NodeStore, body: Any) -> None:
    problem(node.http.post(f"{node.url}/events", json=body), 422, "INVALID_REQUEST")


def reads(node_url: str) -> list[str]:
    return [f"{node_url}/events", f"{node_url}/events/1/1", f"{node_url}/confirmations"]


def refused(http: httpx.Client, url: str, status: int, code: str) -> None:
    for path in reads(url):
        problem(http.get(path), status, code)
    problem(http.post(f"{url}/events", json={"type": "SYNC"}), status, code)
    body = {"origin": 1, "receiver": 2, "seqno": 1}
    problem(http.post(f"{url}/confirmations", json=body), status, code)


def test_a_store_of_another_kind_has_no_events(http: httpx.Client, shop: Shop) -> None:
    before = shop.digest
    refused(http, f"/v1/stores/{shop.id}", 409, "STORE_KIND_WRONG")
    assert shop.digest == before


def test_a_database_without_a_cluster_is_refused(http: httpx.Client, postgresql_url: str) -> None:
    node = register(http, url=postgresql_url, cluster="lab")
    refused(http, node.url, 409, "NOT_A_SLONY_CLUSTER")


def test_an_unknown_cluster_is_refused_with_the_names_of_those_there(
    http: httpx.Client, node: NodeStore
) -> None:
    other = register(http, url=node.loaded.url, cluster="Nobody")
    refused(http, other.url, 409, "UNKNOWN_CLUSTER")
    assert node.loaded.cluster in http.get(f"{other.url}/events").json()["detail"]


def test_a_catalog_that_is_not_whole_or_of_no_node_is_refused(http: httpx.Client, node: NodeStore) -> None:
    node.loaded.execute("select setval('sl_local_node_id', -1)")
    refused(http, node.url, 409, "NODE_UNINITIALISED")
    node.loaded.execute("drop table sl_confirm")
    refused(http, node.url, 409, "CATALOG_INCOMPLETE")


def test_a_target_that_does_not_answer_is_no_fault_of_the_request(http: httpx.Client) -> None:
    node = register(http, url="postgresql+psycopg://nobody@127.0.0.1:9/none", cluster=new_name())
    refused(http, node.url, 503, "TARGET_UNREACHABLE")


def test_a_store_that_is_not_there_is_not_found(http: httpx.Client) -> None:
    refused(http, "/v1/stores/none", 404, "STORE_NOT_FOUND")


def test_reading_and_writing_need_their_scopes_and_the_store(
    service: ServiceProcess, node: NodeStore, make_token: Callable[..., str]
) -> None:
    body = {"origin": 1, "receiver": 2, "seqno": BASE + 142}
    with service.http(make_token("stores:read")) as reader:
        assert all(reader.get(path).status_code in (200, 404) for path in reads(node.url))
        for path, sent in (("events", {"type": "SYNC"}), ("confirmations", body)):
            missing = problem(reader.post(f"{node.url}/{path}", json=sent), 403, "SCOPE_MISSING")
            assert missing["scope"] == "events:write"
    with service.http(make_token("admin", stores=["another"])) as other:
        for path in reads(node.url):
            problem(other.get(path), 403, "STORE_FORBIDDEN")
        problem(other.post(f"{node.url}/confirmations", json=body), 403, "STORE_FORBIDDEN")
