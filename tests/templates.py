"""Directories that are dear to make: once for a run of tests, by whichever worker comes first; others copy.

The run's own folder is named by an environment variable, which workers inherit; where it is not set, as in a
benchmark, there are no templates.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "LETHE_TEST_TEMPLATES"


@contextmanager
def templates_of_this_run() -> Iterator[None]:
    """A folder for templates, unless there is one already; gone afterwards."""
    if VARIABLE in os.environ:
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="lethe-templates-"))
    os.environ[VARIABLE] = str(folder)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        shutil.rmtree(folder, ignore_errors=True)


def made_once(name: str, make: Callable[[Path], None]) -> Path | None:
    """A directory that nobody may change; None where the run has no folder for templates.

    Args:
        name: what it is.
        make: makes it at a path where nothing is; others wait meanwhile.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return None
    place = Path(folder) / name
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            unfinished = place.with_suffix(".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(place)
    return place
