"""Statements of metadata are compiled once for all databases of a test run, as a service does for its one.

SQLAlchemy keeps what it has compiled with the engine, by the identity of its dialect, and each test has an
engine of its own: a third of the processor time of the tests of app went into compiling the same statements.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

KEPT = 10_000
"""Statements of one kind of database; there are about a thousand."""


def share_compiled_statements() -> None:
    """Have all engines of a kind, made from now on in this process, share what was compiled."""
    create = sa.create_engine
    compiled: dict[type[Any], LRUCache[Any, Any]] = {}
    for kind in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        compiled[kind] = LRUCache(KEPT)
        _equal_by_kind(kind)

    def made(*given: Any, **options: Any) -> sa.Engine:
        engine = create(*given, **options)
        if (found := compiled.get(type(engine.dialect))) is not None:
            engine._compiled_cache = found
        return engine

    sa.create_engine = made


def _equal_by_kind(kind: Any) -> None:
    kind.__eq__ = lambda one, other: type(one) is type(other)
    kind.__hash__ = lambda one: hash(type(one))
