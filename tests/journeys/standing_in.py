"""The eraser's lower floor as a process that does what it is told, and stores for it to work on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.http.service_process import NO_TLS
from tests.je_data import unpack
from tests.journeys.service import Service

ROOT = Path(__file__).parents[2]


class StandIn:
    """The eraser's lower floor as a process that does what it is told."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.journeys.eraser_stand_in", str(directory)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.files = [int(number) for number in self.read()[1:]]

    def read(self) -> list[str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the stand-in has ended"
        return line.split()

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def end_loop(self) -> tuple[int, int]:
        """Rounds done, and rounds refused because the file is protected; what ends the loop is an order."""
        self.tell("READ", self.files[0])
        done, refused = map(int, self.read())
        assert self.read() == ["held"]
        return done, refused

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def standing_in(directory: Path) -> Iterator[StandIn]:
    stand_in = StandIn(directory)
    try:
        yield stand_in
    finally:
        stand_in.close()


def register(service: Service, tmp_path: Path) -> Path:
    """A fresh copy of an environment that JE wrote; its store bears the name of its directory."""
    name = f"env-{os.urandom(4).hex()}"
    directory = unpack("closed", tmp_path / name)
    made = post(service, "/v1/stores", {"id": name, "kind": "JE", "path": str(directory)})
    assert made.status_code == 201, made.text
    return directory


def post(service: Service, path: str, body: Any = None, **headers: str) -> httpx.Response:
    """One POST with the admin's token, sent once."""
    bearer = {"Authorization": f"Bearer {service.token}"}
    return httpx.post(service.url + path, json=body, headers=bearer | headers, timeout=60, verify=NO_TLS)
