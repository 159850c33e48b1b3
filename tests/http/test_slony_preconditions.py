"""Slonik's waits as questions over HTTP, asked of all registered nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.slony_nodes import NodeStore, new_name, recorded_nodes, register
from tests.spark.events.catalogs import Catalogs

pytestmark = pytest.mark.postgresql
BASE = 5_000_000_000
Nodes = dict[int, NodeStore]


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: nothing of it is kept there."""
    return sqlite_service


@pytest.fixture
def nodes(http: httpx.Client, catalogs: Catalogs) -> Nodes:
    """A cluster at rest: every node has confirmed all configuration events."""
    return recorded_nodes(http, catalogs, state="fxc")


def ask(at: NodeStore, command: str, **fields: Any) -> httpx.Response:
    return at.http.post(f"{at.url}/events:precondition", json={"command": command} | fields)


def answered(at: NodeStore, command: str, **fields: Any) -> dict[str, Any]:
    answer = ask(at, command, **fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def make_event(nodes: Nodes, origin: int, seqno: int, kind: str) -> None:
    """An event that its origin has made, and nobody has heard of."""
    nodes[origin].loaded.execute(
        "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)"
        f" values ({origin}, {seqno}, now(), '10:10:', '{kind}')"
    )


def confirm(nodes: Nodes, origin: int, receiver: int, seqno: int, *, at: int | None = None) -> None:
    """What a receiver writes into its own catalog; `at`: into another's."""
    nodes[at or receiver].loaded.execute(
        "insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)"
        f" values ({origin}, {receiver}, {seqno}, now())"
    )


def confirmed(node: NodeStore, origin: int, receiver: int) -> int:
    rows = node.loaded.query(
        f"select max(con_seqno) from sl_confirm where con_origin = {origin} and con_received = {receiver}"
    )
    return int(rows[0][0])


SEQNO = BASE + 900
ALL: list[tuple[str, dict[str, int]]] = [
    ("SUBSCRIBE_SET", {"provider": 2, "receiver": 3}),
    ("CLONE_PREPARE", {"provider": 2}),
    ("CREATE_SET", {"origin": 1}),
    ("SUBMIT_TO_OTHER_NODE", {"event_node": 2, "previous_event_node": 1}),
]


@pytest.mark.parametrize("as_program", [False, True])
@pytest.mark.parametrize(("command", "fields"), ALL, ids=[command for command, _ in ALL])
def test_cluster_at_rest_meets_it(
    nodes: Nodes, command: str, fields: dict[str, int], as_program: bool
) -> None:
    found = answered(nodes[1], command, as_program=as_program, **fields)
    assert {each["seqno"] is None or each["type"] != "SYNC" for each in found.pop("awaited")} == {True}
    assert found == {
        "met": True,
        "command": command,
        "as_program": as_program,
        "missing": [],
        "not_evaluated": [],
        "evaluated": [1, 2, 3],
        "held_by": [],
    }


def test_event_that_the_provider_has_not_confirmed_is_named(nodes: Nodes) -> None:
    make_event(nodes, 3, SEQNO, "STORE_PATH")
    found = answered(nodes[1], "SUBSCRIBE_SET", provider=2, receiver=3)
    reached = confirmed(nodes[2], 3, 2)
    missing = {
        "origin": 3,
        "seqno": SEQNO,
        "type": "STORE_PATH",
        "node": 2,
        "confirmed_seqno": reached,
        "why": "BEHIND",
    }
    assert (found["met"], found["missing"]) == (False, [missing])
    assert answered(nodes[1], "SUBSCRIBE_SET", provider=2, as_program=True)["missing"] == [missing]
    confirm(nodes, 3, 2, SEQNO, at=1)  # what others believe of the provider is not its own word
    assert answered(nodes[1], "SUBSCRIBE_SET", provider=2)["met"] is False
    confirm(nodes, 3, 2, SEQNO)
    assert answered(nodes[1], "SUBSCRIBE_SET", provider=2)["met"] is True


def test_provider_without_any_row_is_never_confirmed(nodes: Nodes) -> None:
    nodes[2].loaded.execute("delete from sl_confirm where con_origin = 1 and con_received = 2")
    found = answered(nodes[3], "CLONE_PREPARE", provider=2)
    assert [
        (each["origin"], each["node"], each["confirmed_seqno"], each["why"]) for each in found["missing"]
    ] == [(1, 2, None, "NEVER_CONFIRMED")]


def test_drop_set_is_missing_at_all_as_documented_and_at_the_origin_as_the_program(nodes: Nodes) -> None:
    make_event(nodes, 2, SEQNO, "DROP_SET")

    def missing_at(**fields: Any) -> list[tuple[int, int, str]]:
        found = answered(nodes[1], "CREATE_SET", origin=1, **fields)
        assert found["met"] is (found["missing"] == [])
        return [(each["origin"], each["node"], each["type"]) for each in found["missing"]]

    assert missing_at() == [(2, 1, "DROP_SET"), (2, 3, "DROP_SET")]
    assert missing_at(as_program=True) == [(2, 1, "DROP_SET")]
    confirm(nodes, 2, 1, SEQNO)
    assert missing_at() == [(2, 3, "DROP_SET")]
    assert missing_at(as_program=True) == []
    confirm(nodes, 2, 3, SEQNO)
    assert missing_at() == []


def test_drop_node_wants_everybody_as_documented_and_the_event_node_as_the_program(nodes: Nodes) -> None:
    for origin, receiver in ((1, 2), (2, 1), (3, 1), (3, 2)):  # at rest, but for SYNCs of node 3
        confirm(nodes, origin, receiver, BASE + 800)
    assert answered(nodes[1], "DROP_NODE", node=3)["met"] is True
    make_event(nodes, 2, SEQNO, "STORE_SET")
    documented = answered(nodes[1], "DROP_NODE", node=3)
    assert [(each["origin"], each["node"], each["seqno"]) for each in documented["missing"]] == [
        (2, 1, SEQNO)
    ]
    assert answered(nodes[1], "DROP_NODE", node=3, as_program=True)["met"] is True
    nodes[2].loaded.execute(
        "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)"
        f" values (3, {SEQNO}, now(), '10:10:', 'SYNC')"
    )
    program = answered(nodes[1], "DROP_NODE", node=3, event_node=1, as_program=True)
    assert [(each["origin"], each["node"], each["seqno"], each["type"]) for each in program["missing"]] == [
        (3, 1, SEQNO, "SYNC")
    ]


def test_dropped_node_need_not_be_registered(http: httpx.Client, catalogs: Catalogs) -> None:
    nodes = recorded_nodes(http, catalogs, [1, 2], state="fxc")
    found = answered(nodes[1], "DROP_NODE", node=3)
    assert (found["evaluated"], found["not_evaluated"]) == ([1, 2], [])


def test_new_event_node_is_asked_itself_and_the_program_asks_the_one_before(nodes: Nodes) -> None:
    make_event(nodes, 1, SEQNO, "STORE_SET")
    confirm(nodes, 1, 2, SEQNO)
    fields = {"event_node": 2, "previous_event_node": 1}
    assert answered(nodes[1], "SUBMIT_TO_OTHER_NODE", **fields)["met"] is True
    program = answered(nodes[1], "SUBMIT_TO_OTHER_NODE", as_program=True, **fields)
    assert [(each["origin"], each["node"], each["why"]) for each in program["missing"]] == [(1, 2, "BEHIND")]


# -- who cannot be asked


def test_node_that_is_not_registered_leaves_it_unmet(http: httpx.Client, catalogs: Catalogs) -> None:
    nodes = recorded_nodes(http, catalogs, [1, 2], state="fxc")
    for as_program in (False, True):
        found = answered(nodes[1], "SUBSCRIBE_SET", provider=2, as_program=as_program)
        assert (found["met"], found["missing"]) == (False, [])
        assert found["not_evaluated"] == [{"node": 3, "why": "NOT_REGISTERED", "detail": None}]
    assert answered(nodes[1], "SUBMIT_TO_OTHER_NODE", event_node=2, previous_event_node=1)["met"] is True


def test_node_that_does_not_answer_leaves_it_unmet(http: httpx.Client, catalogs: Catalogs) -> None:
    nodes = recorded_nodes(http, catalogs, [1, 2], state="fxc")
    register(http, url="postgresql+psycopg://nobody@127.0.0.1:1/nowhere", cluster=nodes[1].loaded.cluster)
    found = answered(nodes[1], "CLONE_PREPARE", provider=2)
    assert found["met"] is False
    assert found["not_evaluated"] == [{"node": 3, "why": "UNREACHABLE", "detail": "TARGET_UNREACHABLE"}]


def test_store_that_the_token_may_not_see_leaves_it_unmet(
    nodes: Nodes, make_token: Callable[..., str], service: ServiceProcess
) -> None:
    with service.http(make_token("stores:read", stores=[nodes[1].id, nodes[2].id])) as narrow:
        found = answered(NodeStore(narrow, nodes[1].id), "SUBSCRIBE_SET", provider=2)
        assert (found["met"], found["evaluated"]) == (False, [1, 2])
        assert found["not_evaluated"] == [{"node": 3, "why": "NOT_PERMITTED", "detail": None}]
        problem(ask(NodeStore(narrow, nodes[3].id), "CREATE_SET", origin=1), 403, "STORE_FORBIDDEN")


def test_inactive_node_need_not_be_asked(http: httpx.Client, catalogs: Catalogs) -> None:
    nodes = recorded_nodes(http, catalogs, [1, 2], state="fxc")
    for node in nodes.values():
        node.loaded.execute("update sl_node set no_active = false where no_id = 3")
    assert answered(nodes[1], "SUBSCRIBE_SET", provider=2)["met"] is True


# -- what is refused


BAD: list[tuple[str, dict[str, Any], str, set[str]]] = [
    ("SUBSCRIBE_SET", {}, "INVALID_REQUEST", {"/provider"}),
    ("SUBSCRIBE_SET", {"provider": 2, "receiver": 2}, "INVALID_REQUEST", {"/receiver"}),
    ("SUBSCRIBE_SET", {"provider": 2, "node": 1, "origin": 1}, "INVALID_REQUEST", {"/node", "/origin"}),
    ("SUBSCRIBE_SET", {"provider": 9}, "UNKNOWN_NODE", {"/provider"}),
    ("SUBSCRIBE_SET", {"provider": 2, "receiver": 9}, "UNKNOWN_NODE", {"/receiver"}),
    ("CLONE_PREPARE", {"node": 2}, "INVALID_REQUEST", {"/provider", "/node"}),
    ("CREATE_SET", {}, "INVALID_REQUEST", {"/origin"}),
    ("CREATE_SET", {"origin": 0}, "INVALID_REQUEST", {"/origin"}),
    ("DROP_NODE", {}, "INVALID_REQUEST", {"/node"}),
    ("DROP_NODE", {"node": 1}, "INVALID_REQUEST", {"/event_node"}),
    ("DROP_NODE", {"node": 3, "event_node": 3}, "INVALID_REQUEST", {"/event_node"}),
    ("SUBMIT_TO_OTHER_NODE", {"event_node": 2}, "INVALID_REQUEST", {"/previous_event_node"}),
    (
        "SUBMIT_TO_OTHER_NODE",
        {"event_node": 2, "previous_event_node": 2},
        "INVALID_REQUEST",
        {"/previous_event_node"},
    ),
    ("MOVE_SET", {}, "INVALID_REQUEST", {"/origin"}),
    ("SWITCH_LOG", {}, "INVALID_REQUEST", {"/command"}),
    ("CREATE_SET", {"origin": 1, "as_program": "yes"}, "INVALID_REQUEST", {"/as_program"}),
]


def test_bad_questions_are_refused(http: httpx.Client, catalogs: Catalogs) -> None:
    node = recorded_nodes(http, catalogs, [1])[1]
    for command, fields, code, named in BAD:
        assert pointers(problem(ask(node, command, **fields), 422, code)) == named, (command, fields)


def test_other_kinds_databases_and_scopes_are_refused(
    http: httpx.Client,
    shop: Shop,
    catalogs: Catalogs,
    make_token: Callable[..., str],
    service: ServiceProcess,
) -> None:
    problem(ask(NodeStore(http, shop.id), "CREATE_SET", origin=1), 409, "STORE_KIND_WRONG")
    stranger = register(http, url=catalogs.load("fxa", 1).url, cluster=new_name())
    problem(ask(stranger, "CREATE_SET", origin=1), 409, "UNKNOWN_CLUSTER")
    away = register(http, url="postgresql+psycopg://nobody@127.0.0.1:1/nowhere", cluster="lab")
    problem(ask(away, "CREATE_SET", origin=1), 503, "TARGET_UNREACHABLE")
    with service.http(make_token("jobs:read")) as other:
        problem(ask(NodeStore(other, stranger.id), "CREATE_SET", origin=1), 403, "SCOPE_MISSING")
