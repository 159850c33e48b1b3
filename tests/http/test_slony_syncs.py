"""SYNCs where one is due, over HTTP: once, again, by a schedule, of many nodes, and through kill -9."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from spark.targets.fence import raise_fence
from spark.targets.ledger import LedgerRow, ensure_ledger, record_unit
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.slony_nodes import NodeStore, new_name, recorded_nodes, register
from tests.http.test_slony_killed import mortal  # noqa: F401
from tests.journeys.service import until
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.test_syncing import CREATE_EVENT

OWN = "select ev_seqno from sl_event where ev_origin = 1 and ev_type = 'SYNC' order by 1"


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: a SYNC is made at the target."""
    return sqlite_service


def can_sync(node: NodeStore) -> NodeStore:
    node.loaded.execute(CREATE_EVENT)
    return node


@pytest.fixture
def node(http: httpx.Client, catalogs: Catalogs) -> NodeStore:
    """Node 1 as it was recorded: its newest SYNC is days old."""
    return can_sync(recorded_nodes(http, catalogs, [1])[1])


def own_syncs(loaded: LoadedCatalog) -> list[int]:
    return [int(seqno) for (seqno,) in loaded.query(OWN)]


def sync(node: NodeStore, **fields: Any) -> httpx.Response:
    return node.http.post(f"{node.url}/event-syncs", json=fields)


def synced(node: NodeStore, **fields: Any) -> dict[str, Any]:
    job = wait_for(node.http, accepted(sync(node, **fields)))
    assert job["state"] == "SUCCEEDED", job
    result: dict[str, Any] = job["result"]
    return result


def test_an_old_node_gets_one_and_a_second_request_writes_nothing(
    node: NodeStore, http: httpx.Client
) -> None:
    *_, last = own_syncs(node.loaded)
    made = synced(node, reason="its slon is down")
    assert (made["outcome"], made["origin"], made["last_seqno"], made["interval"]) == (
        "MADE",
        1,
        last,
        "PT10M",
    )
    assert made["has_own_slon"] is False
    assert own_syncs(node.loaded)[-2:] == [last, made["seqno"]]
    rows = node.loaded.rows()
    again = synced(node, interval="PT1M")
    assert (again["outcome"], again["seqno"], again["last_seqno"]) == ("NOT_DUE", None, made["seqno"])
    assert node.loaded.rows() == rows
    assert again["last_age"].startswith("PT")
    listed = node.get("event-syncs").json()["items"]
    assert [(job["kind"], job["result"]["outcome"]) for job in listed] == [
        ("EVENT_SYNC", "NOT_DUE"),
        ("EVENT_SYNC", "MADE"),
    ]
    audit = http.get("/v1/audit-events", params={"action": "event-sync.create", "store": node.id}).json()
    assert [row["detail"]["interval"] for row in audit["items"]] == ["PT1M", "PT10M"]


def test_two_at_once_make_one(node: NodeStore, http: httpx.Client) -> None:
    """A slon is making its own just now: both wait for it, and find none due."""
    before = own_syncs(node.loaded)
    with node.loaded.raw(autocommit=False) as slon:
        slon.execute("lock table sl_event_lock")
        jobs = [accepted(sync(node)) for _ in range(2)]
        waiting = "select count(*) > 0 from pg_locks where not granted"
        until(lambda: node.loaded.query(waiting) == [(True,)])
        slon.rollback()
    ended = [wait_for(http, job_id)["result"]["outcome"] for job_id in jobs]
    assert sorted(ended) == ["MADE", "NOT_DUE"]
    assert len(own_syncs(node.loaded)) == len(before) + 1


def test_a_schedule_of_it_is_written_and_one_of_many_nodes_makes_one_at_each(
    http: httpx.Client, catalogs: Catalogs, shop: Shop
) -> None:
    nodes = [can_sync(node) for node in recorded_nodes(http, catalogs, [1, 2]).values()]
    every = {"verb": "EVENT_SYNC", "cron": "*/5 * * * *", "body": {"interval": "PT5M"}}
    made = http.post("/v1/schedules", json=every | {"store": nodes[0].id})
    assert made.status_code == 201, made.text
    wrong = http.post("/v1/schedules", json=every | {"store": nodes[0].id, "body": {"interval": "PT0S"}})
    assert pointers(problem(wrong, 422, "INVALID_REQUEST")) == {"/body/interval"}
    problem(http.post("/v1/schedules", json=every | {"store": shop.id}), 409, "STORE_KIND_WRONG")
    body = {"kind": "EVENT_SYNC", "stores": [node.id for node in nodes], "params": {"interval": "PT1M"}}
    parent = accepted(http.post("/v1/jobs:batch", json=body))
    assert wait_for(http, parent)["state"] == "SUCCEEDED"
    children = http.get("/v1/jobs", params={"parent": parent}).json()["items"]
    assert sorted((each["result"]["outcome"], each["result"]["origin"]) for each in children) == [
        ("MADE", 1),
        ("MADE", 2),
    ]


def test_what_cannot_be_is_refused_at_once(
    http: httpx.Client,
    catalogs: Catalogs,
    shop: Shop,
    service: ServiceProcess,
    make_token: Callable[..., str],
) -> None:
    node = recorded_nodes(http, catalogs, [1])[1]
    before = node.loaded.rows()
    problem(sync(node), 409, "FUNCTIONS_MISSING")
    for wrong in ("PT0S", "P2D", 600):
        assert pointers(problem(sync(node, interval=wrong), 422, "INVALID_REQUEST")) == {"/interval"}
    problem(sync(NodeStore(http, shop.id)), 409, "STORE_KIND_WRONG")
    with service.http(make_token("stores:read", "jobs:read")) as reader:
        problem(reader.post(f"{node.url}/event-syncs", json={}), 403, "SCOPE_MISSING")
    assert node.loaded.rows() == before


def test_a_copy_of_a_node_gets_none(http: httpx.Client, catalogs: Catalogs) -> None:
    """The paths of these catalogs lead to a server that was thrown away: they do not tell which it is."""
    name = new_name()
    nodes = []
    for _ in range(2):
        loaded = catalogs.load("fxa", 1, cluster=name)
        nodes.append(can_sync(NodeStore(http, register(http, url=loaded.url, cluster=name).id, loaded)))
    before = own_syncs(nodes[1].loaded)
    problem(sync(nodes[1]), 409, "NODE_COPIED")
    assert own_syncs(nodes[1].loaded) == before


def test_a_node_that_remembers_more_than_we_gets_none_until_recovered(
    node: NodeStore, http: httpx.Client
) -> None:
    """Our metadata was restored: the node has a SYNC of a job that is not known any more."""
    ours = http.post(f"{node.url}:recover").json()["epoch_after"]
    lost, cleaned = (f"job_{node.id[-2:].strip('-'):0>2}{number:024d}" for number in (1, 2))
    resource = f"{node.loaded.schema}.sync"
    with node.loaded.connect() as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, resource, token=ours + 100, owner=lost)
        with conn.transaction():
            record_unit(conn, LedgerRow(lost, "sync", "SYNC", 1, 1, 1))
            record_unit(conn, LedgerRow(cleaned, "event-1-1-9", "EVENT", 1, 1, 9))
    before = own_syncs(node.loaded)
    refused = problem(sync(node), 409, "EPOCH_AHEAD")
    assert resource in refused["detail"]
    assert own_syncs(node.loaded) == before
    assert set(http.post(f"{node.url}:recover").json()["foreign_jobs"]) == {lost, cleaned}
    kinds = {job: http.get(f"/v1/jobs/{job}").json()["kind"] for job in (lost, cleaned)}
    assert kinds == {lost: "EVENT_SYNC", cleaned: "EVENT_CLEANUP"}
    assert synced(node)["outcome"] == "MADE"


# -- kill -9


@contextmanager
def held_commit(loaded: LoadedCatalog) -> Iterator[Callable[[], None]]:
    """The COMMIT of a SYNC waits in the server until it is let go of; yields what lets it go."""
    loaded.execute(
        "create function public.wait_for_test() returns trigger language plpgsql as"
        " 'begin perform pg_advisory_xact_lock(42); return null; end'",
        "create constraint trigger wait after insert on sl_event deferrable initially deferred"
        " for each row execute function public.wait_for_test()",
    )
    with loaded.raw() as gate:
        gate.execute("select pg_advisory_lock(42)")
        yield lambda: gate.execute("select pg_advisory_unlock(42)") and None


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "not committed"])
def test_a_service_killed_in_the_commit_has_made_one_at_the_end(
    mortal: ServiceProcess,  # noqa: F811
    catalogs: Catalogs,
    is_committed: bool,
) -> None:
    """The server has done the COMMIT and nobody read its answer; or it ends a COMMIT whose client is gone."""
    with mortal.http() as http:
        node = can_sync(recorded_nodes(http, catalogs, [1])[1])
        before = own_syncs(node.loaded)
        with held_commit(node.loaded) as let_go:
            job_id = accepted(sync(node))
            inside = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            until(lambda: node.loaded.query(inside) == [(1,)])
            if is_committed:
                os.kill(mortal.pid, signal.SIGSTOP)  # it will not read what the server answers
                let_go()
                until(lambda: len(own_syncs(node.loaded)) == len(before) + 1)
                mortal.kill9()
                mortal.start()
            else:
                mortal.kill9()
                until(lambda: node.loaded.query(inside) == [(0,)])  # the server sees that its client is gone
                mortal.start()
                until(lambda: node.loaded.query(inside) == [(1,)], timeout_s=90.0)
                let_go()
    with mortal.http() as http:
        job = wait_for(http, job_id, timeout_s=90.0)
    assert job["state"] == "SUCCEEDED", job
    [new] = sorted(set(own_syncs(node.loaded)) - set(before))
    found = job["result"]
    assert (found["outcome"], found["seqno"], found["last_seqno"]) == ("MADE", new, before[-1])
