"""Spark on Kubernetes, before an API server of the test: what pods are asked for, and jobs that run in them.

The pods run as processes of this machine, by their specifications alone. No image was built, pulled or run,
and no cluster's own network, quota or admission stood in between.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.jobs.engines.spark_service import _options
from app.settings import Settings, SparkSettings
from spark.exchange.dispatch import Exchange
from spark.exchange.lease import LeaseTerms
from spark.pool.cluster.kubernetes import check_kubernetes
from spark.pool.cluster.secret_file import write_secret
from spark.pool.errors import SparkStartFailed
from spark.pool.options import SparkOptions, default_cds_archive, spark_conf
from spark.pool.pool import PoolLimits, SparkPool
from spark.pool.session import start_session
from spark.pool.snapshot import Alone
from spark.pool.watch import NEVER_ANY_S, WITHOUT_EXECUTORS_S
from tests.spark.conftest import wait_until
from tests.spark.exchange.work import done, made_target, think_and_note, work_of
from tests.spark.kubelet import Kubelet, container_of, unschedulable, variables_of
from tests.spark.kubernetes_api import KubernetesApi, Object, Refusal, selects
from tests.spark.test_watch import Ground

SECRET = "4f6c3b2a19087f6e5d4c3b2a19087f6e"
ELSEWHERE = "k8s://https://10.0.0.1:6443"
READY_S = 400.0
UNITS = 40


def spark_settings(folder: Path, master: str, **more: Any) -> SparkSettings:
    """What an operator sets, and what makes a test quick."""
    (folder / "mounted").mkdir(exist_ok=True)
    (folder / "mounted" / "secret").write_text(SECRET)
    (folder / "environment.txt").write_text("packed")
    with tarfile.open(folder / "env.tar.gz", "w:gz") as packed:
        packed.add(folder / "environment.txt", "environment.txt")
    usual: dict[str, Any] = {
        "master": master,
        "driver_host": "127.0.0.1",
        "driver_memory": "512m",
        "executor_memory": "600m",
        "executor_cores": 1,
        "executors_min": 1,
        "executors_max": 2,
        "image": "registry.example/spark:4.3",
        "namespace": "data",
        "service_account": "lethe-executor",
        "archives": [f"{folder}/env.tar.gz#environment"],
        "secret_file": folder / "mounted" / "secret",
        "secret_name": "lethe-spark",
        "java_options": ["-XX:TieredStopAtLevel=1"],
        "start_timeout_s": READY_S,
        "conf": {
            "spark.kubernetes.executor.label.team": "data",
            "spark.kubernetes.executor.request.cores": "250m",
            "spark.kubernetes.executor.limit.cores": "1500m",
            "spark.executorEnv.TZ": "UTC",
            # As soon as a test wants to see them.
            "spark.kubernetes.executor.apiPollingInterval": "1s",
            "spark.kubernetes.allocation.batch.delay": "200ms",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
        },
    }
    return SparkSettings(**(usual | more))


def options_of(folder: Path, master: str, **more: Any) -> SparkOptions:
    """As a service makes them of its settings."""
    settings = Settings(data_dir=folder / "data", spark=spark_settings(folder, master, **more))
    return replace(_options(settings), cds_archive=default_cds_archive())


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
        made.close()


# With encryption pyspark hands rows over by a socket that it leaves to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(1_800)
@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("runs", [False, pytest.param(True, marks=pytest.mark.long)])
def test_pods_that_are_refused_wait_run_and_are_deleted_change_no_result_and_hold_no_secret(
    api: KubernetesApi, kubelet: Kubelet, tmp_path: Path, *, runs: bool
) -> None:
    """One JVM for all of it: each start costs seconds. Whether pods run as well costs three more of them."""
    # Patient: a machine that is busy with other tests may leave a call unanswered for long.
    limits = PoolLimits(slots=1, warm_up=False, patience_s=120.0)
    pool = SparkPool(options_of(tmp_path, api.master), limits=limits)
    exchange = Exchange(pool, dispatchers=1)
    kubelet.is_on = False
    api.refusal = Refusal(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: few, used: pods=10')
    try:
        pool.start()
        _await_cause(pool, "the API server refuses: a pod is forbidden", "exceeded quota: few")
        assert (pool.snapshot().state, pool.snapshot().executors) == ("READY", 0)
        api.refusal = None
        wait_until(lambda: bool(api.pods()), within_s=READY_S, what="a pod that is taken")
        for pod in api.pods():
            api.set_pod_status(pod["metadata"]["name"], unschedulable("0/3 nodes are available"))
        _await_cause(pool, "a pod is Pending: Unschedulable: 0/3 nodes are available")
        assert pool.snapshot().rebuilds == 0
        assert len(api.pods()) == 1, "so many as executors_min says"
        if runs:
            kubelet.switch_on()
            wait_until(lambda: pool.snapshot().executors == 1, within_s=READY_S, what="an executor")
            assert pool.snapshot().alone is None
            _run_and_delete_a_pod(api, kubelet, exchange, tmp_path)
            assert list(kubelet.directory.glob("*/environment/environment.txt")), "spark.archives came"
    except BaseException:
        print(kubelet.report(), api.requests, pool.snapshot())
        raise
    finally:
        exchange.close(10)
        pool.stop(15)
    for pod in api.pods_asked:
        check_pod(pod, tmp_path)
    check_no_secret(api)
    wait_until(lambda: not kubelet.running, within_s=60, what="executors that end with their driver")


def _await_cause(pool: SparkPool, *parts: str) -> None:
    def is_said() -> bool:
        alone = pool.snapshot().alone
        return alone is not None and all(part in (alone.why or "") for part in parts)

    wait_until(is_said, within_s=READY_S, what=f"{parts} in {pool.snapshot()}")


def _run_and_delete_a_pod(api: KubernetesApi, kubelet: Kubelet, exchange: Exchange, folder: Path) -> None:
    target, asked = made_target(folder), len(api.pods_asked)
    most, results = 0, {}
    with exchange.lease(work_of(target, think_and_note), LeaseTerms(workers=2)) as lease:
        for outcome in lease.map(iter(range(UNITS))):
            most = max(most, len(api.pods()))
            results[outcome.unit] = outcome.result
            if len(results) == UNITS // 4:
                api.delete_pod(sorted(kubelet.running)[0])
    assert results == {unit: unit * unit for unit in range(UNITS)}
    assert done(target) == list(range(UNITS)), "none is missing, and none is there twice"
    assert len(api.pods_asked) > asked, "another pod came for the one that was deleted"
    assert 1 <= most <= 2, "never more than executors_max"


def check_pod(pod: Object, folder: Path) -> None:
    """A specification has what the settings name."""
    container, spec = container_of(pod), pod["spec"]
    assert container["image"] == "registry.example/spark:4.3"
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "lethe-executor"
    labels = pod["metadata"]["labels"]
    assert (labels["spark-role"], labels["team"], labels["spark-app-name"]) == ("executor", "data", "lethe")
    # Spark asks 384 MB beside the heap.
    assert container["resources"] == {
        "requests": {"memory": "984Mi", "cpu": "250m"},
        "limits": {"memory": "984Mi", "cpu": "1500m"},
    }
    variables = variables_of(pod)
    assert (variables["SPARK_EXECUTOR_CORES"], variables["SPARK_EXECUTOR_MEMORY"]) == ("1", "600m")
    assert variables["TZ"] == "UTC"
    assert re.fullmatch(r"spark://CoarseGrainedScheduler@127\.0\.0\.1:[0-9]+", variables["SPARK_DRIVER_URL"])
    java = [value for name, value in variables.items() if name.startswith("SPARK_JAVA_OPT_")]
    assert {"-Dspark.authenticate=true", "-Dspark.network.crypto.enabled=true"} <= set(java)
    assert "-XX:+ExitOnOutOfMemoryError" in java
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    [volume] = [each for each in spec["volumes"] if "secret" in each]
    assert volume["secret"] == {"secretName": "lethe-spark"}
    assert mounts[volume["name"]] == str(folder / "mounted")


def check_no_secret(api: KubernetesApi) -> None:
    """Neither pods nor config maps hold it, or one that Spark has made."""
    said = json.dumps([api.pods_asked, api.configmaps_asked])
    assert len(api.configmaps_asked) == 1
    assert "spark.kubernetes.namespace=data" in said, "config maps are looked at"
    assert SECRET not in said
    assert "_SPARK_AUTH_SECRET" not in said


@pytest.mark.usefixtures("no_spark")
def test_whoever_does_not_name_a_secret_of_kubernetes_gets_no_pods(
    api: KubernetesApi, tmp_path: Path
) -> None:
    """Left to itself Spark writes its secret into each pod's specification."""
    for missing in ({"secret_name": None}, {"secret_file": None}):
        with pytest.raises(SparkStartFailed, match="LETHE_SPARK__SECRET_NAME") as refused:
            start_session(options_of(tmp_path, api.master, **missing))
        assert refused.value.reason == "NO_SECRET"
    assert api.requests == []


def test_secret_on_kubernetes_is_named_by_its_file_on_both_sides(tmp_path: Path) -> None:
    options = options_of(tmp_path, ELSEWHERE)
    assert write_secret(options, tmp_path) is None
    conf = spark_conf(options, directory=tmp_path, packages=())
    assert conf["spark.authenticate.secret.file"] == str(tmp_path / "mounted" / "secret")
    assert conf["spark.kubernetes.executor.secrets.lethe-spark"] == str(tmp_path / "mounted")
    assert [conf[f"spark.{name}"] for name in ("authenticate", "network.crypto.enabled")] == ["true"] * 2
    assert conf["spark.io.encryption.enabled"] == "true"
    assert conf["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"
    assert SECRET not in str(conf)
    open_ones = spark_conf(replace(options, encrypted=False), directory=tmp_path, packages=())
    assert not [name for name in open_ones if "secret" in name]


@pytest.mark.parametrize("content", ["", "short"])
def test_mounted_secret_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    options = options_of(tmp_path, ELSEWHERE)
    (tmp_path / "mounted" / "secret").write_text(content)
    with pytest.raises(SparkStartFailed, match="no usable secret"):
        write_secret(options, tmp_path)


def test_secret_file_among_other_files_is_refused(tmp_path: Path) -> None:
    """In pods the secret lies over all of its folder; what a kubelet mounts beside it is the secret's own."""
    options, mounted = options_of(tmp_path, ELSEWHERE), tmp_path / "mounted"
    (mounted / "..2026_11_27").mkdir()
    (mounted / "..data").symlink_to("..2026_11_27")
    (mounted / "another-key").symlink_to("..data/another-key")
    assert write_secret(options, tmp_path) is None
    (mounted / "hosts").write_text("")
    with pytest.raises(SparkStartFailed, match=r"holds hosts too.*a folder of its own") as refused:
        write_secret(options, tmp_path)
    assert refused.value.reason == "NO_SECRET"


def test_secret_file_in_the_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparkStartFailed, match="nothing can be mounted"):
        write_secret(replace(options_of(tmp_path, ELSEWHERE), secret_file=Path("/secret")), tmp_path)


@pytest.mark.parametrize("name", ["", "Upper", "-x", "a.b", "x" * 57])
def test_secret_name_that_kubernetes_refuses_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="secret_name"):
        spark_settings(tmp_path, ELSEWHERE, secret_name=name)


@pytest.mark.parametrize("name", ["lethe", "a.b-c.d", "x" * 253])
def test_service_account_has_a_name_as_kubernetes_takes_them(tmp_path: Path, name: str) -> None:
    assert spark_settings(tmp_path, ELSEWHERE, service_account=name).service_account == name


@pytest.mark.parametrize("name", ["", "Upper", "-x", "a..b", "a.-b", "a\n", "x" * 254])
def test_service_account_that_kubernetes_refuses_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="service_account"):
        spark_settings(tmp_path, ELSEWHERE, service_account=name)


def test_kubernetes_without_an_image_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    bare = options_of(tmp_path, ELSEWHERE, image=None, conf={})
    with pytest.raises(SparkStartFailed, match="LETHE_SPARK__IMAGE") as refused:
        check_kubernetes(bare)
    assert refused.value.reason == "NO_IMAGE"
    check_kubernetes(replace(bare, conf={"spark.kubernetes.executor.container.image": "x"}))
    check_kubernetes(replace(bare, master="yarn"))


def test_pods_that_have_gone_are_waited_for_while_machines_come() -> None:
    """Spark goes on asking, other than a master that forgot us; a new JVM would leave pods behind."""
    ground = Ground()
    try:
        ground.watch.begin(is_kubernetes=True)
        ground.context.executors = 1
        assert ground.after(2) is None
        assert ground.watch.alone is None
        ground.context.executors = 0
        assert ground.after(WITHOUT_EXECUTORS_S * 3) is None
        assert ground.after(NEVER_ANY_S * 100) is None
        assert ground.watch.alone == Alone(left_s=None, why=None)
    finally:
        ground.watch.end()


def test_selector_of_labels_takes_what_kubernetes_takes() -> None:
    labels = {"role": "executor", "id": "3"}
    taken = ["", "role=executor", "role==executor", "id in (1, 3),role", "!gone", "role!=driver,id=3"]
    assert all(selects(selector, labels) for selector in taken)
    left = ["role=driver", "id in (1,2)", "gone", "!role", "role!=executor", "role=executor,id=4"]
    assert not any(selects(selector, labels) for selector in left)
