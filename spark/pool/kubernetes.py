"""Kubernetes as a cluster: what of its settings becomes Spark's, and why pods do not become executors.

By itself Spark writes the secret of driver and executors into each pod's specification, where whoever may
look at pods reads it. With a file it does not: a secret of Kubernetes is mounted where the file lies here.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from spark.pool.errors import SparkStartFailed
from spark.pool.jvm import written_lately
from spark.pool.options import SparkOptions

NAMESPACE: Final = "spark.kubernetes.namespace"
IMAGES: Final = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
REFUSED_POD: Final = re.compile(
    r"KubernetesClientException: (?:.*?Message: )?(?P<why>.+?)(?:\. Received status:.*)?$"
)
UNHEARD: Final = "pods run, and none of them has reached the driver"
PODS_MAX: Final = 20
WHY_MAX_CHARS: Final = 160


def check_kubernetes(options: SparkOptions) -> None:
    """Look for what a pod could not be started without; nothing where the master is another kind.

    Raises: SparkStartFailed: NO_IMAGE.
    """
    if not options.is_kubernetes or options.image or any(options.conf.get(name) for name in IMAGES):
        return
    raise SparkStartFailed(
        "NO_IMAGE",
        "Kubernetes starts executors from an image: let LETHE_SPARK__IMAGE name one with Spark and Python",
    )


def why_no_pod_runs(context: Any, log_file: Path) -> str | None:
    """Why Kubernetes gives no executor, in one line; None: nothing is known.

    Args:
        context: Scala's, of the JVM.
        log_file: where the JVM writes that a pod was refused.
    """
    # A pod of which nothing is known yet has no status: that is no trouble.
    with suppress(Py4JError, AttributeError):
        faults = sorted(set(_faults(context)))
        if faults:
            return faults[0][:WHY_MAX_CHARS]
    return why_refused(written_lately(log_file))


def why_refused(text: str) -> str | None:
    """What the API server has answered last, by what a JVM has written."""
    found = [match["why"] for line in text.splitlines() if (match := REFUSED_POD.search(line.strip()))]
    return f"the API server refuses: {found[-1]}"[:WHY_MAX_CHARS] if found else None


def _faults(context: Any) -> Iterator[str]:
    """One for each pod of this context, none of which is an executor yet."""
    backend = context.schedulerBackend()
    pods = backend.kubernetesClient().pods().inNamespace(context.getConf().get(NAMESPACE, "default"))
    items = pods.withLabel("spark-app-selector", context.applicationId()).list().getItems()
    for number in range(min(PODS_MAX, int(items.size()))):
        status = items.get(number).getStatus()
        phase = status.getPhase()
        yield UNHEARD if phase == "Running" else f"a pod is {phase}{_detail(status)}"


def _detail(status: Any) -> str:
    """What its container waits for, or why it has no machine."""
    for container in _listed(status.getContainerStatuses()):
        waiting = container.getState() and container.getState().getWaiting()
        if waiting:
            return _said(waiting)
    for condition in _listed(status.getConditions()):
        if condition.getStatus() == "False" and condition.getReason():
            return _said(condition)
    return ""


def _said(found: Any) -> str:
    """Reason and message of whatever has them."""
    return "".join(f": {part}" for part in (found.getReason(), found.getMessage()) if part)


def _listed(found: Any) -> Iterator[Any]:
    for number in range(int(found.size()) if found is not None else 0):
        yield found.get(number)
