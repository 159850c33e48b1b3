"""Why no pod runs, by what an API server lists and a JVM writes; the objects of Java are doubles."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark.pool.cluster.kubernetes import REFUSED_FOR_S, UNHEARD, PodTroubles, why_refused
from spark.pool.jvm import LATELY_BYTES_MAX, lines_since
from spark.pool.watch import EXECUTORS_EVERY_S
from tests.spark.kubelet import unschedulable, waiting
from tests.spark.kubernetes_api import Object
from tests.spark.test_watch import Context, Ground

POST = (
    "io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: POST at: "
    "http://127.0.0.1:1/api/v1/namespaces/data/{kind}. Message: {why}. Received status: Status(code=403)."
)
QUOTA = 'pods "lethe-1-exec-{number}" is forbidden: exceeded quota: few'
REFUSED = "the API server refuses: a pod is forbidden: exceeded quota: few"


class Java:
    """What is read of an object of JSON by `getX()`, and of a list by `size()` and `get()`."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("get"):
            raise AttributeError(name)
        value = self.found.get(name[3].lower() + name[4:])
        return lambda: Java(value) if isinstance(value, dict | list) else value

    def size(self) -> int:
        return len(self.found)

    def get(self, number: int) -> Java:
        return Java(self.found[number])


class Cluster(Context):
    """The Java side of a context, whose API server lists pods."""

    def __init__(self, *statuses: Object | None) -> None:
        super().__init__()
        self.statuses = statuses

    def schedulerBackend(self) -> Any:
        return SimpleNamespace(kubernetesClient=lambda: SimpleNamespace(pods=lambda: self))

    def inNamespace(self, name: str) -> Cluster:
        assert name == "data"
        return self

    def withLabel(self, *label: str) -> Cluster:
        assert label == ("spark-app-selector", "spark-1")
        return self

    def list(self) -> Java:
        return Java({"items": [{"status": status} for status in self.statuses]})

    def getConf(self) -> Any:
        return SimpleNamespace(get=lambda _name, _usual: "data")

    def applicationId(self) -> str:
        return "spark-1"


class Told:
    """Troubles of pods, their clock and their log."""

    def __init__(self, log_file: Path, *, before: str = "") -> None:
        self.log_file, self.now = log_file, 0.0
        log_file.write_text(before)
        self.troubles = PodTroubles(log_file, log_begin=len(before), monotonic=lambda: self.now)

    def refuse(self, number: int) -> None:
        with self.log_file.open("a") as log:
            log.write(POST.format(kind="pods", why=QUOTA.format(number=number)) + "\n\tat somewhere\n")

    def after(self, seconds: float, *statuses: Object | None) -> str | None:
        self.now += seconds
        return self.troubles.look(Cluster(*statuses))


def ended(reason: str, code: int) -> Object:
    terminated = {"reason": reason, "exitCode": code}
    return {"phase": "Failed", "containerStatuses": [{"state": {"terminated": terminated}}]}


def test_pods_that_are_refused_then_taken_then_crash_say_what_holds_each_time(tmp_path: Path) -> None:
    told = Told(tmp_path / "log")
    told.refuse(1)
    assert told.after(5) == REFUSED
    told.refuse(2)
    assert told.after(5) == REFUSED, "the name of each try is another one"
    assert told.after(5, {"phase": "Pending"}) == "a pod is Pending"
    assert told.after(5, ended("OOMKilled", 137)) == "a pod is Failed: OOMKilled: exit code 137"
    assert told.after(1) is None, "what was refused before it was taken is old"


def test_refusal_counts_until_no_other_follows(tmp_path: Path) -> None:
    told = Told(tmp_path / "log")
    told.refuse(1)
    assert told.after(1) == REFUSED
    assert told.after(REFUSED_FOR_S) == REFUSED
    assert told.after(1) is None


def test_what_an_earlier_jvm_has_written_is_not_said(tmp_path: Path) -> None:
    old = POST.format(kind="pods", why=QUOTA.format(number=7)) + "\n"
    told = Told(tmp_path / "log", before=old)
    assert told.after(1) is None
    told.refuse(1)
    assert told.after(1) == REFUSED


@pytest.mark.parametrize(
    ("statuses", "why"),
    [
        ([None], None),
        ([{}], None),
        ([None, {"phase": "Running"}], UNHEARD),
        ([unschedulable("0/3 nodes")], "a pod is Pending: Unschedulable: 0/3 nodes"),
        (
            [waiting("ErrImagePull", 'no "a/b:1" for lethe-1-exec-4')],
            'a pod is Pending: ErrImagePull: no "a/b:1" for a pod',
        ),
        (
            [{"phase": "Failed", "reason": "Evicted", "message": "low on memory"}],
            "a pod is Failed: Evicted: low on memory",
        ),
        ([ended("Error", 1), {"phase": "Pending"}], "a pod is Failed: Error: exit code 1"),
        ([ended("Error", 1), unschedulable("0/3 nodes")], "a pod is Pending: Unschedulable: 0/3 nodes"),
        ([{"phase": "Pending"}, unschedulable("0/3 nodes")], "a pod is Pending: Unschedulable: 0/3 nodes"),
    ],
)
def test_state_of_a_pod_is_said(tmp_path: Path, statuses: list[Object | None], why: str | None) -> None:
    assert Told(tmp_path / "log").after(1, *statuses) == why


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (POST.format(kind="pods", why='pods "x" is forbidden'), "the API server refuses: a pod is forbidden"),
        (POST.format(kind="configmaps", why="no"), None),
        (POST.format(kind="pods", why="no").replace("POST", "DELETE"), None),
        ("io.fabric8.kubernetes.client.KubernetesClientException: too old resource version: 5 (9)", None),
        ("java.io.IOException: no", None),
        ("", None),
    ],
)
def test_only_a_pod_that_was_refused_counts_of_what_the_jvm_writes(line: str, why: str | None) -> None:
    assert why_refused(f"INFO begins\n{line}\n\tat somewhere") == why


def test_log_is_read_in_whole_lines_and_each_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert lines_since(log, 3) == ("", 3)
    log.write_text("one\ntwo\nthr")
    assert lines_since(log, 4) == ("two", 8)
    assert lines_since(log, 8) == ("", 8)
    log.write_text("one\ntwo\nthree\n")
    assert lines_since(log, 8) == ("three", 14)
    log.write_text("new\n")
    assert lines_since(log, 14) == ("new", 4), "somebody has cut it"
    log.write_text("x" * LATELY_BYTES_MAX + "\nend\n")
    text, end = lines_since(log, 0)
    assert text.endswith("\nend")
    assert end == log.stat().st_size


def test_watch_shows_what_holds_now_and_nothing_once_nothing_does() -> None:
    ground, context = Ground(), Cluster()
    try:
        ground.watch.begin(is_kubernetes=True)
        ground.context = context
        for statuses, why in (
            ((unschedulable("0/3 nodes"),), "a pod is Pending: Unschedulable: 0/3 nodes"),
            ((ended("Error", 3),), "a pod is Failed: Error: exit code 3"),
            ((), None),
        ):
            context.statuses = statuses
            for _ in range(3):
                assert ground.after(EXECUTORS_EVERY_S) is None
            assert ground.watch.alone is not None
            assert ground.watch.alone.why == why
    finally:
        ground.watch.end()
