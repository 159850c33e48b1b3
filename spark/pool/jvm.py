"""The process of the JVM: how it is started, told what it is, and ended.

Invariants:
- a start ends within its deadline; when it fails no process is left;
- the JVM ends when its standard input does, so it never outlives this process, however that one dies;
- SIGINT and SIGTERM of a terminal or of a service supervisor do not reach it: it ends when we say so.
"""

import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spark.pool.errors import SparkStartFailed

POLL_S: Final = 0.05
GROUP_POLL_S: Final = 0.005
GROUP_PATIENCE_S: Final = 2.0
REASON_BYTES_MAX: Final = 16_384
LATELY_BYTES_MAX: Final = 131_072
LOG_BYTES_MAX: Final = 8 * 1024 * 1024
HANDSHAKE_BYTES_MAX: Final = 1024

# Ignored signals stay ignored over exec; the JVM leaves a signal alone that it finds ignored.
_DEAF: Final = ("/bin/sh", "-c", "trap '' INT TERM; exec \"$@\"", "sh")

# What a start of Spark by somebody else in this environment would bend ours with.
_FOREIGN: Final = ("PYSPARK_SUBMIT_ARGS", "SPARK_TESTING", "PYSPARK_DRIVER_PYTHON_OPTS", "SPARK_REMOTE")

_SIGNS: Final = (
    ("UnsupportedClassVersionError", "NO_JAVA"),
    ("JAVA_HOME is not set", "NO_JAVA"),
    ("Could not parse Master URL", "BAD_MASTER"),
    ("Master must either be", "BAD_MASTER"),
)


@dataclass(frozen=True, slots=True)
class Jvm:
    """A JVM that has said where it listens."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str
    log_begin: int = 0
    """Where in its log it has begun to write."""

    @property
    def alive(self) -> bool:
        """Whether the process still runs; reaps it when it does not."""
        return self.process.poll() is None


def spark_home() -> Path:
    """Where the wheel of pyspark lies; it brings its own Spark."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def find_java(java_home: Path | None) -> Path:
    """The java that a JVM would be started with.

    Raises: SparkStartFailed: NO_JAVA.
    """
    home = str(java_home) if java_home is not None else os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise SparkStartFailed("NO_JAVA", "there is no java on the PATH and JAVA_HOME is not set")
    if not os.access(found, os.X_OK):
        raise SparkStartFailed("NO_JAVA", f"there is no java at {found}")
    return Path(found)


def launch(
    conf: Mapping[str, str],
    *,
    environment: Mapping[str, str],
    directory: Path,
    log_file: Path,
    deadline: float,
    should_stop: Callable[[], bool],
    properties: Path | None = None,
) -> Jvm:
    """Start a JVM and wait for its handshake.

    Args:
        properties: a file with more configuration, which `ps` must not show.
        environment: variables on top of this process's own.
        directory: a folder of this JVM alone.
        deadline: by `time.monotonic`.
    Raises: SparkStartFailed: EXITED, NO_JAVA, BAD_MASTER, TIMEOUT or STOPPED.
    """
    handshake = directory / "handshake"
    arguments = [argument for key, value in conf.items() for argument in ("--conf", f"{key}={value}")]
    if properties is not None:
        arguments += ["--properties-file", str(properties)]
    command = [*_DEAF, str(spark_home() / "bin" / "spark-submit"), *arguments, "pyspark-shell"]
    inherited = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    began = _rotate(log_file)
    process = _spawn(
        command,
        inherited
        | {"SPARK_HOME": str(spark_home()), "SPARK_CONNECT_MODE": "0"}
        | {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(handshake)}
        | dict(environment),
        log_file,
    )
    with ExitStack() as undo:
        undo.callback(end, process)
        while not handshake.exists():
            if process.poll() is not None:
                raise _exited(process.returncode, _written_since(log_file, began))
            if should_stop():
                raise SparkStartFailed("STOPPED", "the start was given up")
            if time.monotonic() >= deadline:
                raise SparkStartFailed("TIMEOUT", f"the JVM has not reported; see {log_file}")
            time.sleep(POLL_S)
        port, secret = _read_handshake(handshake.read_bytes())
        undo.pop_all()
    handshake.unlink()
    return Jvm(process, port, secret, began)


def end(process: subprocess.Popen[bytes], *, patience_s: float = 0.0) -> None:
    """End the process and reap it: close its standard input, wait, kill its group and see it gone."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    if patience_s > 0:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience_s)
    if process.poll() is None:
        # The whole group: before the JVM is there, shells and the launcher are.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _await_group(process.pid)
    process.wait()


@contextmanager
def named_in_environment(jvm: Jvm) -> Iterator[None]:
    """Name port and secret where pyspark looks for them, for a moment."""
    os.environ["PYSPARK_GATEWAY_PORT"] = str(jvm.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = jvm.secret
    try:
        yield
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def last_words(log_file: Path) -> str:
    """The last line that says something in the log of a JVM, or nothing."""
    with suppress(OSError):
        return _telling_line(_written_since(log_file, 0))
    return ""


def lines_since(log_file: Path, began: int) -> tuple[str, int]:
    """What a JVM has written since, in whole lines, and where the next ones begin.

    Of much only the end. A log that somebody has cut is read from its beginning.
    """
    with suppress(OSError), log_file.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        began = began if began <= size else 0
        log.seek(max(began, size - LATELY_BYTES_MAX))
        whole, end, _rest = log.read(LATELY_BYTES_MAX).rpartition(b"\n")
        ended = max(began, size - LATELY_BYTES_MAX) + len(whole) + len(end)
        return whole.decode(errors="replace"), ended
    return "", began


def _spawn(command: Sequence[str], environment: Mapping[str, str], log_file: Path) -> subprocess.Popen[bytes]:
    with log_file.open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own command; no part of it comes from a request
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def _await_group(group: int) -> None:
    """Wait, not for ever, until a killed group has no process: only its leader is ours to reap."""
    until = time.monotonic() + GROUP_PATIENCE_S
    with suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(group, 0)
            time.sleep(GROUP_POLL_S)


def _rotate(log_file: Path) -> int:
    """Put a long log aside; returns where the next JVM begins to write."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    size = log_file.stat().st_size if log_file.exists() else 0
    if size <= LOG_BYTES_MAX:
        return size
    log_file.replace(log_file.with_name(log_file.name + ".1"))
    return 0


def _written_since(log_file: Path, began: int) -> str:
    with log_file.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(began, size - REASON_BYTES_MAX))
        return log.read(REASON_BYTES_MAX).decode(errors="replace")


def _telling_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Exception" in line or "rror" in line or "not set" in line]
    return (told or lines or [""])[-1][:500]


def _exited(code: int, text: str) -> SparkStartFailed:
    line = _telling_line(text)
    for sign, reason in _SIGNS:
        if sign in text:
            return SparkStartFailed("NO_JAVA" if reason == "NO_JAVA" else "BAD_MASTER", line)
    return SparkStartFailed("EXITED", f"the JVM ended with {code} before it reported: {line or 'no output'}")


def _read_handshake(content: bytes) -> tuple[int, str]:
    """Port and secret: two numbers of four bytes, big-endian, the second being the length of what follows."""
    assert 8 <= len(content) <= HANDSHAKE_BYTES_MAX
    port, length = struct.unpack_from(">ii", content)
    return port, content[8 : 8 + length].decode()
