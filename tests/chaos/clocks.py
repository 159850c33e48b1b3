"""The clock of the metadata's server: one for all, and set for all at once.

The server's own clock is nobody's to set here. A function of the same name, found before it by whoever looks
for a time in this database, is ahead of it by what a row says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import psycopg

SET_UP = (
    "create schema storm",
    "create table storm.clock (ahead interval not null)",
    "insert into storm.clock values ('0')",
    "create function public.clock_timestamp() returns timestamptz language sql volatile as"
    " 'select pg_catalog.clock_timestamp() + ahead from storm.clock'",
    "alter database {database} set search_path = public, pg_catalog",
)


@dataclass
class MetadataClock:
    """The clock by which instances agree.

    Attributes:
        sets: since when, in seconds of the right clock, it was ahead by how much.
    """

    conninfo: str
    sets: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])

    def set_up(self, database: str) -> None:
        """Before anybody connects."""
        with psycopg.connect(self.conninfo, autocommit=True) as conn:
            for statement in SET_UP:
                conn.execute(statement.format(database=database).encode())

    def set(self, ahead_s: float) -> None:
        """Let it be ahead for all instances.

        Raises: psycopg.OperationalError: the server is away.
        """
        with psycopg.connect(self.conninfo, autocommit=True) as conn:
            conn.execute("update storm.clock set ahead = %s", [timedelta(seconds=ahead_s)])
        self.sets.append((time.time(), ahead_s))

    def now(self) -> datetime:
        """What it shows."""
        return datetime.now(UTC) + timedelta(seconds=self.sets[-1][1])


def closed_spans(
    first: float, last: float, *, until: datetime | None, sets: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """When a window was closed, in seconds of the right clock; it is open again where a span ends.

    Args:
        first: when it was there; `last`: when it was taken away.
        until: what the metadata's clock shows when it opens; None: it never does.
        sets: how that clock was set, in its order.
    """
    found = []
    for (begins, ahead_s), (ends, _) in pairwise([*sets, (last, 0.0)]):
        opens = last if until is None else until.timestamp() - ahead_s
        span = max(first, begins), min(last, ends, opens)
        if span[0] < span[1]:
            found.append(span)
    return found
