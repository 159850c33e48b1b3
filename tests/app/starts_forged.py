"""Starts of Lethe where something is wrong from the first moment: what tests/app/forged.py runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from app import server, starting
from app.cli.main import main
from app.db import Database
from app.errors import MetadataUnavailable
from app.settings import Settings
from app.verbs import table
from app.working import Worker


def metadata_gone(verb: str, act: str, times: str, directory: str, url: str, *rest: str) -> int:
    """A process whose metadata goes away right after its start has looked at it, for so many of an act."""
    left, whole = [int(times)], getattr(Database, act)

    @contextmanager
    def gone(self: Database, **more: Any) -> Iterator[Any]:
        if left[0]:
            left[0] -= 1
            raise MetadataUnavailable("connection refused")
        with whole(self, **more) as db:
            yield db

    setattr(Database, act, gone)
    settings = Settings(data_dir=Path(directory), metadata_url=url, port=0)
    code = getattr(server, verb)(settings, *rest)
    return code if isinstance(code, int) else int(code[0])


def signalled_elsewhere(directory: str, url: str) -> int:
    """A worker whose kernel gives SIGTERM to a thread of it that is not the one that waits for it."""
    start = Worker.start_when_possible

    def started(self: Worker) -> None:
        start(self)
        time.sleep(1)  # the first thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    setattr(Worker, "start_when_possible", started)  # noqa: B010 -- a method of a class
    return server.run_worker(Settings(data_dir=Path(directory), metadata_url=url))


def with_a_gap(directory: str) -> int:
    """A service whose first verb has no proof."""
    first, *others = table.VERBS
    lacking: dict[str, Any] = {"proof": None}
    _, kinds = starting.check_verbs.__defaults__ or ()
    starting.check_verbs.__defaults__ = ([replace(first, **lacking), *others], kinds)
    return int(main(["serve", "--data-dir", directory, "--port", "0"]))


def loaded(prefix: str) -> int:
    """Tells which modules of a package are loaded in a process that has all of Lethe."""
    assert "app.server" in sys.modules, os.getpid()
    print([name for name in sys.modules if name.startswith(prefix)])
    return 0
