"""Environments that JE itself wrote, unpacked once."""

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.je_data import DATA, unpack_all


@dataclass(frozen=True)
class Sample:
    """An environment as JE left it, and what is known of it."""

    name: str
    path: Path
    expected: dict[str, Any]

    def entries(self) -> list[list[str]]:
        """JE's own reading of every entry."""
        with gzip.open(self.path / "entries.tsv.gz", "rt") as rows:
            return [row.rstrip("\n").split("\t") for row in rows]

    def files(self) -> list[Path]:
        return sorted(self.path.glob("*.jdb"))


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    root = tmp_path_factory.mktemp("je")
    found = {}
    for archive in sorted(DATA.glob("*.tar.xz")):
        name = archive.name.removesuffix(".tar.xz")
        place = unpack_all(name, root / name)
        found[name] = Sample(name, place, json.loads((place / "expected.json").read_text()))
    return found


@pytest.fixture
def copy_of(samples: dict[str, Sample], tmp_path: Path) -> Callable[[str], Path]:
    """A directory of its own with the files of a sample's log."""

    def copy(name: str) -> Path:
        target = tmp_path / name
        target.mkdir()
        for file in samples[name].files():
            shutil.copyfile(file, target / file.name)
        return target

    return copy
