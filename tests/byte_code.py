"""The byte code of test modules, written once by the workers of a run together.

Pytest keeps the modules that it has rewritten, but workers collect all modules in the same order and at the
same time: in a fresh clone each of them rewrote all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def write_a_share(config: pytest.Config) -> None:
    """In a worker, before it collects: rewrite every n-th module of those that the run will collect."""
    given = getattr(config, "workerinput", None)
    if given is None or sys.dont_write_bytecode:
        return
    number, count = int(given["workerid"].removeprefix("gw")), int(given["workercount"])
    for file in sorted(_collected(config))[number::count]:
        _write(file, config)


def _collected(config: pytest.Config) -> Iterator[Path]:
    """The test modules below what the run was asked for."""
    ignored = [Path(each).resolve() for each in config.getoption("ignore") or ()]
    for argument in config.args:
        place = Path(argument.split("::")[0]).resolve()
        for file in place.rglob("test_*.py") if place.is_dir() else [place]:
            if file.is_file() and not any(file.is_relative_to(each) for each in ignored):
                yield file


def _write(file: Path, config: pytest.Config) -> None:
    """What the hook of pytest does at an import, but nothing is run. What cannot be parsed, it will say."""
    place = rewrite.get_cache_dir(file)
    kept = place / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(file, kept) is None and rewrite.try_makedirs(place):
        try:
            stat, code = rewrite._rewrite_test(file, config)
        except SyntaxError:
            return
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, kept)
