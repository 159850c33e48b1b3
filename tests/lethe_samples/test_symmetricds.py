"""The sample of SymmetricDS can be written over one that was in use."""

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from lethe_samples.symmetricds import build

NOW = datetime(2026, 11, 20)


def rows(path: Path) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        return db.execute("select data_id from sym_data order by data_id").fetchall()


def test_a_file_that_was_in_use_leaves_nothing_in_the_new_one(tmp_path: Path) -> None:
    """Its write-ahead log was read into the new file, which was damaged by it."""
    path, fresh = tmp_path / "sym.sqlite", tmp_path / "fresh.sqlite"
    for each in (path, fresh):
        build(each, now=NOW)
    log = Path(f"{path}-wal")
    with closing(sqlite3.connect(path)) as used:
        used.execute("pragma journal_mode = wal")
        used.execute("update sym_data set row_data = 'other'")
        used.commit()
        left = log.read_bytes()
    log.write_bytes(left)  # as a process leaves it that was killed
    build(path, now=NOW)
    assert rows(path) == rows(fresh)
