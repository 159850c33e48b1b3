"""Kubernetes as a cluster: what of its settings becomes Spark's, and why pods do not become executors.

By itself Spark writes the secret of driver and executors into each pod's specification, where whoever may
look at pods reads it. With a file it does not: a secret of Kubernetes is mounted where the file lies here.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from spark.pool.errors import SparkStartFailed
from spark.pool.jvm import lines_since
from spark.pool.options import SparkOptions

NAMESPACE: Final = "spark.kubernetes.namespace"
IMAGES: Final = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
REFUSED_POD: Final = re.compile(
    r"KubernetesClientException: Failure executing: POST at: \S*/pods\. Message: "
    r"(?P<why>.+?)(?:\. Received status:.*)?$"
)
A_POD: Final = re.compile(r'[Pp]ods? "[^"]*"|[^\s"]*-exec-[0-9]+')
"""Each try has another name: without it the reason stays the same."""
ENDED: Final = ("Failed", "Succeeded")
REFUSED_FOR_S: Final = 20.0
"""How long a refusal counts that no other follows: Spark asks every five to ten seconds."""
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


class PodTroubles:
    """Why the pods of one context do not become executors; one thread asks at a time."""

    def __init__(self, log_file: Path, *, log_begin: int, monotonic: Callable[[], float]) -> None:
        """Know nothing yet.

        Args:
            log_file: where the JVM writes that a pod was refused.
            log_begin: where it began to: what stands before is of others.
        """
        self._log_file = log_file
        self._read_to = log_begin
        self._monotonic = monotonic
        self._refused: str | None = None
        self._refused_at = 0.0

    def look(self, context: Any) -> str | None:
        """Why Kubernetes gives no executor now, in one line; None: nothing is known.

        Args:
            context: Scala's, of the JVM.
        """
        self._note_refusal()
        with suppress(Py4JError, AttributeError):
            pods = list(_statuses(context))
            if pods:
                self._refused = None  # what came after was taken
                faults = sorted(fault for status in pods if (fault := _fault(status)) is not None)
                return _line(faults[0][1]) if faults else None
        return self._refused

    def _note_refusal(self) -> None:
        text, self._read_to = lines_since(self._log_file, self._read_to)
        found, now = why_refused(text), self._monotonic()
        if found is not None:
            self._refused, self._refused_at = found, now
        elif now - self._refused_at > REFUSED_FOR_S:
            self._refused = None


def why_refused(text: str) -> str | None:
    """Why the API server has taken no pod, at last, by what a JVM has written."""
    found = [match["why"] for line in text.splitlines() if (match := REFUSED_POD.search(line.strip()))]
    return _line(f"the API server refuses: {found[-1]}") if found else None


def _line(text: str) -> str:
    return A_POD.sub("a pod", text)[:WHY_MAX_CHARS]


def _statuses(context: Any) -> Iterator[Any]:
    """One for each pod of this context, none of which is an executor yet; None: nothing is known of it."""
    backend = context.schedulerBackend()
    pods = backend.kubernetesClient().pods().inNamespace(context.getConf().get(NAMESPACE, "default"))
    items = pods.withLabel("spark-app-selector", context.applicationId()).list().getItems()
    for number in range(min(PODS_MAX, int(items.size()))):
        yield items.get(number).getStatus()


def _fault(status: Any) -> tuple[int, str] | None:
    """How little it says, and what keeps a pod from serving; others have followed one that has ended."""
    phase = status and status.getPhase()
    if not phase:
        return None
    if phase == "Running":
        return 0, UNHEARD
    detail = _detail(status)
    return 1 if phase in ENDED else 0 if detail else 2, f"a pod is {phase}{detail}"


def _detail(status: Any) -> str:
    """What its container waits for, how it ended, or why it has no machine."""
    for container in _listed(status.getContainerStatuses()):
        state = container.getState()
        if state and state.getWaiting():
            return _said(state.getWaiting())
        if state and state.getTerminated():
            return _ended(state.getTerminated())
    if status.getReason():
        return _said(status)  # of one that was evicted
    for condition in _listed(status.getConditions()):
        if condition.getStatus() == "False" and condition.getReason():
            return _said(condition)
    return ""


def _ended(terminated: Any) -> str:
    reason = f": {terminated.getReason()}" if terminated.getReason() else ""
    return f"{reason}: exit code {terminated.getExitCode()}"


def _said(found: Any) -> str:
    """Reason and message of whatever has them."""
    return "".join(f": {part}" for part in (found.getReason(), found.getMessage()) if part)


def _listed(found: Any) -> Iterator[Any]:
    for number in range(int(found.size()) if found is not None else 0):
        yield found.get(number)
