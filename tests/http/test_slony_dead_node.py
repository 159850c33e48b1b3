"""One dead node stopped its cluster.

A cleanup whose node died kept the claims of the whole cluster while it waited: the cleanups of the other
nodes were 409, or stood in the queue behind it, for the fourteen minutes until it failed. Aborted it was
ABORTING for ever: each attempt to prove it silent asked a node that was not there, nothing could end it, and
its store could not be removed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.slony_cleaning import clean, slow_cleanup
from tests.http.slony_nodes import NodeStore, new_name, register
from tests.journeys.tcp_proxy import CuttableProxy
from tests.spark.events.catalogs import Catalogs, LoadedCatalog

START_MAX_S = 10.0
PATIENCE_S = 60.0
DEATHS = [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, 50))]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One kind of metadata is enough: what is claimed is one row there. It looks again at once."""
    settings = {"LETHE_JOB_RETRY_BACKOFF_MAX_S": "1", "LETHE_TARGET_CONNECT_TIMEOUT_S": "1"}
    found = ServiceProcess(tmp_path_factory.mktemp("dead-node"), settings=settings).start()
    yield found
    assert found.stop() == 0


@dataclass
class MortalCluster:
    """Three nodes of one cluster, the third behind a proxy that can be cut."""

    nodes: dict[int, NodeStore]
    proxy: CuttableProxy
    dead: LoadedCatalog

    def die(self, job_id: str) -> None:
        """Cut the third node off, and wait until its job has noticed."""
        self.proxy.cut()
        wait_for(self.nodes[3].http, job_id, "WAITING", timeout_s=PATIENCE_S)


@pytest.fixture
def cluster(http: httpx.Client, catalogs: Catalogs) -> Iterator[MortalCluster]:
    """All know each other: each catalog has the paths of the same cluster."""
    name = new_name()
    loaded = {node: catalogs.load("fxa", node, cluster=name) for node in (1, 2, 3)}
    server = httpx.URL(loaded[3].url)
    with CuttableProxy(server.port or 5432) as proxy:
        urls = {node: found.url for node, found in loaded.items()}
        urls[3] = str(server.copy_with(port=proxy.port))
        nodes = {
            node: NodeStore(http, register(http, url=urls[node], cluster=name).id, loaded[node])
            for node in loaded
        }
        yield MortalCluster(nodes, proxy, loaded[3])


def _in_mid_job(node: NodeStore) -> str:
    job_id = slow_cleanup(node, rows_per_s=20)
    deadline = time.monotonic() + PATIENCE_S
    while ((job := node.http.get(f"/v1/jobs/{job_id}").json())["progress"] or {}).get("done", 0) < 10:
        assert time.monotonic() < deadline, job
        time.sleep(0.02)
    return job_id


@pytest.mark.parametrize("death", DEATHS)
def test_cleanups_of_the_other_nodes_start_at_once_after_a_death_in_mid_job(
    cluster: MortalCluster, http: httpx.Client, death: int
) -> None:
    waiting = _in_mid_job(cluster.nodes[3])
    time.sleep(random.Random(death).uniform(0, 1.5))
    cluster.die(waiting)
    for node in (1, 2):
        job = wait_for(http, accepted(clean(cluster.nodes[node])))
        assert job["state"] == "SUCCEEDED", job
        asked, began = (datetime.fromisoformat(job[name]) for name in ("created_at", "started_at"))
        assert (began - asked).total_seconds() < START_MAX_S
    assert http.get(f"/v1/jobs/{waiting}").json()["state"] in ("WAITING", "RUNNING")
    assert http.post(f"/v1/jobs/{waiting}:abort").status_code == 202
    _abandoned(http, waiting)


def _abandoned(http: httpx.Client, job_id: str) -> dict[str, object]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = http.post(f"/v1/jobs/{job_id}:abandon", json={"reason": "node 3 burnt down"})
        if answer.status_code == 200:
            found: dict[str, object] = answer.json()
            return found
        assert answer.json()["code"] == "TARGET_NOT_GONE", answer.text
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)


def test_job_of_a_dead_node_ends_by_an_admins_word_and_its_store_goes(
    cluster: MortalCluster, http: httpx.Client
) -> None:
    node = cluster.nodes[3]
    job_id = _in_mid_job(node)
    problem(http.post(f"/v1/jobs/{job_id}:abandon", json={"reason": "no"}), 409, "ILLEGAL_TRANSITION")
    cluster.die(job_id)
    http.post(f"/v1/jobs/{job_id}:abort")
    ended = _abandoned(http, job_id)
    for told in (ended, http.get(f"/v1/jobs/{job_id}").json()):
        assert (told["state"], told["silence_proved"]) == ("ABANDONED", False)
        assert (told["reason"], told["fenced_off_at"]) == ("node 3 burnt down", None)
        assert told["finished_at"] is not None
    last = http.get(f"/v1/jobs/{job_id}/events", params={"page_size": 500}).json()["items"][-1]
    assert last["data"] | {"actor": None} == {
        "state": "ABANDONED",
        "reason": "node 3 burnt down",
        "actor": None,
        "silence_proved": False,
    }
    [audit] = http.get("/v1/audit-events", params={"action": "job.abandon", "subject_id": job_id}).json()[
        "items"
    ]
    assert audit["detail"] == {"reason": "node 3 burnt down", "silence_proved": False}
    etag = http.get(node.url).headers["etag"]
    assert http.delete(node.url, headers={"If-Match": etag}).status_code == 204
    # The node comes back under another address: whoever writes there first shuts the old job out.
    assert node.catalog is not None
    back = register(http, url=cluster.dead.url, cluster=cluster.dead.cluster)
    job = wait_for(http, accepted(clean(back)))
    assert job["state"] == "SUCCEEDED", job
    told = http.get(f"/v1/jobs/{job_id}").json()
    assert (told["state"], told["silence_proved"]) == ("ABANDONED", False)
    assert told["fenced_off_at"] is not None


def test_job_waits_without_its_claims_and_goes_on_when_its_node_is_back(
    cluster: MortalCluster, http: httpx.Client
) -> None:
    node = cluster.nodes[3]
    job_id = _in_mid_job(node)
    cluster.die(job_id)
    # By the address at which the node still answers, somebody else cleans it meanwhile.
    other = register(http, url=cluster.dead.url, cluster=cluster.dead.cluster)
    taken = wait_for(http, accepted(clean(other)))
    assert taken["state"] == "SUCCEEDED", taken
    cluster.proxy.mend()
    job = wait_for(http, job_id, timeout_s=PATIENCE_S)
    assert job["state"] == "SUCCEEDED", job
    assert job["silence_proved"] is True
