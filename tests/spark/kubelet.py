"""A kubelet of the test: starts the executor of a pod's specification as a process of this machine.

It does what the entry point of Spark's own image does for `executor`, from nothing but the specification: the
variables, the options of Java, the class path. A mounted secret must lie here where the pod would find it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spark.pool.jvm import find_java, spark_home
from tests.journeys.service import _die_with_the_test
from tests.journeys.spark_processes import descendants_of
from tests.spark.kubernetes_api import KubernetesApi, Object

BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ADDRESS: Final = "127.0.0.1"
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java that is up soon: no part of the specification."""


class BadPod(Exception):
    """A kubelet could not start this."""


def container_of(pod: Object) -> Object:
    """Its only one."""
    [container] = pod["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def variables_of(pod: Object) -> dict[str, str]:
    """The environment that the specification names."""
    fields = {"status.podIP": ADDRESS, "metadata.name": pod["metadata"]["name"]}
    found = {}
    for each in container_of(pod)["env"]:
        source = each.get("valueFrom")
        found[each["name"]] = fields[source["fieldRef"]["fieldPath"]] if source else each.get("value", "")
    return found


def command_of(variables: Mapping[str, str]) -> list[str]:
    """The command of the image's entry point, for `executor`."""
    options = [value for name, value in sorted(variables.items()) if name.startswith("SPARK_JAVA_OPT_")]
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    return [
        *[str(find_java(None)), *QUICK, *options, f"-Xms{memory}", f"-Xmx{memory}"],
        *["-cp", f"{spark_home()}/jars/*", BACKEND],
        *["--driver-url", variables["SPARK_DRIVER_URL"]],
        *["--executor-id", variables["SPARK_EXECUTOR_ID"]],
        *["--cores", variables["SPARK_EXECUTOR_CORES"]],
        *["--app-id", variables["SPARK_APPLICATION_ID"]],
        *["--hostname", variables["SPARK_EXECUTOR_POD_IP"]],
        *["--resourceProfileId", variables["SPARK_RESOURCE_PROFILE_ID"]],
        *["--podName", variables["SPARK_EXECUTOR_POD_NAME"]],
    ]


@dataclass
class Kubelet:
    """Runs the pods of one API server.

    Attributes:
        is_on: it starts what comes.
        directory: a folder for each pod: its working directory, its log.
        secrets: the secrets of the namespace, each with its keys.
    """

    directory: Path
    secrets: Mapping[str, Mapping[str, bytes]]
    api: KubernetesApi
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    is_on: bool = True

    def __post_init__(self) -> None:
        self.api.on_pod, self.api.on_pod_gone = self.start, self.end

    def start(self, pod: Object) -> None:
        """Start a pod, or say that it cannot be; nothing while the machine is off."""
        if not self.is_on:
            return
        name = pod["metadata"]["name"]
        try:
            process = self._spawn(pod)
        except BadPod as bad:
            self.api.set_pod_status(name, waiting("CreateContainerConfigError", str(bad)))
            return
        self.running[name] = process
        self.api.set_pod_status(name, {"phase": "Running", "podIP": ADDRESS, "containerStatuses": [_runs()]})
        threading.Thread(target=self._await, args=(name, process), daemon=True).start()

    def switch_on(self) -> None:
        """Start what has waited."""
        self.is_on = True
        for pod in self.api.pods():
            self.start(pod)

    def end(self, pod: Object) -> None:
        """What deletes a pod kills it, with all that it has started."""
        process = self.running.pop(pod["metadata"]["name"], None)
        if process is not None:
            _kill(process)

    def close(self) -> None:
        """End all of them."""
        for process in list(self.running.values()):
            _kill(process)

    def report(self) -> str:
        """What to know of it when a test has failed."""
        logs = sorted(self.directory.glob("*/log"))
        return "\n".join(f"== {log}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def _spawn(self, pod: Object) -> subprocess.Popen[bytes]:
        if container_of(pod)["args"] != ["executor"]:
            raise BadPod(f"the entry point knows no {container_of(pod)['args']}")
        self._check_mounts(pod)
        folder = self.directory / pod["metadata"]["name"]
        folder.mkdir(parents=True)
        variables = variables_of(pod)
        variables |= {"SPARK_HOME": str(spark_home()), "PATH": os.environ["PATH"]}
        # The volume of a pod alone.
        variables |= {"SPARK_LOCAL_DIRS": str(folder / "local")}
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                command_of(variables),
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_the_test,
            )

    def _check_mounts(self, pod: Object) -> None:
        """A secret lies at the same path on this machine, where nothing can be mounted."""
        mounts = {each["name"]: each["mountPath"] for each in container_of(pod)["volumeMounts"]}
        for volume in pod["spec"]["volumes"]:
            if "secret" not in volume:
                continue
            name = volume["secret"]["secretName"]
            if name not in self.secrets:
                raise BadPod(f'secret "{name}" not found')
            folder = Path(mounts[volume["name"]])
            for key, content in self.secrets[name].items():
                assert (folder / key).read_bytes() == content

    def _await(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        ended = {"state": {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}}
        phase = "Failed" if code else "Succeeded"
        self.api.set_pod_status(name, {"phase": phase, "containerStatuses": [{**_named(), **ended}]})
        self.running.pop(name, None)
        shutil.rmtree(self.directory / name / "local", ignore_errors=True)


def waiting(reason: str, message: str) -> Object:
    """The status of a pod whose container does not start."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{**_named(), "state": state}]}


def unschedulable(message: str) -> Object:
    """The status of a pod for which there is no machine."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def _named() -> dict[str, Any]:
    return {
        "name": "spark-kubernetes-executor",
        "image": "",
        "imageID": "",
        "restartCount": 0,
        "ready": False,
    }


def _runs() -> Object:
    return {**_named(), "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}


def _kill(process: subprocess.Popen[bytes]) -> None:
    for pid in [process.pid, *descendants_of(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(20)
