"""Confirmations made by hand: only of what the receiver's own catalog holds, and never backwards."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.slony_nodes import NodeStore, new_name, recorded_nodes, register
from tests.spark.events.catalogs import Catalogs

BASE = 5_000_000_000
Nodes = dict[int, NodeStore]


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: confirmations are kept in the target."""
    return sqlite_service


@pytest.fixture
def nodes(http: httpx.Client, catalogs: Catalogs) -> Nodes:
    """All nodes of a cluster while node 3 was down: it has processed 113 of 142 events of node 1."""
    return recorded_nodes(http, catalogs)


@pytest.fixture
def alone(http: httpx.Client, catalogs: Catalogs) -> NodeStore:
    """Node 1, the only one that is registered."""
    return recorded_nodes(http, catalogs, [1])[1]


def confirmed(node: NodeStore) -> list[tuple[Any, ...]]:
    """Rows of sl_confirm, without their times."""
    return node.loaded.query("select con_origin, con_received, con_seqno from sl_confirm order by 1, 2, 3")


def audited(http: httpx.Client, store: str) -> list[dict[str, Any]]:
    rows = http.get("/v1/audit-events?page_size=100").json()["items"]
    return [row for row in rows if row["store"] == store and row["action"] == "event.confirm"]


def test_what_the_receiver_holds_is_confirmed_and_everything_older_with_it(nodes: Nodes) -> None:
    node = nodes[1]
    before = confirmed(node)
    answer = node.confirm(1, 2, BASE + 142)
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "origin": 1,
            "receiver": 2,
            "seqno": BASE + 142,
            "changed": True,
            "confirmed_seqno": BASE + 142,
            "confirmed_before": BASE + 141,
            "is_forced": False,
        },
    )
    assert confirmed(node) == sorted([*before, (1, 2, BASE + 142)])
    assert node.matrix()[1, 2]["state"] == "CURRENT"
    for old in (1, 50, 142):
        shown = node.get(f"events/1/{BASE + old}").json()
        assert 2 in [each["receiver"] for each in shown["confirmed_by"]]


def test_confirmed_again_or_less_far_it_changes_nothing(nodes: Nodes) -> None:
    node = nodes[1]
    assert node.confirm(1, 2, BASE + 142).json()["changed"] is True
    after = confirmed(node)
    for seqno in (BASE + 142, BASE + 7, 1):
        answer = node.confirm(1, 2, seqno)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert (body["changed"], body["confirmed_seqno"]) == (False, BASE + 142)
    assert confirmed(node) == after


def test_many_at_once_leave_the_greatest(nodes: Nodes) -> None:
    node = nodes[2]  # which knows all that node 3 has, and more
    node.loaded.execute("delete from sl_confirm where con_origin = 1 and con_received = 3 and con_seqno > 5")
    seqnos = [BASE + number for number in (113, 40, 112, 90, 113, 60, 111)]
    with ThreadPoolExecutor(len(seqnos)) as threads:
        answers = list(threads.map(lambda seqno: node.confirm(1, 3, seqno), seqnos))
    assert [answer.status_code for answer in answers] == [200] * len(seqnos)
    assert all(answer.json()["confirmed_seqno"] >= answer.json()["seqno"] for answer in answers)
    assert node.matrix()[1, 3]["confirmed_seqno"] == BASE + 113


def test_what_the_receiver_has_not_processed_is_refused(nodes: Nodes) -> None:
    before = {number: node.loaded.rows() for number, node in nodes.items()}
    body = problem(nodes[1].confirm(1, 3, BASE + 114), 409, "NOT_PROCESSED_BY_RECEIVER")
    assert body["processed_seqno"] == BASE + 113
    assert {number: node.loaded.rows() for number, node in nodes.items()} == before
    assert audited(nodes[1].http, nodes[1].id) == []


def test_the_receivers_own_node_is_asked_where_it_is_the_store_itself(nodes: Nodes) -> None:
    node = nodes[3]
    node.loaded.execute("delete from sl_confirm where con_received = 3 and con_seqno > 0")
    assert node.confirm(1, 3, BASE + 113).json()["changed"] is True
    node.loaded.execute("delete from sl_event where ev_origin = 1 and ev_seqno = 5000000113")
    problem(node.confirm(2, 3, BASE + 20), 422, "SEQNO_OF_THE_FUTURE")


def test_an_event_that_the_receiver_has_cleaned_away_counts_as_processed(nodes: Nodes) -> None:
    nodes[2].loaded.execute("delete from sl_event where ev_origin = 1 and ev_seqno < 5000000142")
    nodes[1].loaded.execute("delete from sl_confirm where con_origin = 1 and con_received = 2")
    body = nodes[1].confirm(1, 2, BASE + 20).json()
    assert (body["changed"], body["confirmed_before"]) == (True, None)
    nodes[2].loaded.execute("delete from sl_confirm where con_origin = 1 and con_received = 2")
    refused = problem(nodes[1].confirm(1, 2, BASE + 21), 409, "NOT_PROCESSED_BY_RECEIVER")
    assert refused["processed_seqno"] is None


def test_a_receiver_that_is_not_registered_cannot_be_asked(alone: NodeStore) -> None:
    before = alone.loaded.rows()
    body = problem(alone.confirm(1, 2, BASE + 142), 409, "RECEIVER_NOT_ASKED")
    assert body["why"] == "NOT_REGISTERED"
    assert alone.loaded.rows() == before


def test_a_receiver_that_does_not_answer_cannot_be_asked(http: httpx.Client, alone: NodeStore) -> None:
    register(http, url="postgresql+psycopg://nobody@127.0.0.1:9/none", cluster=alone.loaded.cluster)
    body = problem(alone.confirm(1, 2, BASE + 142), 409, "RECEIVER_NOT_ASKED")
    assert body["why"] == "UNREACHABLE"


def test_a_receiver_that_only_other_runners_reach_is_not_asked(nodes: Nodes) -> None:
    store = nodes[2].http.get(nodes[2].url)
    patched = nodes[2].http.patch(
        nodes[2].url, json={"runs_on": ["elsewhere"]}, headers={"If-Match": store.headers["etag"]}
    )
    assert patched.status_code == 200
    problem(nodes[1].confirm(1, 2, BASE + 142), 409, "RECEIVER_NOT_ASKED")


def test_a_cluster_of_the_same_name_is_not_asked(
    http: httpx.Client, catalogs: Catalogs, alone: NodeStore
) -> None:
    """Another shop's cluster, also called so, whose node 2 holds an event of that number."""
    other = catalogs.load("fxa", 2, cluster=alone.loaded.cluster)
    other.execute("update sl_path set pa_conninfo = 'host=other dbname=shop'")
    register(http, url=other.url, cluster=other.cluster)
    problem(alone.confirm(1, 2, BASE + 142), 409, "RECEIVER_NOT_ASKED")


def test_another_event_of_the_same_number_is_not_taken_for_it(nodes: Nodes) -> None:
    nodes[2].loaded.execute(
        "update sl_event set ev_timestamp = ev_timestamp + interval '1 s' where ev_seqno = 5000000142"
    )
    problem(nodes[1].confirm(1, 2, BASE + 142), 409, "NOT_PROCESSED_BY_RECEIVER")


@pytest.mark.parametrize("force", [False, True])
def test_a_foreign_node_is_unknown(alone: NodeStore, force: bool) -> None:
    before = alone.loaded.rows()
    for origin, receiver, pointer in ((4, 2, "/origin"), (1, 4, "/receiver"), (2_147_483_647, 1, "/origin")):
        answer = alone.confirm(origin, receiver, BASE + 1, force=force, reason="r")
        assert pointers(problem(answer, 422, "UNKNOWN_NODE")) == {pointer}
    assert alone.loaded.rows() == before


@pytest.mark.parametrize("force", [False, True])
def test_an_origin_confirms_nothing_of_its_own(alone: NodeStore, force: bool) -> None:
    answer = alone.confirm(1, 1, BASE + 1, force=force, reason="r")
    assert pointers(problem(answer, 422, "RECEIVER_IS_ORIGIN")) == {"/receiver"}


@pytest.mark.parametrize("force", [False, True])
def test_the_future_is_confirmed_by_nobody(alone: NodeStore, force: bool) -> None:
    before = confirmed(alone)
    answer = alone.confirm(1, 2, BASE + 143, force=force, reason="r")
    assert problem(answer, 422, "SEQNO_OF_THE_FUTURE")["last_seqno"] == BASE + 142
    alone.loaded.execute("delete from sl_event where ev_origin = 3")
    answer = alone.confirm(3, 2, 1, force=force, reason="r")
    assert problem(answer, 422, "SEQNO_OF_THE_FUTURE")["last_seqno"] is None
    assert confirmed(alone) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"origin": "1"},
        {"origin": 0},
        {"receiver": 2_147_483_648},
        {"receiver": None},
        {"seqno": 0},
        {"seqno": 9_223_372_036_854_775_808},
        {"seqno": 1.5},
        {"seqno": True},
        {"force": "yes"},
        {"force": True},
        {"force": True, "reason": ""},
        {"force": True, "reason": "a\0b"},
        {"extra": 1},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(http: httpx.Client, fields: dict[str, Any]) -> None:
    body = {"origin": 1, "receiver": 2, "seqno": BASE + 1} | fields
    problem(http.post("/v1/stores/none/confirmations", json=body), 422, "INVALID_REQUEST")


def test_force_is_an_admins_word_and_is_audited(
    service: ServiceProcess, alone: NodeStore, make_token: Callable[..., str]
) -> None:
    with service.http(make_token("events:write", "stores:read")) as operator:
        body = {"origin": 1, "receiver": 3, "seqno": BASE + 120, "force": True, "reason": "rebuilt by hand"}
        answer = operator.post(f"{alone.url}/confirmations", json=body)
        assert problem(answer, 403, "SCOPE_MISSING")["scope"] == "admin"
    assert audited(alone.http, alone.id) == []
    done = alone.http.post(f"{alone.url}/confirmations", json=body).json()
    assert (done["changed"], done["confirmed_seqno"], done["is_forced"]) == (True, BASE + 120, True)
    assert alone.matrix()[1, 3]["confirmed_seqno"] == BASE + 120
    [row] = audited(alone.http, alone.id)
    assert row["subject_type"] == "confirmation"
    assert row["detail"] == body


def test_a_key_answers_the_same_again(nodes: Nodes) -> None:
    node = nodes[1]
    body = {"origin": 1, "receiver": 2, "seqno": BASE + 142}
    headers = {"Idempotency-Key": new_name("key")}
    first = node.http.post(f"{node.url}/confirmations", json=body, headers=headers)
    again = node.http.post(f"{node.url}/confirmations", json=body, headers=headers)
    assert (again.status_code, again.json()) == (200, first.json())
    assert first.json()["changed"] is True
    assert again.headers["idempotency-replayed"] == "true"
    other = node.http.post(f"{node.url}/confirmations", json=body | {"seqno": BASE + 1}, headers=headers)
    problem(other, 422, "IDEMPOTENCY_KEY_REUSED")
    assert len(audited(node.http, node.id)) == 1


def test_a_role_that_may_not_write_is_refused_by_the_target(http: httpx.Client, nodes: Nodes) -> None:
    loaded = nodes[1].loaded
    role = new_name("reader").replace("-", "_")
    schema = f'"{loaded.schema}"'
    loaded.execute(
        f"create role {role} login",
        f"grant usage on schema {schema} to {role}",
        f"grant select on all tables in schema {schema} to {role}",
        f"grant select on all sequences in schema {schema} to {role}",
    )
    try:
        url = httpx.URL(loaded.url.replace("postgresql+psycopg", "http"))
        place = f"postgresql+psycopg://{role}@{url.host}:{url.port}{url.path}"
        limited = register(http, url=place, cluster=loaded.cluster)
        problem(limited.confirm(1, 2, BASE + 142), 409, "TARGET_READ_ONLY")
        assert limited.matrix()[1, 2]["confirmed_seqno"] == BASE + 141
    finally:
        loaded.execute(f"drop owned by {role}", f"drop role {role}")
