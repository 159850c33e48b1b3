"""Waiting for events over HTTP: calls and jobs, what is told meanwhile, kills, and what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.events import listed, stream
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, wait_for
from tests.http.slony_nodes import NodeStore, new_name, recorded_nodes, register
from tests.spark.events.catalogs import Catalogs, Templates

pytestmark = pytest.mark.postgresql
BASE = 5_000_000_000
Nodes = dict[int, NodeStore]


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough for what is asked of the target."""
    return sqlite_service


@pytest.fixture
def nodes(http: httpx.Client, catalogs: Catalogs) -> Nodes:
    """All nodes of a cluster while node 3 was down: it has processed 113 of 142 events of node 1."""
    return recorded_nodes(http, catalogs)


@pytest.fixture
def node(http: httpx.Client, catalogs: Catalogs) -> NodeStore:
    """Node 1, the only one that is registered."""
    return recorded_nodes(http, catalogs, [1])[1]


@pytest.fixture(scope="module")
def asked(service: ServiceProcess, slony_templates: Templates) -> Iterator[NodeStore]:
    """The same for questions that are refused: they change nothing."""
    catalogs = Catalogs(slony_templates)
    with service.http() as http:
        yield recorded_nodes(http, catalogs, [1])[1]
    catalogs.drop()


def wait(
    node: NodeStore, *, prefer: str | None = None, key: str | None = None, **fields: Any
) -> httpx.Response:
    headers = ({} if prefer is None else {"Prefer": prefer}) | (
        {} if key is None else {"Idempotency-Key": key}
    )
    body = {"origin": 1, "confirmed": "ALL"} | fields
    return node.http.post(f"{node.url}/events:wait", json=body, headers=headers)


def confirm(node: NodeStore, origin: int, receiver: int, seqno: int) -> None:
    """As a slon does, behind the service's back."""
    node.loaded.execute(
        "insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)"
        f" values ({origin}, {receiver}, {seqno}, now())"
    )


def outstanding(receiver: int, confirmed: int | None, *, seqno: int = BASE + 142) -> dict[str, Any]:
    return {
        "origin": 1,
        "seqno": seqno,
        "receiver": receiver,
        "confirmed_seqno": confirmed,
        "behind": None if confirmed is None else seqno - confirmed,
        "why": "NEVER_CONFIRMED" if confirmed is None else "BEHIND",
    }


def seconds_of(job: dict[str, Any]) -> float:
    """From a job's submission to its end, by the service's clock."""
    moments = [datetime.fromisoformat(job[name]) for name in ("created_at", "finished_at")]
    return (moments[1] - moments[0]).total_seconds()


# -- as a call


def test_call_answers_200_as_soon_as_everything_is_confirmed(node: NodeStore) -> None:
    for receiver in (2, 3):
        confirm(node, 1, receiver, BASE + 142)
    answer = wait(node, prefer="wait=20")
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert (job["kind"], job["state"], job["store"]) == ("EVENT_WAIT", "SUCCEEDED", node.id)
    assert job["params"] == {
        "origin": 1,
        "confirmed": "ALL",
        "wait_on": 1,
        "wait_on_store": node.id,
        "timeout": "PT10M",
        "awaited": [{"origin": 1, "seqno": BASE + 142, "known_by": 1}],
    }
    assert (job["result"]["is_satisfied"], job["result"]["pairs"], job["result"]["outstanding"]) == (
        True,
        2,
        [],
    )
    assert answer.headers["preference-applied"] == "wait=20"
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert answer.headers["etag"] == node.http.get(answer.headers["location"]).headers["etag"]


def test_call_answers_while_a_confirmation_arrives(node: NodeStore) -> None:
    confirm(node, 1, 2, BASE + 142)
    threading.Timer(1.5, confirm, (node, 1, 3, BASE + 142)).start()
    began = time.monotonic()
    answer = wait(node, prefer="wait=30")
    assert (answer.status_code, answer.json()["state"]) == (200, "SUCCEEDED")
    assert 1.4 < time.monotonic() - began < 15


def test_call_that_is_not_satisfied_in_time_is_a_job(node: NodeStore) -> None:
    answer = wait(node, prefer="wait=1", confirmed=3)
    assert (answer.status_code, answer.headers["retry-after"]) == (202, "2")
    job = answer.json()
    assert job["state"] in ("RUNNING", "WAITING")
    assert node.http.post(f"/v1/jobs/{job['id']}:abort").status_code in (200, 202)
    wait_for(node.http, job["id"], "ABORTED")


def test_call_whose_timeout_ends_first_tells_who_is_outstanding(node: NodeStore) -> None:
    confirm(node, 1, 2, BASE + 142)
    answer = wait(node, prefer="wait=30", timeout="PT2S")
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert (job["state"], job["error"]["code"], job["error"]["retryable"]) == ("FAILED", "WAIT_TIMEOUT", True)
    assert job["error"]["detail"] == (
        f"waited PT2S in vain; outstanding: node 3 of (1,{BASE + 142}) only at {BASE + 113}"
    )
    assert job["result"]["outstanding"] == [outstanding(3, BASE + 113)]
    assert 2 <= seconds_of(job) < 12


def test_wait_of_one_second_with_prefer_zero_is_a_job(node: NodeStore) -> None:
    answer = wait(node, prefer="wait=0", timeout="PT0S", confirmed=3)
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["id"]
    node.http.post(f"/v1/jobs/{job_id}:abort")
    wait_for(node.http, job_id, "ABORTED")


def test_call_on_postgresql_metadata(postgresql_service: ServiceProcess, catalogs: Catalogs) -> None:
    with postgresql_service.http() as http:
        node = recorded_nodes(http, catalogs, [1])[1]
        confirm(node, 1, 2, BASE + 142)
        missed = wait(node, prefer="wait=30", timeout="PT1S").json()
        assert (missed["state"], missed["result"]["outstanding"]) == ("FAILED", [outstanding(3, BASE + 113)])
        confirm(node, 1, 3, BASE + 142)
        assert wait(node, prefer="wait=30").json()["state"] == "SUCCEEDED"


# -- as a job


def test_receiver_without_any_row_is_outstanding_where_slonik_was_satisfied(node: NodeStore) -> None:
    confirm(node, 1, 2, BASE + 142)
    node.loaded.execute("delete from sl_confirm where con_received = 3")
    job = wait(node, prefer="wait=30", timeout="PT1S").json()
    assert (job["state"], job["result"]["outstanding"]) == ("FAILED", [outstanding(3, None)])


def test_stream_tells_who_is_outstanding_every_ten_seconds(node: NodeStore) -> None:
    job_id = wait(node, timeout="PT30S").json()["id"]
    threading.Timer(4, confirm, (node, 1, 2, BASE + 142)).start()
    threading.Timer(12, confirm, (node, 1, 3, BASE + 143)).start()
    seen = list(stream(node.http, job_id))
    told = [event.data for event in seen if event.kind == "outstanding"]
    assert [each["data"]["outstanding"] for each in told] == [
        [outstanding(2, BASE + 141), outstanding(3, BASE + 113)],
        [outstanding(3, BASE + 113)],
    ]
    first, second = (datetime.fromisoformat(each["at"]) for each in told)
    assert 9.5 < (second - first).total_seconds() < 14
    assert seen[-1].data["data"]["state"] == "SUCCEEDED"
    assert [event.id for event in seen] == [event["seq"] for event in listed(node.http, job_id)]


def test_abort_of_a_resting_wait_answers_at_once(node: NodeStore) -> None:
    job_id = wait(node, timeout="PT0S").json()["id"]
    job = wait_for(node.http, job_id, "WAITING")
    assert [item["kind"] for item in job["waiting_on"]] == ["CONFIRMATION", "CONFIRMATION"]
    assert [item["ref"] for item in job["waiting_on"]] == [f"node {n} of (1,{BASE + 142})" for n in (2, 3)]
    answer = node.http.post(f"/v1/jobs/{job_id}:abort")
    assert answer.status_code in (200, 202)
    assert wait_for(node.http, job_id, "ABORTED", timeout_s=5)["result"] is None


def test_many_resting_waits_hold_no_session_at_the_target(node: NodeStore, service: ServiceProcess) -> None:
    before = service.thread_count()
    jobs = [wait(node, timeout="PT1H", confirmed=3).json()["id"] for _ in range(12)]
    for job_id in jobs:
        wait_for(node.http, job_id, "WAITING")
    sessions = [
        node.loaded.query("select count(*) from pg_stat_activity where application_name like '%job_%'")[0][0]
        for _ in range(10)
    ]
    assert max(sessions) <= 2  # the looks of the two interactive places
    assert service.thread_count() <= before + 12
    for job_id in jobs:
        node.http.post(f"/v1/jobs/{job_id}:abort")
    for job_id in jobs:
        wait_for(node.http, job_id, "ABORTED")


def test_newest_event_is_asked_of_its_own_origin(nodes: Nodes) -> None:
    nodes[2].loaded.execute(
        "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)"
        f" values (2, {BASE + 500}, now(), '10:10:', 'SYNC')"
    )
    job = wait(nodes[1], prefer="wait=20", origin=2, confirmed=1, timeout="PT1S").json()
    assert job["result"]["awaited"] == [{"origin": 2, "seqno": BASE + 500, "known_by": 2}]
    assert (job["state"], job["result"]["outstanding"][0]["seqno"]) == ("FAILED", BASE + 500)


def test_wait_on_another_node_looks_at_its_confirmations(nodes: Nodes) -> None:
    confirm(nodes[2], 1, 3, BASE + 142)
    here = wait(nodes[1], prefer="wait=20", confirmed=3, timeout="PT1S").json()
    there = wait(nodes[1], prefer="wait=20", confirmed=3, wait_on=2, timeout="PT1S").json()
    assert [(job["store"], job["state"]) for job in (here, there)] == [
        (nodes[1].id, "FAILED"),
        (nodes[1].id, "SUCCEEDED"),
    ]
    assert there["params"]["wait_on_store"] == nodes[2].id


def test_repeated_key_is_the_same_wait(node: NodeStore) -> None:
    key = new_name("key")
    first = wait(node, key=key, timeout="PT2S")
    again = wait(node, key=key, timeout="PT2S", prefer="wait=30")
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["error"]["code"] == "WAIT_TIMEOUT"
    assert again.headers["idempotency-replayed"] == "true"
    problem(wait(node, key=key, timeout="PT3S"), 422, "IDEMPOTENCY_KEY_REUSED")


def test_retried_wait_needs_the_scope_of_a_wait(
    node: NodeStore, make_token: Callable[..., str], service: ServiceProcess
) -> None:
    job = wait(node, prefer="wait=20", timeout="PT1S").json()
    for receiver in (2, 3):
        confirm(node, 1, receiver, BASE + 142)
    with service.http(make_token("jobs:read", "jobs:control")) as controller:
        problem(controller.post(f"/v1/jobs/{job['id']}:retry"), 403, "SCOPE_MISSING")
    with service.http(make_token("jobs:read", "jobs:control", "events:wait")) as reader:
        answer = reader.post(f"/v1/jobs/{job['id']}:retry")
        assert answer.status_code == 202, answer.text
        assert wait_for(reader, answer.json()["id"])["state"] == "SUCCEEDED"


# -- what is refused


@pytest.mark.parametrize(
    ("fields", "status", "code", "named"),
    [
        ({"origin": 9}, 422, "UNKNOWN_NODE", {"/origin"}),
        ({"confirmed": 9}, 422, "UNKNOWN_NODE", {"/confirmed"}),
        ({"wait_on": 9}, 422, "UNKNOWN_NODE", {"/wait_on"}),
        ({"wait_on": 2}, 409, "NODE_NOT_REGISTERED", {"/wait_on"}),
        ({"confirmed": 1}, 422, "RECEIVER_IS_ORIGIN", {"/confirmed"}),
        ({"origin": "ALL", "seqno": 7}, 422, "INVALID_REQUEST", {"/seqno"}),
        ({"seqno": BASE + 143}, 422, "SEQNO_OF_THE_FUTURE", {"/seqno"}),
        ({"origin": "all"}, 422, "INVALID_REQUEST", {"/origin"}),
        ({"origin": "1"}, 422, "INVALID_REQUEST", {"/origin"}),
        ({"origin": True}, 422, "INVALID_REQUEST", {"/origin"}),
        ({"confirmed": 0}, 422, "INVALID_REQUEST", {"/confirmed"}),
        ({"confirmed": 2.0}, 422, "INVALID_REQUEST", {"/confirmed"}),
        ({"timeout": 60}, 422, "INVALID_REQUEST", {"/timeout"}),
        ({"timeout": "PT0.0000001S"}, 422, "INVALID_REQUEST", {"/timeout"}),
        ({"timeout": "-PT1S"}, 422, "INVALID_REQUEST", {"/timeout"}),
        ({"timeout": "P9999D"}, 422, "INVALID_REQUEST", {"/timeout"}),
        ({"nobody": 1}, 422, "INVALID_REQUEST", {"/nobody"}),
    ],
)
def test_bad_wait_is_refused_and_makes_no_job(
    asked: NodeStore, fields: dict[str, Any], status: int, code: str, named: set[str]
) -> None:
    body = problem(wait(asked, **fields), status, code)
    assert pointers(body) == named
    assert len(body["errors"]) == 1
    assert asked.http.get("/v1/jobs", params={"store": asked.id}).json()["items"] == []


def test_timeout_of_zero_is_no_call(node: NodeStore) -> None:
    body = problem(wait(node, timeout="PT0S", prefer="wait=5"), 422, "TIMEOUT_ZERO_NEEDS_A_JOB")
    assert pointers(body) == {"/timeout"}
    assert node.http.get("/v1/jobs", params={"store": node.id}).json()["items"] == []


def test_wait_needs_the_scope_and_the_store(
    nodes: Nodes, make_token: Callable[..., str], service: ServiceProcess
) -> None:
    with service.http(make_token("stores:read", "jobs:read", "events:write")) as other:
        problem(wait(NodeStore(other, nodes[1].id)), 403, "SCOPE_MISSING")
    with service.http(make_token("events:wait", stores=[nodes[1].id])) as narrow:
        problem(wait(NodeStore(narrow, nodes[2].id)), 403, "STORE_FORBIDDEN")
        problem(wait(NodeStore(narrow, nodes[1].id), wait_on=2), 403, "STORE_FORBIDDEN")


def test_other_kinds_and_databases_have_no_events(http: httpx.Client, shop: Shop, catalogs: Catalogs) -> None:
    problem(wait(NodeStore(http, shop.id)), 409, "STORE_KIND_WRONG")
    loaded = catalogs.load("fxa", 1)
    stranger = register(http, url=loaded.url, cluster=new_name())
    assert "'lab'" in problem(wait(stranger), 409, "UNKNOWN_CLUSTER")["detail"]
    away = register(http, url="postgresql+psycopg://nobody@127.0.0.1:1/nowhere", cluster="lab")
    problem(wait(away), 503, "TARGET_UNREACHABLE")


# -- kills


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[ServiceProcess]:
    service = ServiceProcess(tmp_path / "own").start()
    yield service
    service.kill9()


def test_killed_service_goes_on_to_the_same_deadlines(
    own_service: ServiceProcess, catalogs: Catalogs
) -> None:
    length = timedelta(seconds=10)  # a loaded machine sees both wait, and starts a service, in less
    with own_service.http() as http:
        missed, kept = recorded_nodes(http, catalogs, [1])[1], recorded_nodes(http, catalogs, [1])[1]
        submitted = {node.id: wait(node, timeout="PT10S").json() for node in (missed, kept)}
        for job in submitted.values():
            wait_for(http, job["id"], "WAITING")
        own_service.kill9()
        for receiver in (2, 3):
            confirm(kept, 1, receiver, BASE + 142)
        own_service.start()
        ended = {node.id: wait_for(http, submitted[node.id]["id"]) for node in (missed, kept)}
    assert ended[kept.id]["state"] == "SUCCEEDED"
    job = ended[missed.id]
    assert (job["state"], job["error"]["code"]) == ("FAILED", "WAIT_TIMEOUT")
    assert job["result"]["outstanding"] == [outstanding(2, BASE + 141), outstanding(3, BASE + 113)]
    created = datetime.fromisoformat(submitted[missed.id]["created_at"])
    assert datetime.fromisoformat(job["result"]["deadline"]) == created + length
    assert seconds_of(job) >= length.total_seconds()
