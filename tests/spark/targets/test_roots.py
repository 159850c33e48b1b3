"""A path that was looked at, and a link put in its place before it was opened.

The story: a store inside LETHE_ALLOWED_ROOTS was registered, its file was then replaced by a symbolic link to
a database outside, and `:check` and `purge-stats` read that one.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from spark.erase.errors import LogRefused
from spark.erase.overwrite.file_layer import READ_FLAGS, WRITE_FLAGS, FileLayer
from spark.erase.reading.directory import file_names, opened
from spark.targets.archive.file import AttemptWriter, job_directory
from spark.targets.archive.restore import restore_into_file
from spark.targets.archive.restored_file import Attempt
from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import ArchiveFailed, TargetError, TargetPathRefused
from spark.targets.files.beneath import open_beneath
from spark.targets.files.control_errors import ControlError
from spark.targets.files.control_file import ControlFile
from spark.targets.sqlite_file import create_sqlite_file
from tests.http.environments import write_small

OPENS_S = 60.0


def _database(path: Path, word: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("create table words (word text)")
        database.execute("insert into words values (?)", [word])
    database.close()
    return path


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "inside").mkdir()
    return tmp_path / "inside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    return tmp_path / "outside"


def _connect(path: Path, *roots: Path) -> Connection:
    limits = SessionLimits(roots=tuple(str(root) for root in roots))
    return connect(Target(f"sqlite:///{path}"), application_name="lethe:test", limits=limits)


def _word(path: Path, *roots: Path) -> str:
    with _connect(path, *roots) as conn:
        return str(conn.execute("select word from words")[0][0])


def test_sqlite_file_that_became_a_link_is_not_followed(inside: Path, outside: Path) -> None:
    path = _database(inside / "shop.sqlite", "ours")
    assert _word(path, inside) == "ours"
    path.unlink()
    path.symlink_to(_database(outside / "theirs.sqlite", "theirs"))
    with pytest.raises(TargetPathRefused):
        _word(path, inside)
    assert _word(path) == "theirs"  # without roots a link is a name like another


def test_directory_that_became_a_link_is_not_followed(inside: Path, outside: Path) -> None:
    (inside / "deep").mkdir()
    path = _database(inside / "deep" / "shop.sqlite", "ours")
    shutil.rmtree(inside / "deep")
    _database(outside / "shop.sqlite", "theirs")
    (inside / "deep").symlink_to(outside)
    with pytest.raises(TargetPathRefused):
        _word(path, inside)


def test_link_that_stays_inside_is_followed(inside: Path) -> None:
    _database(inside / "v2.sqlite", "ours")
    (inside / "current.sqlite").symlink_to("v2.sqlite")
    assert _word(inside / "current.sqlite", inside) == "ours"


def test_connections_beside_each_other_are_all_proven(inside: Path) -> None:
    path = _database(inside / "shop.sqlite", "ours")
    with (
        _connect(path, inside) as first,
        first.transaction(),
    ):  # its locks keep descriptors of the closed open
        for _ in range(5):
            _connect(path, inside).close()
        assert _word(path, inside) == "ours"


@contextmanager
def _swapped_for_ever(place: Path, ours: Path, theirs: Path) -> Iterator[None]:
    """Somebody puts a link in the place of a thing and takes it away again, as fast as he can."""
    over = threading.Event()

    def swap() -> None:
        draft = place.with_name("draft")
        while not over.is_set():
            for target in (theirs, ours):
                with suppress(FileNotFoundError):
                    draft.symlink_to(target)
                    draft.replace(place)

    place.symlink_to(ours)
    thief = threading.Thread(target=swap)
    thief.start()
    try:
        yield
    finally:
        over.set()
        thief.join()


@pytest.mark.parametrize("tries", [300, pytest.param(20_000, marks=pytest.mark.long)])
def test_race_between_look_and_opening_is_never_won(inside: Path, outside: Path, tries: int) -> None:
    """Both parts of the path are raced for: links to inside are fine, those to outside never are."""
    (inside / "real").mkdir()
    _database(inside / "real" / "shop.sqlite", "ours")
    _database(outside / "shop.sqlite", "theirs")
    words: list[str] = []
    with _swapped_for_ever(inside / "deep", inside / "real", outside):
        deadline = time.monotonic() + OPENS_S
        while tries > 0 or (not words and time.monotonic() < deadline):
            tries -= 1
            with suppress(TargetError):
                words.append(_word(inside / "deep" / "shop.sqlite", inside))
    assert words, "whoever is that quick lets nothing be opened at all"
    assert set(words) == {"ours"}


def test_lost_race_is_refused(inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moment of the race itself: what was resolved becomes a link before SQLite opens it."""
    path = _database(inside / "shop.sqlite", "ours")
    theirs = _database(outside / "theirs.sqlite", "theirs")
    real_connect = sqlite3.connect

    def swapped(*args: object, **kwargs: object) -> object:
        path.unlink()
        path.symlink_to(theirs)
        return real_connect(*args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(sqlite3, "connect", swapped)
    with pytest.raises(TargetError, match="replaced while it was opened"):
        _word(path, inside)


def test_new_file_is_not_made_outside(inside: Path, outside: Path) -> None:
    (inside / "deep").symlink_to(outside)
    with pytest.raises(TargetPathRefused):
        create_sqlite_file(str(inside / "deep" / "new.sqlite"), roots=(str(inside),))
    assert list(outside.iterdir()) == []
    assert create_sqlite_file(str(inside / "new.sqlite"), roots=(str(inside),))


def test_restore_is_not_written_outside(inside: Path, outside: Path) -> None:
    (inside / "deep").symlink_to(outside)
    with pytest.raises(TargetPathRefused):
        restore_into_file([], inside / "deep" / "new.sqlite", attempt=Attempt("job", 1), roots=(str(inside),))
    assert list(outside.iterdir()) == []
    restore_into_file([], inside / "new.sqlite", attempt=Attempt("job", 1), roots=(str(inside),))
    assert (inside / "new.sqlite").is_file()


def test_log_behind_a_link_that_came_later_is_not_touched(inside: Path, outside: Path) -> None:
    directory = write_small(inside / "environment")
    theirs = write_small(outside / "environment")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in theirs.iterdir())
    shutil.rmtree(directory)
    directory.symlink_to(theirs)
    with pytest.raises(LogRefused):
        file_names(directory)
    with pytest.raises(LogRefused), opened(directory, ["00000000.jdb"]):
        pass
    with pytest.raises(ControlError):
        ControlFile.open(directory, create=True)
    layer = FileLayer()
    for flags in (READ_FLAGS, WRITE_FLAGS):
        with pytest.raises(OSError, match="symbolic links"):
            layer.open(directory / "00000000.jdb", flags)
    with pytest.raises(OSError, match="symbolic links"):
        layer.rename(directory / "00000000.jdb", directory / "00000000.del")
    with pytest.raises(OSError, match="symbolic links"):
        layer.unlink(directory / "00000000.jdb")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in theirs.iterdir()) == before


def test_folder_of_an_archive_that_is_a_link_is_refused(inside: Path, outside: Path) -> None:
    import pyarrow as pa

    directory = job_directory(inside, "shop", "job_" + "a" * 26)
    directory.parent.mkdir()
    directory.symlink_to(outside)
    with pytest.raises(ArchiveFailed):
        AttemptWriter(directory, unit_id="u1", token=1, schema=pa.schema([("a", pa.int64())]))
    assert list(outside.iterdir()) == []


def test_path_without_links_is_opened(tmp_path: Path) -> None:
    fd = open_beneath(tmp_path / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.close(fd)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
