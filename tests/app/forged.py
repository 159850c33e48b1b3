"""Processes of their own that run a function of the tests: forks, with the modules of Lethe loaded.

The function lies in a module that needs nothing but Lethe: what it imports comes on top. It runs as the first
of its process, and what it returns is the exit code. With `LETHE_TEST_FORGE=0` each is a fresh Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

from tests.forge import FIRST, LETHE, Forked, start_lethe

FUNCTION, ARGUMENTS = "FORGED_FUNCTION", "FORGED_ARGUMENTS"
Process = subprocess.Popen[bytes] | Forked


@contextmanager
def forged(function: Callable[..., Any], *arguments: str) -> Iterator[tuple[Process, IO[str]]]:
    """The process, and what it says on both of its outputs; it is killed at the end of the block."""
    ours, theirs = os.pipe()
    with open(ours, encoding="utf-8") as said:
        with open(theirs, "wb") as log:
            process = _started(function, arguments, log)
        try:
            yield process, said
        finally:
            process.kill()
            process.wait()


def ended(function: Callable[..., Any], *arguments: str) -> tuple[int, str]:
    """The exit code and all that it said."""
    with forged(function, *arguments) as (process, said):
        text = said.read()
        return process.wait(60), text


def _started(function: Callable[..., Any], arguments: tuple[str, ...], log: IO[bytes]) -> Process:
    name = f"{function.__module__}:{function.__qualname__}"
    env = os.environ | {FIRST: __name__, FUNCTION: name, ARGUMENTS: json.dumps(arguments)}
    command = [str(LETHE)]
    if os.environ.get("LETHE_TEST_FORGE") == "0":
        command = [sys.executable, "-m", __name__]
    env.setdefault("LETHE_SPARK__ENABLED", "false")
    return start_lethe(command, env=env, log=log)


def prepare() -> None:
    """In the process: be that function, and nothing behind it."""
    module, _, name = os.environ[FUNCTION].partition(":")
    code = getattr(import_module(module), name)(*json.loads(os.environ[ARGUMENTS]))
    sys.exit(code)


if __name__ == "__main__":
    prepare()
