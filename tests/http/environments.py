"""JE environments as stores of a running service, and rounds that a test holds open in them."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from spark.targets.files.control_file import ControlFile
from spark.targets.files.control_record import ControlRecord

_numbers = itertools.count(1)

HOLD_BYTE_0 = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class EnvironmentStore:
    """A registered environment."""

    http: httpx.Client
    id: str
    directory: Path

    @property
    def url(self) -> str:
        return f"/v1/stores/{self.id}"

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.glob("*.jdb"))

    def record(self) -> ControlRecord:
        with ControlFile.open(self.directory, create=False) as control:
            return control.read()

    def ranges(self) -> list[tuple[str, int, int | None]]:
        """What stands in the control file."""
        return [(held.id, held.first, held.last) for held in self.record().ranges]

    def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """POST below the store; `key` is the Idempotency-Key."""
        named = {"Idempotency-Key": headers["key"]} if "key" in headers else {}
        return self.http.post(f"{self.url}/{path}", json=body, headers=named)

    def begin(self, **body: Any) -> dict[str, Any]:
        """A backup session that is ACTIVE."""
        answer = self.post("backup-sessions", body)
        assert answer.status_code == 201, answer.text
        begun: dict[str, Any] = answer.json()
        return begun


def write_small(directory: Path, *, count: int = 6) -> Path:
    """Files that bear the names of log files; protection and backups do not read what is in them."""
    directory.mkdir(parents=True)
    for number in range(count):
        (directory / f"{number:08x}.jdb").write_bytes(bytes([number]) * (1_000 + number))
    return directory


def make_environment_store(
    http: httpx.Client, roots: Path, sample: Path | None = None, **fields: Any
) -> EnvironmentStore:
    """A fresh copy of an environment as a store; without a sample one of a few small files."""
    name = f"env-{os.getpid()}-{next(_numbers)}"
    directory = roots / name
    if sample is None:
        write_small(directory)
    else:
        shutil.copytree(sample, directory)
    body = {"id": name, "kind": "JE", "path": str(directory)} | fields
    answer = http.post("/v1/stores", json=body)
    assert answer.status_code == 201, answer.text
    return EnvironmentStore(http, name, directory)


def await_log(http: httpx.Client, store_id: str, *, patience_s: float = 60) -> None:
    """Wait until the service has read what JE itself has discarded."""
    deadline = time.monotonic() + patience_s
    while True:
        bundle = http.get(f"/v1/stores/{store_id}/extinctions/filter").json()
        if "LOG_NOT_READ" not in {each["code"] for each in bundle["maybe_because"]}:
            return
        assert time.monotonic() < deadline, bundle["maybe_because"]
        time.sleep(0.1)


@contextmanager
def round_at_work(directory: Path, number: int) -> Iterator[ControlFile]:
    """A writer that is inside a round of a file, and stays there: as one under SIGSTOP."""
    with ControlFile.open(directory, create=True) as writer:
        assert writer.try_lock_file(number, exclusive=True)
        yield writer


@contextmanager
def engine_at_work(directory: Path) -> Iterator[None]:
    """A process that holds byte 0 of je.lck as JE does."""
    engine = subprocess.Popen(
        [sys.executable, "-c", HOLD_BYTE_0, str(directory / "je.lck")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert engine.stdout is not None
        assert engine.stdout.readline() == b"held\n"
        yield
    finally:
        engine.communicate()
