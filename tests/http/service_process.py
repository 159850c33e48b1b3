"""The real service as a process of its own, and what can be seen of it from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from lethe_client import Lethe

from app.db import Database
from migrations.upgrade import upgrade
from tests.forge import Forked, run_lethe, start_lethe
from tests.ports import free_port
from tests.typed_jobs import check_answer

ROOT = Path(__file__).parents[2]
LETHE = Path(sys.executable).with_name("lethe")
# A client that is to trust nobody reads no authorities: with them it takes longer than a hundred requests.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
START_MAX_S = 60.0
STOP_MAX_S = 30.0
REQUEST_TIMEOUT_S = 30.0
# Tests are refused by the hundred from one address, and compare the rows of the metadata.
USUAL = {"LETHE_REFUSAL_DELAY_MAX_S": "0", "LETHE_REFUSALS_WRITTEN_S": "3600", "LETHE_STORE_CHECK_S": "0"}


_making = threading.Lock()


@cache
def metadata_at_head() -> bytes:
    """A SQLite database of metadata in which nothing is yet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lethe.db"
        database = Database(f"sqlite:///{path}")
        upgrade(database)
        database.close()
        with closing(sqlite3.connect(path)) as connection:  # what still stands in the log
            connection.execute("pragma wal_checkpoint(truncate)")
        return path.read_bytes()


class ServiceStartError(Exception):
    """The process ended or was not ready in time; the text holds the end of its log."""


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without any setting of Lethe, and the given ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
    return kept | dict(settings)


def put_metadata_at_head(data_dir: Path) -> None:
    """Make a data directory with metadata at head: to make them takes longer than the rest of a start."""
    data_dir.mkdir(mode=0o700, parents=True)
    path = data_dir / "lethe.db"
    with _making:  # Alembic is one for all threads
        content = metadata_at_head()
    path.write_bytes(content)
    path.chmod(0o600)


class ServiceProcess:
    """`lethe serve` in a data directory.

    Args:
        settings: LETHE_ variables and secrets of its environment.
    """

    def __init__(
        self, directory: Path, *, metadata_url: str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_file = directory / "serve.log"
        self.metadata_url = metadata_url
        self.settings = USUAL | dict(settings or {})
        self.port = 0
        self._process: subprocess.Popen[bytes] | Forked | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id while it runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def token(self) -> str:
        """The first admin token, as the service wrote it."""
        return (self.data_dir / "admin.token").read_text().strip()

    def command(self) -> list[str]:
        """Its command line."""
        arguments = [str(LETHE), "serve", "--data-dir", str(self.data_dir), "--port", str(self.port)]
        if self.metadata_url is not None:
            arguments += ["--metadata-url", self.metadata_url, "--migrate"]
        return arguments

    def start(self) -> ServiceProcess:
        """Start on a free port (again on the former one) and wait until it is ready."""
        assert self._process is None
        self.port = self.port or free_port()
        if self.metadata_url is None and not self.data_dir.exists():
            put_metadata_at_head(self.data_dir)
        with self.log_file.open("ab") as log:
            self._process = start_lethe(self.command(), env=environment(self.settings), log=log)
        self._wait_ready()
        return self

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_MAX_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                break
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=5, verify=NO_TLS).status_code == 200:
                    return
            time.sleep(0.05)
        self.kill9()
        raise ServiceStartError(self.log()[-4000:])

    def begin_stop(self) -> None:
        """Send SIGTERM."""
        os.kill(self.pid, signal.SIGTERM)

    def wait_exit(self) -> int:
        """Wait for its end; returns the exit code."""
        assert self._process is not None
        try:
            code = self._process.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise
        self._process = None
        return code

    def stop(self) -> int:
        """Stop as an init system does; returns the exit code, 0 where it does not run."""
        if self._process is None:
            return 0
        self.begin_stop()
        return self.wait_exit()

    def kill9(self) -> None:
        """End it without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_MAX_S)
            self._process = None

    def log(self) -> str:
        """All that it has written to its standard streams."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def traces(self) -> list[str]:
        """The end of each line of its log that has a traceback: what was raised, and what it says of it."""
        return [line[-2_000:] for line in self.log().splitlines() if "Traceback" in line]

    def thread_count(self) -> int:
        """Threads of the process now."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def open_files(self, name: str) -> int:
        """How many descriptors it has on a file of this name."""
        found = 0
        for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found += descriptor.readlink().name == name
        return found

    @contextlib.contextmanager
    def http(self, token: str | None = None) -> Iterator[httpx.Client]:
        """A plain HTTP client that carries a token; the admin's by default, none for ""."""
        bearer = self.token if token is None else token
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        hooks = {"response": [check_answer]}
        with httpx.Client(
            base_url=self.url, headers=headers, timeout=REQUEST_TIMEOUT_S, event_hooks=hooks, verify=NO_TLS
        ) as client:
            yield client

    @contextlib.contextmanager
    def library(self) -> Iterator[Lethe]:
        """The client library with the admin's token."""
        with Lethe(self.url, self.token) as client:
            yield client


def run_to_end(arguments: list[str], *, settings: Mapping[str, str] | None = None) -> Any:
    """Run the command to its end; returns the completed process with text streams."""
    return run_lethe([LETHE, *arguments], env=environment(settings or {}))
