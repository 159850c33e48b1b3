"""`/slony-feeds`: a real node's changes in a replica, by HTTP; and what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from lethe_client import Lethe

from spark.targets.connection import Target
from tests.http.problem import problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.slony_nodes import NodeStore, new_name, register
from tests.replica_feed import cursor_at, entries_at, rows_of
from tests.slony_cluster import SlonyCluster
from tests.slony_feed import content


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the cursor lies in the target."""
    return sqlite_service


@pytest.fixture
def node(http: httpx.Client, slony: SlonyCluster) -> NodeStore:
    """Node 1, the origin."""
    return register(http, url=slony.url(1), cluster=slony.name)


@pytest.fixture
def replica(http: httpx.Client, service: ServiceProcess, roots: Path) -> ConsumerStore:
    """An empty replica."""
    return make_replica(http, rid=4, folder=roots)


def place_of(replica: ConsumerStore) -> Target:
    return Target(f"sqlite:///{replica.path}", table_prefix="replica_")


def ask(replica: ConsumerStore, source: str, **fields: Any) -> httpx.Response:
    return replica.http.post(f"/v1/stores/{replica.id}/slony-feeds", json={"source": source} | fields)


def fed(replica: ConsumerStore, node: NodeStore, **fields: Any) -> dict[str, Any]:
    job = wait_for(replica.http, accepted(ask(replica, node.id, **fields)))
    assert job["state"] == "SUCCEEDED", job
    result: dict[str, Any] = job["result"]
    return result


def failed(replica: ConsumerStore, node: NodeStore, **fields: Any) -> str:
    job = wait_for(replica.http, accepted(ask(replica, node.id, **fields)))
    assert job["state"] == "FAILED", job
    return str(job["error"]["code"])


def test_a_replica_is_filled_followed_and_stopped_by_a_stranger(
    slony: SlonyCluster, node: NodeStore, replica: ConsumerStore, service: ServiceProcess
) -> None:
    slony.catch_up()
    first = fed(replica, node)
    assert (first["copied"], first["syncs"], first["origin"]) == (True, 0, 1)
    with slony.load() as load:
        load.await_committed(20)
    newest = slony.sync(1)
    assert fed(replica, node, syncs_max=1)["syncs"] == 1
    second = fed(replica, node)
    assert second["seqno"] >= newest
    assert (second["copied"], second["seqno"]) == (False, second["newest_seqno"])
    assert second["records"] > 20
    assert rows_of(entries_at(place_of(replica))) == content(slony, 1)
    assert failed(replica, node, prefix="other/") == "FEED_DIFFERS"
    written = {"database": "b3RoZXI=", "key": base64.b64encode(b"k").decode(), "value": "dg=="}
    assert replica.http.post(f"/v1/stores/{replica.id}/changes", json=written).status_code == 200
    slony.sync(1)
    before = entries_at(place_of(replica))
    assert failed(replica, node) == "FEED_NOT_ALONE"
    assert entries_at(place_of(replica)) == before
    with Lethe(str(replica.http.base_url), service.token) as lethe:
        job = lethe.slony_changes.feed(replica.id, node.id, first_copy=True)
        assert wait_for(replica.http, job.id)["result"]["copied"] is True
    entries = entries_at(place_of(replica))
    assert entries.pop(b"k") == b"v"
    assert rows_of(entries) == content(slony, 1)


def test_a_cleaned_position_needs_a_named_copy(
    slony: SlonyCluster, node: NodeStore, replica: ConsumerStore
) -> None:
    slony.catch_up()
    fed(replica, node)
    slony.run(1, "insert into account values (880001, 'c', 1)")
    for _ in range(3):
        slony.catch_up()
        slony.run(1, "select cleanupEvent('0 s'::interval)")
    assert failed(replica, node) == "NEEDS_TOTAL"
    fed(replica, node, first_copy=True)
    assert rows_of(entries_at(place_of(replica))) == content(slony, 1)


def test_bad_questions_change_nothing(
    http: httpx.Client, slony: SlonyCluster, node: NodeStore, replica: ConsumerStore, roots: Path
) -> None:
    problem(ask(replica, "nobody"), 404, "STORE_NOT_FOUND")
    problem(ask(replica, replica.id), 409, "STORE_KIND_WRONG")
    problem(http.post(f"/v1/stores/{node.id}/slony-feeds", json={"source": node.id}), 409, "STORE_KIND_WRONG")
    problem(http.post("/v1/stores/nobody/slony-feeds", json={"source": node.id}), 404, "STORE_NOT_FOUND")
    for fields in ({"sets": [-1]}, {"tables": ["account"]}, {"syncs_max": 0}, {"prefix": "\n"}, {"typo": 1}):
        problem(ask(replica, node.id, **fields), 422, "INVALID_REQUEST")
    assert not [job for job in _jobs(http, replica.id) if job["kind"] == "SLONY_FEED"]
    slony.catch_up()
    assert failed(replica, node, sets=[99]) == "SET_UNKNOWN"
    assert failed(replica, node, tables=["public.accounts"]) == "TABLE_UNKNOWN"
    receiver = register(http, url=slony.url(3), cluster=slony.name)
    assert failed(replica, receiver) == "SET_UNKNOWN"
    assert not entries_at(place_of(replica))
    assert cursor_at(place_of(replica)) is None


def test_who_may_not_see_a_store_is_refused(
    http: httpx.Client, service: ServiceProcess, slony: SlonyCluster, node: NodeStore, replica: ConsumerStore
) -> None:
    """Alone, by a schedule, in a batch, and by trying another one's job again."""
    scopes = ["replication:write", "data:read", "jobs:read", "jobs:control", "schedules:write"]
    cases = {
        "node": ([replica.id], scopes, "STORE_FORBIDDEN"),
        "replica": ([node.id], scopes, "STORE_FORBIDDEN"),
        "reading": ([replica.id, node.id], [scopes[0], *scopes[2:]], "SCOPE_MISSING"),
        "writing": ([replica.id, node.id], scopes[1:], "SCOPE_MISSING"),
    }
    job = accepted(ask(replica, node.id, sets=[99]))
    assert wait_for(http, job)["state"] == "FAILED"
    for stores, given, code in cases.values():
        body = {"name": new_name("t"), "scopes": given, "stores": stores}
        made = http.post("/v1/tokens", json=body)
        assert made.status_code == 201, made.text
        token = {"Authorization": f"Bearer {made.json()['token']}"}
        path = f"/v1/stores/{replica.id}/slony-feeds"
        problem(http.post(path, json={"source": node.id}, headers=token), 403, code)
        problem(http.post(f"/v1/jobs/{job}:retry", json={}, headers=token), 403, code)
        feed = {"verb": "SLONY_FEED", "store": replica.id, "cron": "0 3 * * *", "body": {"source": node.id}}
        assert http.post("/v1/schedules", json=feed, headers=token).status_code in (403, 422)
        batch = {"kind": "SLONY_FEED", "stores": [replica.id], "params": {"source": node.id}}
        answer = http.post("/v1/jobs:batch", json=batch, headers=token)
        if answer.status_code == 202:
            states = wait_for(http, accepted(answer))["result"]["stores"].values()
            assert {each["state"] for each in states} == {"REFUSED"}
        else:
            assert answer.status_code in (403, 422), answer.text
    feeds = [each for each in _jobs(http, replica.id) if each["kind"] == "SLONY_FEED"]
    assert [each["id"] for each in feeds] == [job]


@pytest.mark.parametrize("which", ["node", "replica"])
def test_a_store_that_rests_is_waited_for(
    http: httpx.Client, slony: SlonyCluster, node: NodeStore, replica: ConsumerStore, which: str
) -> None:
    resting = node.id if which == "node" else replica.id
    assert http.post(f"/v1/stores/{resting}:suspend", json={"reason": "a test"}).status_code == 200
    job = accepted(ask(replica, node.id))
    waiting = wait_for(http, job, "WAITING")
    assert [(each["kind"], each["ref"]) for each in waiting["waiting_on"]] == [("STORE_SUSPENDED", resting)]
    problem(ask(replica, node.id), 409, "CONFLICTING_JOB")
    assert replica.path is not None
    assert not replica.path.exists()
    assert http.post(f"/v1/stores/{resting}:resume", json={"reason": "over"}).status_code == 200
    assert wait_for(http, job)["state"] == "SUCCEEDED"


def test_a_schedule_and_a_batch_feed_replicas(
    http: httpx.Client, slony: SlonyCluster, node: NodeStore, replica: ConsumerStore, roots: Path
) -> None:
    slony.catch_up()
    feed = {"verb": "SLONY_FEED", "store": replica.id, "cron": "0 3 * * *", "body": {"source": node.id}}
    made = http.post("/v1/schedules", json=feed)
    assert made.status_code == 201, made.text
    other = make_replica(http, rid=5, folder=roots)
    batch = {"kind": "SLONY_FEED", "stores": [replica.id, other.id], "params": {"source": node.id}}
    ended = wait_for(http, accepted(http.post("/v1/jobs:batch", json=batch)))
    assert ended["state"] == "SUCCEEDED", ended
    assert rows_of(entries_at(place_of(other))) == content(slony, 1)


def _jobs(http: httpx.Client, store: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get("/v1/jobs", params={"store": store, "page_size": 100}).json()[
        "items"
    ]
    return found


def test_a_key_is_found_by_its_documented_name(
    http: httpx.Client, slony: SlonyCluster, node: NodeStore, replica: ConsumerStore
) -> None:
    slony.run(1, "insert into account values (990001, 'who', 12.50) on conflict do nothing")
    slony.catch_up()
    fed(replica, node)
    found = {key.decode(): value for key, value in entries_at(place_of(replica)).items()}
    assert json.loads(found["public.account/990001"]) == {"id": "990001", "owner": "who", "balance": "12.50"}
