"""Requests that wait until a command of slonik may be submitted: when they answer, and what they leave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import httpx
import pytest

from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.slony_nodes import NodeStore, recorded_nodes, register
from tests.spark.events.catalogs import Catalogs

pytestmark = pytest.mark.postgresql
BASE = 5_000_000_000
SEQNO = BASE + 900
PURPOSE = "lethe:precondition"
Nodes = dict[int, NodeStore]


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: nothing of it is kept there."""
    return sqlite_service


@pytest.fixture
def nodes(http: httpx.Client, catalogs: Catalogs) -> Nodes:
    """A cluster at rest: every node has confirmed all configuration events."""
    return recorded_nodes(http, catalogs, state="fxc")


def ask(at: NodeStore, command: str, *, wait_s: int = 0, **fields: Any) -> httpx.Response:
    headers = {"Prefer": f"wait={wait_s}"} if wait_s else {}
    body = {"command": command} | fields
    return at.http.post(f"{at.url}/events:precondition", json=body, headers=headers, timeout=90)


def answered(at: NodeStore, command: str, **fields: Any) -> dict[str, Any]:
    answer = ask(at, command, **fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def make_event(nodes: Nodes, origin: int, seqno: int, kind: str, *data: str, at: int | None = None) -> None:
    names = "".join(f", ev_data{number}" for number, _ in enumerate(data, 1))
    values = "".join(f", '{value}'" for value in data)
    nodes[at or origin].loaded.execute(
        f"insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type{names})"
        f" values ({origin}, {seqno}, now(), '10:10:', '{kind}'{values})"
    )


def confirm(nodes: Nodes, origin: int, receiver: int, seqno: int, *, at: int | None = None) -> None:
    nodes[at or receiver].loaded.execute(
        "insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)"
        f" values ({origin}, {receiver}, {seqno}, now())"
    )


def sessions(node: NodeStore) -> int:
    [(count,)] = node.loaded.query(
        f"select count(*) from pg_stat_activity where application_name like '{PURPOSE}%'"
    )
    return int(count)


# -- when it answers


def test_waiting_request_answers_as_soon_as_the_event_is_confirmed(nodes: Nodes) -> None:
    make_event(nodes, 3, SEQNO, "STORE_PATH")
    threading.Timer(2.0, confirm, (nodes, 3, 2, SEQNO)).start()
    began = time.monotonic()
    answer = ask(nodes[1], "SUBSCRIBE_SET", provider=2, wait_s=50)
    assert (answer.status_code, answer.json()["met"]) == (200, True), answer.text
    assert answer.headers["preference-applied"] == "wait=50"
    assert 1.9 < time.monotonic() - began < 40


def test_waiting_request_that_is_not_met_says_who_holds_it(nodes: Nodes) -> None:
    make_event(nodes, 3, SEQNO, "STORE_PATH")
    found = answered(nodes[1], "SUBSCRIBE_SET", provider=2, wait_s=1)
    [held] = found["held_by"]
    assert (found["met"], held["node"], held["why"]) == (False, 2, "SLON_NOT_RUNNING")
    assert f"STORE_PATH (3,{SEQNO})" in held["detail"]
    assert held["advice"] == "Start the slon of node 2."


def test_what_is_awaited_is_fixed_at_the_first_look(nodes: Nodes) -> None:
    make_event(nodes, 3, SEQNO, "STORE_PATH")
    first = answered(nodes[1], "SUBSCRIBE_SET", provider=2, wait_s=1)
    assert {"what": "CONFIG", "origin": 3, "seqno": SEQNO, "type": "STORE_PATH"} in first["awaited"]
    make_event(nodes, 3, SEQNO + 5, "STORE_PATH")
    confirm(nodes, 3, 2, SEQNO)
    again = answered(nodes[1], "SUBSCRIBE_SET", provider=2, awaited=first["awaited"], wait_s=1)
    assert (again["met"], again["awaited"]) == (True, first["awaited"])
    assert answered(nodes[1], "SUBSCRIBE_SET", provider=2)["met"] is False


def test_event_made_while_one_request_waits_is_not_waited_for(nodes: Nodes) -> None:
    make_event(nodes, 3, SEQNO, "STORE_PATH")

    def move_on() -> None:
        make_event(nodes, 3, SEQNO + 5, "STORE_PATH")
        confirm(nodes, 3, 2, SEQNO)

    threading.Timer(2.0, move_on).start()
    assert answered(nodes[1], "SUBSCRIBE_SET", provider=2, wait_s=40)["met"] is True


# -- the other commands


def test_store_node_waits_for_all_but_the_new_node(nodes: Nodes) -> None:
    assert answered(nodes[1], "STORE_NODE", node=9, event_node=2)["met"] is True
    make_event(nodes, 3, SEQNO, "STORE_PATH")
    found = answered(nodes[1], "STORE_NODE", node=9, event_node=2)
    assert [(each["origin"], each["node"]) for each in found["missing"]] == [(3, 2)]
    assert answered(nodes[1], "STORE_NODE", node=3, event_node=2)["met"] is True


def test_merge_set_waits_for_a_subscription_by_the_word_of_the_origin(nodes: Nodes) -> None:
    fields = {"origin": 1, "set": 1, "add_set": 2}
    assert answered(nodes[1], "MERGE_SET", **fields)["met"] is True
    make_event(nodes, 1, SEQNO, "ENABLE_SUBSCRIPTION", "2", "1", "3", "t")
    confirm(nodes, 1, 3, SEQNO)
    for as_program in (False, True):
        found = answered(nodes[1], "MERGE_SET", as_program=as_program, **fields)
        assert [(e["node"], e["type"], e["seqno"]) for e in found["missing"]] == [
            (3, "ENABLE_SUBSCRIPTION", SEQNO)
        ]
        assert [each["why"] for each in found["held_by"]] == ["NOT_HEARD"]
    confirm(nodes, 1, 3, SEQNO, at=1)
    assert answered(nodes[1], "MERGE_SET", **fields)["met"] is True


def test_move_set_waits_for_the_event_node_before(nodes: Nodes) -> None:
    make_event(nodes, 3, SEQNO, "STORE_PATH")
    assert answered(nodes[1], "MOVE_SET", origin=1, receiver=2)["met"] is True
    found = answered(nodes[1], "MOVE_SET", origin=1, receiver=2, previous_event_node=3)
    assert [(each["origin"], each["node"]) for each in found["missing"]] == [(3, 1)]
    assert [each["what"] for each in found["awaited"]] == ["PREVIOUS"]
    confirm(nodes, 3, 1, SEQNO)
    assert answered(nodes[1], "MOVE_SET", origin=1, previous_event_node=3)["met"] is True


def test_lock_set_waits_for_the_transactions_that_run_and_for_no_younger_one(nodes: Nodes) -> None:
    with closing(nodes[1].loaded.raw(autocommit=False)) as old:
        old.execute("select txid_current()")
        first = answered(nodes[1], "LOCK_SET", origin=1)
        pid = old.info.backend_pid
        held = {each["detail"].partition(" (")[0]: each["why"] for each in first["held_by"]}
        assert (first["met"], held.get(f"pid {pid}")) == (False, "TRANSACTION_RUNS"), first
        with closing(nodes[1].loaded.raw(autocommit=False)) as young:
            young.execute("select txid_current()")
            old.rollback()
            again = answered(nodes[1], "LOCK_SET", origin=1, awaited=first["awaited"], wait_s=30)
            assert again["met"] is True
            assert answered(nodes[1], "LOCK_SET", origin=1)["met"] is False


def test_lock_set_waits_for_the_youngest_of_many_transactions_too(nodes: Nodes) -> None:
    """None has overtaken the last of them; how many are older makes no difference."""
    with ExitStack() as opened:
        running = [opened.enter_context(closing(nodes[1].loaded.raw(autocommit=False))) for _ in range(24)]
        for each in running:
            each.execute("select txid_current()")
        first = answered(nodes[1], "LOCK_SET", origin=1)
        for each in running[:-1]:
            each.rollback()
        pid = running[-1].info.backend_pid
        again = answered(nodes[1], "LOCK_SET", origin=1, awaited=first["awaited"])
        assert f"pid {pid}" in {each["detail"].partition(" (")[0] for each in again["held_by"]}


def test_failover_is_refused_where_slonik_would_refuse(nodes: Nodes) -> None:
    nodes[2].loaded.execute(
        "delete from sl_listen",
        "delete from sl_subscribe",
        "delete from sl_path where pa_server = 2 and pa_client = 3",
        "insert into sl_subscribe (sub_set, sub_provider, sub_receiver, sub_forward, sub_active)"
        " select set_id, 1, r, r = 3, true from sl_set, unnest(array[2, 3]) r",
    )
    found = answered(nodes[2], "FAILOVER", node=1, backup_node=2, as_program=True)
    assert found["met"] is False
    assert {each["why"] for each in found["held_by"]} == {"NO_PATH_TO_BACKUP", "NOT_A_FORWARDER"}
    nodes[2].loaded.execute(
        "update sl_subscribe set sub_forward = true",
        "insert into sl_path (pa_server, pa_client, pa_conninfo, pa_connretry) values (2, 3, 'dbname=x', 1)",
    )
    assert answered(nodes[2], "FAILOVER", node=1, backup_node=2, as_program=True)["met"] is True
    silent = answered(nodes[2], "FAILOVER", node=1, backup_node=2)
    assert {(each["node"], each["why"]) for each in silent["held_by"]} == {
        (2, "SLON_NOT_RUNNING"),
        (3, "SLON_NOT_RUNNING"),
    }


# -- who is away, hangs, or leaves


@contextmanager
def silent_server() -> Iterator[int]:
    """A port that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server.getsockname()[1]


def test_node_that_hangs_is_named_and_the_answer_comes_in_time(
    http: httpx.Client, catalogs: Catalogs
) -> None:
    nodes = recorded_nodes(http, catalogs, [1, 2], state="fxc")
    with silent_server() as port:
        url = f"postgresql+psycopg://nobody@127.0.0.1:{port}/nowhere"
        register(http, url=url, cluster=nodes[1].loaded.cluster)
        began = time.monotonic()
        found = answered(nodes[1], "SUBSCRIBE_SET", provider=2, wait_s=2)
        assert time.monotonic() - began < 40
    [held] = found["held_by"]
    assert (found["met"], held["node"], held["why"]) == (False, 3, "UNREACHABLE")
    assert "could not be asked: " in held["detail"]


def test_store_that_a_token_may_not_see_tells_nothing_by_its_silence(
    http: httpx.Client, catalogs: Catalogs, make_token: Callable[..., str], service: ServiceProcess
) -> None:
    nodes = recorded_nodes(http, catalogs, [1, 2], state="fxc")
    url = "postgresql+psycopg://nobody@127.0.0.1:1/nowhere"
    register(http, url=url, cluster=nodes[1].loaded.cluster)
    with service.http(make_token("stores:read", stores=[nodes[1].id, nodes[2].id])) as narrow:
        found = answered(NodeStore(narrow, nodes[1].id), "SUBSCRIBE_SET", provider=2, wait_s=1)
    assert found["not_evaluated"] == [{"node": 3, "why": "NOT_PERMITTED", "detail": None}]
    assert "TARGET" not in str(found)


def test_node_that_dies_while_it_is_waited_for_is_named(nodes: Nodes) -> None:
    make_event(nodes, 3, SEQNO, "STORE_PATH")

    database = nodes[2].loaded.url.rpartition("/")[2]

    def connectable(yes: bool) -> None:
        with closing(nodes[1].loaded.raw()) as raw:
            raw.execute(f"alter database {database} with allow_connections {yes}".encode())

    timer = threading.Timer(1.0, connectable, (False,))
    timer.start()
    dead = answered(nodes[1], "SUBSCRIBE_SET", provider=2, wait_s=5)
    timer.join()
    assert [(each["node"], each["why"]) for each in dead["held_by"]] == [(2, "UNREACHABLE")]
    confirm_again = threading.Timer(0.5, connectable, (True,))
    confirm_again.start()
    back = answered(nodes[1], "SUBSCRIBE_SET", provider=2, awaited=dead["awaited"], wait_s=8)
    confirm_again.join()
    assert [(each["node"], each["why"]) for each in back["held_by"]] == [(2, "SLON_NOT_RUNNING")]


def test_resting_wait_holds_no_session_and_a_client_that_goes_leaves_nothing(
    nodes: Nodes, service: ServiceProcess
) -> None:
    make_event(nodes, 3, SEQNO, "STORE_PATH")
    before = service.thread_count()
    body = {"command": "SUBSCRIBE_SET", "provider": 2}
    for _ in range(5):
        url = f"{nodes[1].url}/events:precondition"
        with service.http() as leaving, pytest.raises(httpx.ReadTimeout):
            leaving.post(url, json=body, headers={"Prefer": "wait=60"}, timeout=1.0)
    deadline = time.monotonic() + 60
    seen = [1]
    while any(seen) and time.monotonic() < deadline:
        seen = [sessions(nodes[2]) for _ in range(10) if time.sleep(0.3) is None]
    assert not any(seen), "somebody still looks at the node"
    assert service.thread_count() <= before + 10
    locks = nodes[2].loaded.query(
        "select count(*) from pg_locks l join pg_class c on c.oid = l.relation where c.relname ~ '^sl_.*lock'"
    )
    assert locks == [(0,)]


# -- what is refused


BAD: list[tuple[str, dict[str, Any], str, set[str]]] = [
    ("SUBSCRIBE_SET", {"provider": 2, "previous_event_node": 1}, "INVALID_REQUEST", {"/event_node"}),
    ("RESUBSCRIBE_NODE", {"provider": 2}, "INVALID_REQUEST", {"/origin"}),
    ("STORE_NODE", {}, "INVALID_REQUEST", {"/node"}),
    ("STORE_NODE", {"node": 1}, "INVALID_REQUEST", {"/event_node"}),
    ("STORE_NODE", {"node": 9, "event_node": 9}, "INVALID_REQUEST", {"/event_node"}),
    ("STORE_NODE", {"node": 9, "event_node": 8}, "UNKNOWN_NODE", {"/event_node"}),
    ("MERGE_SET", {"origin": 1, "set": 2}, "INVALID_REQUEST", {"/add_set"}),
    ("MERGE_SET", {"origin": 1, "set": 2, "add_set": 2}, "INVALID_REQUEST", {"/add_set"}),
    ("MERGE_SET", {"origin": 1, "set": 0, "add_set": 2}, "INVALID_REQUEST", {"/set"}),
    ("MOVE_SET", {"origin": 1, "provider": 2}, "INVALID_REQUEST", {"/provider"}),
    ("LOCK_SET", {"origin": 1, "previous_event_node": 2}, "INVALID_REQUEST", {"/previous_event_node"}),
    ("FAILOVER", {"node": 1}, "INVALID_REQUEST", {"/backup_node"}),
    ("FAILOVER", {"node": 1, "backup_node": 1}, "INVALID_REQUEST", {"/backup_node"}),
    ("FAILOVER", {"node": 1, "backup_node": 9}, "UNKNOWN_NODE", {"/backup_node"}),
    ("CREATE_SET", {"origin": 1, "previous_event_node": 9}, "UNKNOWN_NODE", {"/previous_event_node"}),
    ("CREATE_SET", {"origin": 1, "awaited": [{"what": "X"}]}, "INVALID_REQUEST", set()),
]
AWAITED = {"what": "CONFIG", "origin": 1, "seqno": 5, "type": None}


def test_bad_questions_are_refused(nodes: Nodes) -> None:
    for command, fields, code, named in BAD:
        found = pointers(problem(ask(nodes[1], command, **fields), 422, code))
        assert found == named or (not named and all(each.startswith("/awaited/0") for each in found)), command
    twice = problem(ask(nodes[1], "CREATE_SET", origin=1, awaited=[AWAITED, AWAITED]), 422, "INVALID_REQUEST")
    assert pointers(twice) == {"/awaited/1"}
    headers = {"Prefer": "wait=-1"}
    body = {"command": "CREATE_SET", "origin": 1}
    answer = nodes[1].http.post(f"{nodes[1].url}/events:precondition", json=body, headers=headers)
    assert answer.status_code == 400, answer.text


def test_wait_needs_the_scope_and_the_store(
    nodes: Nodes, make_token: Callable[..., str], service: ServiceProcess
) -> None:
    with service.http(make_token("jobs:read")) as other:
        problem(ask(NodeStore(other, nodes[1].id), "CREATE_SET", origin=1, wait_s=5), 403, "SCOPE_MISSING")
    with service.http(make_token("stores:read", stores=[nodes[1].id])) as narrow:
        answer = ask(NodeStore(narrow, nodes[2].id), "CREATE_SET", origin=1, wait_s=5)
        problem(answer, 403, "STORE_FORBIDDEN")
