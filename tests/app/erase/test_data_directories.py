"""A log in data directories: who looks at its files from outside of a plan finds them where JE has them."""

import hashlib
import os
from contextlib import closing
from pathlib import Path

import pytest

from app.cli.erasure.certificate_files import Outcome, compare_directory
from app.erase.certificates.environment import _other_files
from app.erase.cycle.planning import log_signature
from app.protection.control import written_files
from spark.targets.files import writing_lock
from spark.targets.files.log_place import log_path
from tests.spark.erase.data_directories import spread_over
from tests.spark.erase.live_environments import write_environment


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_environment(tmp_path).close()
    return spread_over(tmp_path, 3)


def test_file_that_somebody_overwrites_is_seen(directory: Path) -> None:
    """No promise is given about it while it is written, whatever became of the control file."""
    numbers = [0, 1, 2]
    assert written_files(directory, numbers) == []
    with closing(os.fdopen(os.open(log_path(directory, 1), os.O_RDWR), "rb+")) as file:
        assert writing_lock.try_lock(file.fileno())
        assert written_files(directory, numbers) == [1]
    assert written_files(directory, numbers) == []


def test_log_that_moves_on_has_another_signature(directory: Path) -> None:
    """Else a cycle that waits for the end of the log would never plan again."""
    before = log_signature(directory)
    assert before == log_signature(directory) != []
    newest = max(directory.rglob("*.jdb"), key=lambda path: path.name)
    with newest.open("ab") as file:
        file.write(b"\0")
    assert log_signature(directory) != before


def test_certificate_finds_the_files_that_it_proves(directory: Path) -> None:
    proved = [
        {
            "name": path.name,
            "state": "ERASED",
            "proved": True,
            "bytes": path.stat().st_size,
            "sha256_after": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(directory.rglob("*.jdb"))
    ]
    found = list(compare_directory({"files": proved}, directory))
    assert len(found) > 3
    assert {each.outcome for each in found} == {Outcome.SAME}


def test_certificate_names_what_lies_beside_the_log_there_too(directory: Path) -> None:
    (directory / "je.info.0").touch()
    (directory / "data002" / "00000001.del").touch()
    (directory / "data-x").mkdir()
    (directory / "data-x" / "00000001.del").touch()
    found = [name for name in _other_files(directory) if not name.endswith(".lck")]
    assert found == ["data002/00000001.del", "je.info.0"]
