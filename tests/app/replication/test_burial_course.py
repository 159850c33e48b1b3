"""The course of a purge of tombstones, where more may go than a unit was counted with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.jobs.errors import JobFailed
from app.replication.tombstones.loop import Burial, BurialCourse
from app.settings import Settings
from spark.replication.replica.replica import create_file, ensure_layout
from spark.replication.tombstones.plan import TombstoneRules
from spark.replication.tombstones.units import run_tombstones
from spark.targets.connection import Connection, Target
from tests.spark.replication.consumer_side import GENERATION, OWN_RID
from tests.spark.replication.replica_tables import csn, opened
from tests.spark.replication.test_tombstone_bounds import level
from tests.spark.replication.tombstone_tables import keys_left, put_entries

DELETED_S = csn(10, OWN_RID).timestamp


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[Connection]:
    """A replica with two old tombstones."""
    target = Target(f"sqlite:///{tmp_path / 'replica.db'}", table_prefix="replica_")
    create_file(target)
    with opened(target) as connection:
        ensure_layout(connection, rid=OWN_RID, generation=GENERATION, incarnation="inc_a")
        level(connection, {OWN_RID: csn(70, OWN_RID)})
        put_entries(connection, {key: (csn(10, OWN_RID), True) for key in (b"a", b"z")})
        yield connection


def course_of(conn: Connection, settings: Settings, *, most: int | None) -> BurialCourse:
    """Of an attempt that planned both of them."""
    noted: dict[str, Any] = {}
    context = SimpleNamespace(
        settings=settings,
        job=SimpleNamespace(id="job_a", token=1),
        clock=SimpleNamespace(now=lambda: datetime.fromtimestamp(DELETED_S, UTC)),
        throttle=SimpleNamespace(setting=SimpleNamespace(rows_per_s=None)),
        stop_cause=None,
        save_checkpoint=noted.__setitem__,
    )
    burial = Burial(
        context=cast(Any, context),
        conn=conn,
        store=cast(Any, None),
        params=cast(Any, SimpleNamespace(rows_in_tx=None, rules=lambda cutoff: TombstoneRules(2**32 - 1))),
        cutoff=None,
        planned=cast(Any, SimpleNamespace(rows_to_remove=2)),
        most=most,
        claimed=cast(Any, SimpleNamespace(resource="entries", has_ledger=False)),
    )
    return BurialCourse(burial, before=0)


def test_a_refused_unit_is_counted_anew(conn: Connection, settings: Settings) -> None:
    """A delete comes between look and unit: nothing is charged, and all three go with the next unit."""
    course = course_of(conn, settings, most=None)
    [unit] = course.next_units() or ()
    put_entries(conn, {b"m": (csn(5, OWN_RID), True)})
    assert course.done(unit, run_tombstones(conn, unit), elapsed_s=0.01) is None
    assert len(keys_left(conn)) == 3
    [unit] = course.next_units() or ()
    assert course.done(unit, run_tombstones(conn, unit), elapsed_s=0.01) == (3, 0)
    assert course.next_units() is None


def test_a_limit_holds_where_a_unit_was_refused(conn: Connection, settings: Settings) -> None:
    course = course_of(conn, settings, most=2)
    [unit] = course.next_units() or ()
    put_entries(conn, {b"m": (csn(5, OWN_RID), True)})
    assert course.done(unit, run_tombstones(conn, unit), elapsed_s=0.01) is None
    [unit] = course.next_units() or ()
    assert course.done(unit, run_tombstones(conn, unit), elapsed_s=0.01) == (2, 0)
    with pytest.raises(JobFailed, match="more may go than was counted"):
        list(course.next_units() or ())
    assert len(keys_left(conn)) == 1
