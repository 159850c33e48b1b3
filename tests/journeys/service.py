"""Processes of Lethe as journeys start, kill, stop and wake them: `lethe serve` and `lethe worker`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lethe_client import Job, Lethe, RetryPolicy

from tests.forge import Forked, start_lethe
from tests.http.service_process import put_metadata_at_head
from tests.ports import free_port

LETHE = Path(sys.executable).with_name("lethe")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
JOB_TIMEOUT_S = 120.0
PR_SET_PDEATHSIG = 1

# A lease must be short where a test waits for its end, and long enough for a machine under load.
QUICK: Mapping[str, str] = {
    "LETHE_LEASE_TTL_S": "4",
    "LETHE_LEASE_RENEW_INTERVAL_S": "0.5",
    "LETHE_LEASE_SELF_STOP_S": "2.5",
    "LETHE_RUNNER_POLL_INTERVAL_S": "0.1",
    "LETHE_WATCH_INTERVAL_S": "0.05",
    "LETHE_PROGRESS_INTERVAL_S": "0.2",
    "LETHE_CANCEL_GRACE_S": "1",
}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process: ours without any setting of Lethe, and the given ones."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
    return {**ours, **QUICK, **settings}


def _die_with_the_test() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class Process:
    """One process of Lethe with a data directory of its own.

    Args:
        verb: `serve` or `worker`.
        data_dir: survives the process; the log and the folder for secrets lie beside it.
        settings: environment variables of Lethe beyond QUICK.
    """

    def __init__(self, verb: str, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.verb = verb
        self.data_dir = data_dir
        self.secrets = data_dir.with_suffix(".secrets")
        self.settings = {"LETHE_SECRETS_DIR": str(self.secrets)} | dict(settings or {})
        self.log = data_dir.with_suffix(".log")
        self.command: list[Path | str] = [LETHE]
        self.arguments: list[str] = []
        self._process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def instance(self) -> str:
        """The id that jobs show while this process runs them."""
        return (self.data_dir / "instance.id").read_text().strip()

    def spawn(self) -> None:
        """Start without waiting."""
        assert self.has_ended()
        with self.log.open("ab") as log:
            command = [*self.command, self.verb, "--data-dir", self.data_dir, *self.arguments]
            self._process = start_lethe(command, env=environment(self.settings), log=log)

    def kill9(self) -> None:
        """End it as a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None

    def stop(self) -> int:
        """End it by SIGTERM; returns its exit code, 0 where it does not run."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        return self.wait_end()

    def wait_end(self) -> int:
        """Wait until it has ended by itself; returns its exit code."""
        assert self._process is not None
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"did not end within {STOP_TIMEOUT_S} s:\n{self.tail()}") from None
        self._process = None
        return code

    def freeze(self) -> None:
        """SIGSTOP: alive, and not running."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def tail(self, size: int = 6_000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-size:]

    def report(self) -> str:
        """What to know of it when a test has failed."""
        standing = "runs" if not self.has_ended() else f"has ended with {self.exit_code}"
        return f"lethe {self.verb} in {self.data_dir} {standing}:\n{self.tail()}"

    @property
    def exit_code(self) -> int | None:
        """With what it has ended by itself; None where it runs or was killed."""
        return None if self._process is None else self._process.poll()

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process is None or self._process.poll() is not None


class Service(Process):
    """`lethe serve`, and a client with its admin token."""

    def __init__(
        self, data_dir: Path, settings: Mapping[str, str] | None = None, *, port: int | None = None
    ) -> None:
        super().__init__("serve", data_dir, settings)
        self.port = free_port() if port is None else port
        self.arguments = ["--port", str(self.port)]
        self._client: Lethe | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self.data_dir / "admin.token").read_text().strip()

    @property
    def client(self) -> Lethe:
        """A patient client: it outlives restarts of the service."""
        if self._client is None:
            self._client = Lethe(self.url, self.token, retries=RetryPolicy(attempts=12))
        return self._client

    def start(self) -> None:
        """Start and wait until it is ready; a new one begins with metadata at head, where they are a file."""
        if not self.data_dir.exists() and "LETHE_METADATA_URL" not in self.settings:
            put_metadata_at_head(self.data_dir)
        self.spawn()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert not self.has_ended(), self.tail()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                if self.client.is_ready():
                    return
            time.sleep(0.03)
        raise AssertionError(f"not ready after {START_TIMEOUT_S} s:\n{self.tail()}")

    def crash(self) -> None:
        """kill -9 and start again on the same data."""
        self.kill9()
        self.start()

    def close(self) -> None:
        """Give back the client's connections."""
        if self._client is not None:
            self._client.close()


@contextmanager
def serving(data_dir: Path, settings: Mapping[str, str] | None = None) -> Iterator[Service]:
    """A ready service; ended at the end, however it stands then."""
    with started(Service(data_dir, settings)) as service:
        yield service


@contextmanager
def started(service: Service) -> Iterator[Service]:
    """Start it; ended at the end, however it stands then."""
    service.start()
    try:
        yield service
    except BaseException:
        print(service.report())
        raise
    finally:
        service.close()
        if not service.has_ended():
            service.kill9()


@contextmanager
def working(data_dir: Path, settings: Mapping[str, str]) -> Iterator[Process]:
    """A `lethe worker`; ended at the end, however it stands then."""
    worker = Process("worker", data_dir, settings)
    worker.spawn()
    try:
        yield worker
    except BaseException:
        print(worker.report())
        raise
    finally:
        if not worker.has_ended():
            worker.kill9()


EXIT_TRY_AGAIN = 75


@contextmanager
def supervised(process: Process) -> Iterator[threading.Lock]:
    """Start a process again whenever it has ended, as an init system does with one that ended with 75.

    Yields: the lock to hold while killing it.
    """
    guard, ended = threading.Lock(), threading.Event()
    codes: set[int] = set()

    def watch() -> None:
        while not ended.wait(0.1):
            with guard:
                if process.has_ended():
                    codes.update([process.exit_code] if process.exit_code is not None else [])
                    process.spawn()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield guard
    finally:
        ended.set()
        thread.join(5)
    assert codes <= {EXIT_TRY_AGAIN}, codes


def await_job(client: Lethe, job_id: str, *states: str, timeout_s: float = JOB_TIMEOUT_S) -> Job:
    """Wait for the end of a job, or for one of the states."""
    return client.jobs.wait(job_id, until=states, timeout_s=timeout_s)


def succeeded(client: Lethe, job_id: str, *, timeout_s: float = JOB_TIMEOUT_S) -> dict[str, Any]:
    """The result of a job that must succeed."""
    job = await_job(client, job_id, timeout_s=timeout_s)
    assert job.state == "SUCCEEDED", f"{job.state}: {job.raw['error']} {job.raw['waiting_on']}"
    return dict(job.result or {})


def until(condition: Callable[[], Any], *, timeout_s: float = 30.0, pause_s: float = 0.02) -> Any:
    """Look again and again until the condition holds; returns what it said."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not so within {timeout_s} s: {condition}"
        time.sleep(pause_s)
