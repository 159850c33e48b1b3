"""What an error that came out of Spark means."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from spark.pool.errors import SparkJobCancelled, SparkJobFailed, SparkLost, SparkRunError

CANCELLED: Final = "[SPARK_JOB_CANCELLED]"
WRAPPER: Final = "java.util.concurrent.ExecutionException"
CAUSE: Final = "Caused by: "
LINE_CHARS_MAX: Final = 500

# A socket breaks before the process can be reaped; so long a broken call waits for the proof.
DEATH_PROOF_S: Final = 2.0
POLL_S: Final = 0.02


def classify(error: BaseException, *, is_alive: Callable[[], bool]) -> SparkRunError:
    """Tell a cancel and a dead JVM from a failure.

    Args:
        is_alive: whether the process of the JVM still runs. A broken connection counts as a lost JVM only
            then: a function may have connections of its own that break.
    """
    if _looks_lost(error):
        deadline = time.monotonic() + DEATH_PROOF_S
        while is_alive() and time.monotonic() < deadline:
            time.sleep(POLL_S)
    if not is_alive():
        return SparkLost(f"the JVM is gone ({type(error).__name__})")
    text, line = text_of(error), telling_line(error)
    # Some actions wrap the condition in another exception; the text always names it.
    is_cancel = _is_of_spark(error) and CANCELLED in text
    return SparkJobCancelled(line) if is_cancel else SparkJobFailed(line)


def _is_of_spark(error: BaseException) -> bool:
    from pyspark.errors import PySparkException  # whoever has an error out of Spark has imported it

    return isinstance(error, Py4JError | PySparkException)


def text_of(error: BaseException) -> str:
    """What the error says, all of it; nothing when the JVM that would have to be asked is gone."""
    try:
        return str(error).strip()  # of a Java exception: asks the JVM
    except (Py4JError, OSError):
        return ""


def telling_line(error: BaseException) -> str:
    """The line that says what happened, without the stack of either language."""
    text = text_of(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = lines[0]
    if isinstance(error, Py4JJavaError) and len(lines) > 1:
        line = _of_java(lines)
    elif "Traceback (most recent call last)" in text:
        line = next((found for found in reversed(lines) if _is_python_error(found)), lines[-1])
    elif not _is_of_spark(error):
        line = f"{type(error).__name__}: {line}"
    return line[:LINE_CHARS_MAX]


def _of_java(lines: Sequence[str]) -> str:
    """The exception, or what it wraps where it says no more than that something failed."""
    line = lines[1].removeprefix(": ")
    if not line.startswith(WRAPPER):
        return line
    return next((each.removeprefix(CAUSE) for each in lines if each.startswith(CAUSE)), line)


def _is_python_error(line: str) -> bool:
    name, colon, _ = line.partition(":")
    return bool(colon) and name.replace(".", "").isidentifier()


def _looks_lost(error: BaseException) -> bool:
    if isinstance(error, Py4JJavaError):
        return False
    return isinstance(error, Py4JError | ConnectionError | EOFError)
