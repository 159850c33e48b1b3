"""What a purge journey stands on: places of the oracle as stores, and what must be true at the end.

The oracle's times lie around a fixed instant; here they are moved into the past, so that no clock finds the
cut-off in the future.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
from lethe_client import Lethe, PurgeRequest
from sqlalchemy.engine import make_url

from tests.oracles.symmetricds import (
    CUTOFF as ORACLE_CUTOFF,
)
from tests.oracles.symmetricds import (
    Place,
    Row,
    Rows,
    expected_after_purge,
    session,
    snapshot,
    stranded_batches,
    tables,
)

PAST = timedelta(days=400)
CUTOFF = ORACLE_CUTOFF - PAST
PURGED = ("data", "data_event", "outgoing_batch")
ROWS_OF_STEP = {"data": "data", "data_event": "data_event", "outgoing_batch": "outgoing_batch"}


def in_the_past(rows: Rows) -> Rows:
    """The same rows, every time moved back by PAST."""
    return {table: [_earlier(row) for row in content] for table, content in rows.items()}


def _earlier(row: Row) -> Row:
    return {name: value - PAST if isinstance(value, datetime) else value for name, value in row.items()}


def instant(place: Place, *, time_zone: str = "UTC", local: datetime = CUTOFF) -> datetime:
    """The instant that the columns of a place show as `local`; epoch milliseconds know no zone."""
    zone = "UTC" if place.encoding == "epoch_ms" else time_zone
    return local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def add_store(client: Lethe, store: str, place: Place, *, url: str | None = None, **more: Any) -> None:
    """Register a place."""
    client.stores.create(
        store,
        url or place.url,
        kind="SYMMETRICDS",
        schema=place.schema,
        table_prefix=place.prefix,
        **more,
    )


def purge_request(place: Place, **more: Any) -> PurgeRequest:
    """A purge up to CUTOFF as the columns show it; stranded batches are marked as the document does."""
    marks = (
        {"stranded": "MARK"} if more.get("kind", "OUTGOING") == "OUTGOING" and "plan_id" not in more else {}
    )
    return PurgeRequest(**{"cutoff": instant(place), **marks, **more})


@dataclass(frozen=True)
class Expected:
    """What the oracle says of one purge: the rows that stay and those that go, as the place has them."""

    after: Rows
    removed: Rows
    marked: int

    @property
    def counts(self) -> dict[str, int]:
        return {table: len(rows) for table, rows in self.removed.items()}


def expect(place: Place, before: Rows, **options: Any) -> Expected:
    """Ask the oracle about a snapshot; a marked batch is removed as it was after the mark."""
    after = expected_after_purge(before, place.encode(CUTOFF), **options)
    removed = {}
    for table in PURGED:
        left = {_key(place, table, row) for row in after[table]}
        removed[table] = [row for row in before[table] if _key(place, table, row) not in left]
    stranded = stranded_batches(before) if options.get("stranded", "MARK") == "MARK" else set()
    removed["outgoing_batch"] = [
        {**row, "status": "OK"} if (row["batch_id"], row["node_id"]) in stranded else row
        for row in removed["outgoing_batch"]
    ]
    return Expected(after, removed, len(stranded))


def within_plan(place: Place, before: Rows, planned: Expected, now: Expected) -> Expected:
    """What a purge with `plan_id` leaves of `before`: rows that could go now and are in the plan go.

    Args:
        planned: what the oracle said when the plan was made; nothing stranded has come since.
        now: what it says of `before`.
    """
    assert planned.marked == now.marked
    after, removed = dict(now.after), {}
    for table in PURGED:
        reviewed = {_key(place, table, row) for row in planned.removed[table]}
        removed[table] = [row for row in now.removed[table] if _key(place, table, row) in reviewed]
        gone = {_key(place, table, row) for row in removed[table]}
        left = {_key(place, table, row): row for row in now.after[table]}
        keyed = [(_key(place, table, row), row) for row in before[table]]
        after[table] = [left.get(key, row) for key, row in keyed if key not in gone]
    return Expected(after, removed, now.marked)


def _key(place: Place, table: str, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in tables(place.version)[table].primary_key)


def assert_exact(place: Place, expected: Expected, result: dict[str, Any]) -> None:
    """Every table is as the oracle says, and the result counts what went."""
    after = snapshot(place)
    for table, rows in expected.after.items():
        assert after[table] == rows, f"{place.url}: {table}"
    assert result["removed"] == expected.counts
    assert result["stranded"]["marked"] == expected.marked
    assert result["counts"] == "EXACT"


def assert_restored(file: Path, place: Place, expected: Expected) -> None:
    """A restored archive holds exactly the removed rows, every column of them."""
    for table, rows in expected.removed.items():
        restored = _restored_rows(file, f"{place.prefix}{table}")
        wanted = [{name: _as_restored(value) for name, value in row.items()} for row in rows]
        key = tables(place.version)[table].primary_key
        restored.sort(key=lambda row: tuple(row[name] for name in key))
        assert restored == sorted(wanted, key=lambda row: tuple(row[name] for name in key)), table


def _restored_rows(file: Path, table: str) -> list[Row]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        known = "select count(*) from sqlite_master where name = ?"
        if not connection.execute(known, (table,)).fetchone()[0]:
            return []
        return [dict(row) for row in connection.execute(f'select * from "{table}"')]


def _as_restored(value: Any) -> Any:
    """SQLite keeps times as text."""
    return value.isoformat(sep=" ", timespec="microseconds") if isinstance(value, datetime) else value


def fingerprint(place: Place) -> str:
    """A hash over every row of the purged tables, and over what Lethe keeps beside them."""
    parts = [repr(snapshot(place)[table]) for table in PURGED]
    with session(place) as target:
        if not target.sqlite and target.run("select to_regclass('lethe.unit_ledger') is not null")[0][0]:
            ledger = "select job_id, unit_id, token, rows_affected, committed_at from lethe.unit_ledger"
            parts.append(repr(sorted(target.run(ledger))))
            manifest = "select job_id, unit_id, path, sha256 from lethe.archive_manifest"
            parts.append(repr(sorted(target.run(manifest))))
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def connection_to(url: str) -> psycopg.Connection[Any]:
    """A session of the test's own on a PostgreSQL target."""
    bare = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(bare, autocommit=True)


ACTIVE_SQL = (
    "select pid, application_name, state, xact_start from pg_stat_activity "
    "where application_name like %s and state <> 'idle'"
)


def activity(connection: psycopg.Connection[Any], job_id: str) -> list[tuple[Any, ...]]:
    """Backends of a job that run a statement or sit in a transaction."""
    return connection.execute(ACTIVE_SQL, (f"{job_id}:%",)).fetchall()
