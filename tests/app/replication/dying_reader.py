"""A service that opens a replica and is killed before a commit (tests/app/forged.py)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import event

from app.db import Database
from app.replication.replica.replicas import compare_with_memory, opened_replica
from app.settings import Settings
from app.stores.rows import Store
from spark.targets.connection import Connection


def use(database: Database, settings: Settings) -> None:
    with database.reading() as db:
        store = db.get_one(Store, "r")
    with opened_replica(database, settings, store) as conn:
        compare_with_memory(database, conn, "r")


def use_until(url: str, data_dir: str, commit: str) -> None:
    """A service that is killed before that commit, of metadata and target together."""
    database = Database(url)
    commits = 0

    def count(*_: object) -> None:
        nonlocal commits
        commits += 1
        if commits == int(commit):
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(database.engine, "commit", count)
    real = Connection.transaction

    @contextmanager
    def counted(conn: Connection, *, read_only: bool = False) -> Iterator[Connection]:
        with real(conn, read_only=read_only) as inner:
            yield inner
            if not read_only:
                count()

    Connection.transaction = counted  # type: ignore[method-assign]
    use(database, Settings(data_dir=Path(data_dir)))
