"""A service whose Spark is Kubernetes: purges in pods that are deleted, refused, or never start.

The pods are processes of this machine, started by their specifications; databases are reached by this
machine's own address, as from another one.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import httpx
import pytest

from spark.pool.options import default_cds_archive
from tests.journeys.crashes import CRASHING, CrashedPurge, build_large
from tests.journeys.ground import add_store, assert_exact, expect, purge_request
from tests.journeys.service import Service, await_job, started, succeeded, until
from tests.journeys.spark_cluster import bare_python, installed_service
from tests.journeys.tcp_proxy import TcpProxy
from tests.oracles.symmetricds import Place, snapshot
from tests.postgresql_server import PostgresqlServer
from tests.spark.kubelet import Kubelet, unschedulable
from tests.spark.kubernetes_api import KubernetesApi, Refusal

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(3_600)]

SECRET = "4f6c3b2a19087f6e5d4c3b2a19087f6e"
PATIENCE_S = 600.0
QUOTA = Refusal(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: few, used: pods=10')


def own_address() -> str:
    """An address of this machine that is not loopback; nothing is sent."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    made = KubernetesApi()
    yield made
    made.close()


@pytest.fixture
def kubelet(api: KubernetesApi, tmp_path: Path) -> Iterator[Kubelet]:
    made = Kubelet(tmp_path / "pods", {"lethe-spark": {"secret": SECRET.encode()}}, api)
    try:
        yield made
    finally:
        print(made.report())
        made.close()


@pytest.fixture
def service(tmp_path: Path, api: KubernetesApi, kubelet: Kubelet) -> Iterator[Service]:
    """Its interpreter has the packages and not Lethe: pods can import it from the zip only."""
    python = bare_python(tmp_path / "venv")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "secret").write_text(SECRET)
    settings = {
        **CRASHING,
        "LETHE_ENGINE": "SPARK",
        "LETHE_SPARK__START": "EAGER",
        "LETHE_SPARK__MASTER": api.master,
        "LETHE_SPARK__DRIVER_HOST": own_address(),
        "LETHE_SPARK__DRIVER_MEMORY": "512m",
        "LETHE_SPARK__EXECUTOR_MEMORY": "600m",
        "LETHE_SPARK__EXECUTORS": "2",
        "LETHE_SPARK__IMAGE": "registry.example/spark:4.3",
        "LETHE_SPARK__SECRET_FILE": str(mounted / "secret"),
        "LETHE_SPARK__SECRET_NAME": "lethe-spark",
        "LETHE_SPARK__CDS_ARCHIVE": str(default_cds_archive()),
        "LETHE_SPARK__JAVA_OPTIONS": '["-XX:TieredStopAtLevel=1"]',
        "LETHE_SPARK__START_TIMEOUT_S": "500",
        "LETHE_SPARK__CONF": json.dumps(
            {
                "spark.kubernetes.executor.apiPollingInterval": "1s",
                "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
            }
        ),
        "LETHE_ARCHIVE_ROOT": str(tmp_path / "archive"),
        "LETHE_ALLOWED_HOSTS": f"127.0.0.1,{own_address()}",
        "LETHE_PURGE_WORKERS": "2",
    }
    with started(installed_service(tmp_path / "service", python, settings)) as made:
        yield made


@pytest.fixture
def way(standing_postgresql: PostgresqlServer) -> Iterator[TcpProxy]:
    """To the database, by this machine's own address."""
    with TcpProxy(standing_postgresql.port, host=own_address()) as made:
        yield made


def reached(url: str, way: TcpProxy) -> str:
    """A URL as another machine would name it."""
    return url.replace(f"127.0.0.1:{way.server_port}", f"{own_address()}:{way.port}")


def await_executors(service: Service, count: int) -> None:
    until(
        lambda: service.client.spark_pool.get().raw["executors"] == count, timeout_s=PATIENCE_S, pause_s=0.2
    )


def test_pods_deleted_below_a_purge_leave_rows_ledger_and_archives_exact(
    service: Service,
    api: KubernetesApi,
    kubelet: Kubelet,
    standing_postgresql: PostgresqlServer,
    way: TcpProxy,
    tmp_path: Path,
) -> None:
    await_executors(service, 2)

    def delete_a_pod() -> None:
        names = until(lambda: sorted(kubelet.running), timeout_s=PATIENCE_S)
        api.delete_pod(names[0])

    place = Place(reached(standing_postgresql.create_database("kubernetes_killed"), way))
    build_large(place, 71, rows=2_000)
    purge = CrashedPurge(service.client, "kubernetes", place, tmp_path, Random(71))
    purge.run({"pod": delete_a_pod}, kills=2)
    assert service.client.jobs.get(purge.job_id).raw["engine"] == "SPARK"
    assert purge.kills["pod"] >= 1
    assert len(api.pods_asked) >= 3
    assert SECRET not in json.dumps([api.pods_asked, api.configmaps_asked])


def test_job_names_why_no_pod_comes_and_runs_when_one_does(
    service: Service,
    api: KubernetesApi,
    kubelet: Kubelet,
    standing_postgresql: PostgresqlServer,
    way: TcpProxy,
) -> None:
    """Refused by a quota, taken and never started, and then started after all."""
    await_executors(service, 2)
    api.refusal, kubelet.is_on = QUOTA, False
    for name in sorted(kubelet.running):
        api.delete_pod(name)
    await_executors(service, 0)
    place, client = (
        Place(reached(standing_postgresql.create_database("kubernetes_refused"), way)),
        service.client,
    )
    build_large(place, 72, rows=400)
    add_store(client, "refused", place)
    expected = expect(place, snapshot(place))
    job = client.purges.create("refused", purge_request(place, max_rows_in_tx=100)).id
    _await_cause(service, job, "NO_EXECUTORS: the API server refuses", "exceeded quota: few")
    api.refusal = None
    until(lambda: len(api.pods()) == 2, timeout_s=PATIENCE_S)
    for pod in api.pods():
        api.set_pod_status(pod["metadata"]["name"], unschedulable("0/3 nodes are available"))
    _await_cause(service, job, "NO_EXECUTORS: a pod is Pending: Unschedulable: 0/3 nodes are available")
    kubelet.switch_on()
    assert_exact(place, expected, succeeded(client, job, timeout_s=PATIENCE_S))
    assert client.spark_pool.get().raw["rebuilds"] == 0

    # And one that nobody ever helps is stopped at once.
    api.refusal, kubelet.is_on = QUOTA, False
    for name in sorted(kubelet.running):
        api.delete_pod(name)
    build_large(
        other := Place(reached(standing_postgresql.create_database("kubernetes_left"), way)), 73, rows=400
    )
    add_store(client, "left", other)
    job = client.purges.create("left", purge_request(other, max_rows_in_tx=100)).id
    _await_cause(service, job, "NO_EXECUTORS: the API server refuses")
    client.jobs.abort(job)
    assert await_job(client, job).state == "ABORTED"


def _await_cause(service: Service, job: str, *parts: str) -> None:
    """The job says why, with no end of its wait, and the service is ready meanwhile."""

    def is_said() -> bool:
        waits = [
            wait for wait in service.client.jobs.get(job).raw["waiting_on"] if wait["kind"] == "SPARK_POOL"
        ]
        assert httpx.get(f"{service.url}/readyz").status_code == 200
        return bool(waits) and all(part in waits[0]["ref"] for part in parts) and waits[0]["until"] is None

    until(is_said, timeout_s=PATIENCE_S, pause_s=0.2)
