"""The limits of a store were held against a count before the first delete of a purge of SymmetricDS's tables,
and never again: rows that were delivered between that count and the last unit went too, however many. So it
was of a replica's changelog and tombstones, where a consumer's acknowledgement frees more meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import app.purge.task as task
import app.replication.tombstones.task as burial_task
import app.replication.trimming.task as trimming_task
from app.replication.replica.replicas import close_idle_replicas
from spark.formats.csn import Csn
from spark.replication.agreements import acknowledge, register_agreement
from spark.targets.connection import Target
from tests.oracles.symmetricds import Place, build, snapshot
from tests.regressions.destructive_kinds import OLD_S, replica_of
from tests.regressions.destructive_kinds import ROWS as ALL
from tests.regressions.old_rows import MUST_BE_THERE, OLD_ROWS, UPKEEP, insert
from tests.regressions.purges import OLD_CUTOFF, Purges
from tests.spark.replication.replica_tables import opened

ROWS = 40
WORDS = {"STRANDED": "REMOVE"}


def test_every_kind_is_asked() -> None:
    assert {*OLD_ROWS} == {kind.value for kind in task.KINDS}
    assert {*UPKEEP} < {*OLD_ROWS}


@pytest.mark.parametrize("kind", OLD_ROWS)
def test_rows_that_come_after_the_count_are_none_too_many(
    purges: Purges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    build(place, MUST_BE_THERE.get(kind, {}))
    insert(place, kind, range(1, 2 * ROWS, 2))
    most = ROWS * len(OLD_ROWS[kind])
    purges.store(place, limits={"max_rows": most})
    swept = task.sweep_windows

    def more(*args: Any, **options: Any) -> Any:
        insert(place, kind, range(2, 2 * ROWS - 1, 2))  # between the others
        return swept(*args, **options)

    monkeypatch.setattr(task, "sweep_windows", more)
    before = snapshot(place)
    job = purges.run(purges.submit(kind=kind, cutoff=OLD_CUTOFF, max_rows_in_tx=7, stranded=WORDS.get(kind)))
    assert (job.state, (job.error or {}).get("code")) == ("FAILED", "LIMIT_EXCEEDED")
    after = snapshot(place)
    gone = sum(len(before[table]) + ROWS - 1 - len(after[table]) for table in OLD_ROWS[kind])
    assert 0 < gone <= most


@pytest.mark.parametrize("kind", ["CHANGELOG", "TOMBSTONES"])
def test_rows_of_a_replica_that_are_freed_after_the_count_are_none_too_many(
    purges: Purges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    url = f"sqlite:///{tmp_path}/replica.db"
    submit = replica_of(kind, purges, url, limits={"max_rows": ROWS}).submit
    course = {"CHANGELOG": trimming_task, "TOMBSTONES": burial_task}[kind]
    swept = course.sweep_here

    def acknowledged(number: int) -> None:
        with opened(Target(url, table_prefix="replica_")) as conn:
            register_agreement(conn, "agr_a", now_s=OLD_S)
            acknowledge(conn, "agr_a", {2: Csn.of(OLD_S + number, 0, 2)})

    def more(*args: Any, **options: Any) -> Any:
        acknowledged(ALL - 1)
        return swept(*args, **options)

    acknowledged(ROWS - 1)
    monkeypatch.setattr(course, "sweep_here", more)
    job = purges.run(submit(rows_in_tx=7))
    close_idle_replicas()
    table = "changelog" if kind == "CHANGELOG" else "entries"
    with opened(Target(url, table_prefix="replica_")) as conn:
        [(left,)] = conn.execute(f"select count(*) from replica_{table}")
    assert (job.state, (job.error or {}).get("code")) == ("FAILED", "LIMIT_EXCEEDED")
    assert ALL - left == ROWS
