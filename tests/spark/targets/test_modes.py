"""Modes count, also for root.

The story: as root, directories and files of mode 0000, 0444 and 0555 were erased all the same, for the kernel
lets root do everything. What its owner has made read-only is left alone, whoever runs Lethe.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spark.erase.calls.calls import PlannedFile, RefusalCode, RoundCall
from spark.erase.errors import LogRefused
from spark.erase.reading.directory import opened
from spark.targets.connection import Target, connect
from spark.targets.errors import TargetAuthFailed, TargetReadOnly
from spark.targets.files.control_errors import PermissionRefused
from spark.targets.files.control_file import ControlFile
from tests.http.environments import write_small
from tests.spark.erase.conftest import copy_of, samples
from tests.spark.erase.hands_at_work import claim, contents, overwrite, plan, rounds_of

__all__ = ["copy_of", "samples"]


@pytest.fixture
def mode(tmp_path: Path) -> Iterator[Callable[[Path, int], None]]:
    """Sets modes, and takes them back, for the folder must be removed."""
    before: dict[Path, int] = {}

    def change(path: Path, mode: int) -> None:
        before.setdefault(path, path.stat().st_mode)
        path.chmod(mode)

    yield change
    for path, was in before.items():
        path.chmod(was)


ChangeMode = Callable[[Path, int], None]
Work = tuple[Path, PlannedFile, RoundCall]


@pytest.fixture
def work(copy_of: Callable[[str], Path]) -> Work:
    directory = copy_of("closed")
    claim(directory)
    file = plan(directory).files[0]
    return directory, file, next(rounds_of(directory, file, rows=500))


@pytest.mark.parametrize("bits", [0o000, 0o444, 0o555])
def test_round_leaves_such_a_directory_alone(work: Work, mode: ChangeMode, bits: int) -> None:
    directory, _file, call = work
    before = contents(directory)
    mode(directory, bits)
    answer = overwrite(call)
    assert answer.refusal is not None
    assert answer.refusal.code == RefusalCode.PERMISSION
    directory.chmod(0o755)
    assert contents(directory) == before


@pytest.mark.parametrize("bits", [0o000, 0o444, 0o555])
def test_round_leaves_such_a_file_alone(work: Work, mode: ChangeMode, bits: int) -> None:
    directory, _file, call = work
    before = contents(directory)
    mode(directory / f"{call.number:08x}.jdb", bits)
    answer = overwrite(call)
    assert answer.refusal is not None
    assert answer.refusal.code == RefusalCode.PERMISSION
    (directory / f"{call.number:08x}.jdb").chmod(0o644)
    assert contents(directory) == before


@pytest.mark.parametrize("bits", [0o000, 0o444])
def test_such_a_directory_is_not_read(tmp_path: Path, mode: ChangeMode, bits: int) -> None:
    directory = write_small(tmp_path / "environment")
    mode(directory, bits)
    with pytest.raises(LogRefused), opened(directory, ["00000000.jdb"]):
        pass


@pytest.mark.parametrize("bits", [0o000, 0o444, 0o555])
def test_no_control_file_is_made_there(tmp_path: Path, mode: ChangeMode, bits: int) -> None:
    directory = write_small(tmp_path / "environment")
    mode(directory, bits)
    with pytest.raises(PermissionRefused):
        ControlFile.open(directory, create=True)
    directory.chmod(0o755)
    assert not (directory / "lethe.control").exists()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    path = tmp_path / "shop" / "shop.sqlite"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("create table words (word text)")
        made.execute("insert into words values ('kept')")
    made.close()
    return path


@pytest.mark.parametrize(
    ("file_bits", "directory_bits"), [(0o444, 0o755), (0o555, 0o755), (0o644, 0o555), (0o444, 0o555)]
)
def test_sqlite_target_is_read_and_not_written(
    database: Path, mode: ChangeMode, file_bits: int, directory_bits: int
) -> None:
    mode(database, file_bits)
    mode(database.parent, directory_bits)
    with connect(Target(f"sqlite:///{database}"), application_name="lethe:test") as conn:
        with pytest.raises(TargetReadOnly), conn.transaction():
            conn.execute("delete from words")
        assert conn.execute("select word from words") == [("kept",)]


@pytest.mark.parametrize(("file_bits", "directory_bits"), [(0o000, 0o755), (0o644, 0o000), (0o644, 0o444)])
def test_sqlite_target_is_not_opened(
    database: Path, mode: ChangeMode, file_bits: int, directory_bits: int
) -> None:
    mode(database, file_bits)
    mode(database.parent, directory_bits)
    with pytest.raises(TargetAuthFailed):
        connect(Target(f"sqlite:///{database}"), application_name="lethe:test")
