"""Short looks for all readers of feeds: whether a replica has changed, which tokens and stores are there."""

import os
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlmodel import col, or_, select

from app.auth.rows import Token
from app.auth.service import PROVIDER_PREFIX
from app.db import Database
from app.replication.replica.refusals import NoReplicaYet
from app.replication.replica.replicas import opened_replica
from app.settings import Settings
from app.stores.rows import Store
from app.stores.service import get_store
from spark.formats.replica import tables_of
from spark.targets.connection import sqlite_path

BELIEVED_S: Final = 10.0
"""So long a SQLite file is believed that looks untouched: a clock of files has steps."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a replica has seen.

    Attributes:
        vectors: RUV and purge vector, as rows.
        path: SQLite's file; None: a server.
        file: what the file system says of it, and of the log beside it.
        at_s: when the replica itself was asked.
    """

    vectors: tuple[Any, ...]
    path: str | None
    file: tuple[Any, ...]
    at_s: float


def look_at(
    database: Database, settings: Settings, store_id: str, before: Look | None, *, now_s: float
) -> Look:
    """Look at a replica; the look before it, where its file is untouched since.

    Raises: ServiceError.
    """
    if before is not None and before.path is not None and now_s - before.at_s < BELIEVED_S:
        file = _file_of(before.path)
        if file == before.file:
            return before
    with database.reading() as db:
        store = get_store(db, store_id)
    try:
        with opened_replica(database, settings, store, purpose="feed", create=False) as conn:
            path = sqlite_path(conn.target) if conn.target.dialect == "sqlite" else None
            # Before the rows are read: what is written in between is seen by the next look.
            file = () if path is None else _file_of(path)
            rows = conn.execute(f"select rid, max_csn, purged_csn from {tables_of(conn).ruv} order by rid")
    except NoReplicaYet:
        return Look((), None, (), now_s)
    return Look(tuple(rows), path, file, now_s)


def _file_of(path: str) -> tuple[Any, ...]:
    found: list[Any] = []
    for each in (path, f"{path}-wal"):
        try:
            seen = os.stat(each)
        except OSError:
            found.append(None)
        else:
            found.append((seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns))
    return tuple(found)


def still_good(
    database: Database, tokens: Set[str], stores: Set[str], *, now: datetime
) -> tuple[frozenset[str], frozenset[str]]:
    """Which of the tokens may still be used, and which of the stores are there.

    Tokens of a provider have no row: they end by their time alone.
    """
    ours = [token for token in tokens if not token.startswith(PROVIDER_PREFIX)]
    is_good = col(Token.revoked_at).is_(None) & or_(
        col(Token.expires_at).is_(None), col(Token.expires_at) > now
    )
    with database.reading() as db:
        good = db.exec(select(Token.id).where(col(Token.id).in_(ours), is_good)).all()
        there = db.exec(select(Store.id).where(col(Store.id).in_(stores))).all()
    return frozenset(good) | (frozenset(tokens) - frozenset(ours)), frozenset(there)
