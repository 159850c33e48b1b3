"""Random tables of three databases: what goes, what stays and what is archived is what the model says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spark.rows.condition import Cutoff
from spark.rows.expression import parse
from spark.rows.family import Family, Selection
from spark.rows.plan import plan_rows
from spark.rows.unit import RowsUnit, run_rows, unit_id
from spark.rows.walk import RowsWalk, place_of, texts
from spark.targets.archive.archive import read_rows, read_shape
from spark.targets.connection import Connection, Target, connect
from spark.targets.fence import raise_fence
from spark.targets.ledger import archive_manifest, ensure_ledger, ledger_totals
from spark.targets.walk import Piece
from tests.oracles import rows as oracle

RESOURCE = "public.rows"
FREE_LATER = [1_035, 1_124, 1_198]
"""Rows of a table that refers to itself become free in a later pass, and children go with them."""


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    """A database of each kind, with a ledger."""
    if request.param == "sqlite":
        (tmp_path / "rows.db").touch()
        url = f"sqlite:///{tmp_path / 'rows.db'}"
    else:
        url = request.getfixturevalue("postgresql_url" if request.param == "postgresql" else "mariadb_url")
    with closing(connect(Target(url, table_prefix=""), application_name="rows")) as found:
        assert ensure_ledger(found)
        yield found


def selection_of(case: oracle.Case) -> Selection:
    units = {"epoch_s": "S", "epoch_ms": "MS"}
    unit = units.get(case.time_kind)
    if case.dialect == "sqlite" and case.time_kind == "epoch_ms":
        unit = None
    cutoff = None if case.time is None else Cutoff(case.time, case.cutoff, unit)
    where = None if case.where_text is None else parse(case.where_text)
    return Selection(case.root, cutoff, where, tuple(case.children))


def unit_of(steps: Any, step: str, piece: Piece, *, job: str, archive: str | None) -> RowsUnit:
    after, upto = texts(piece.lo), texts(piece.hi)
    return RowsUnit(
        job_id=job,
        unit_id=unit_id(step, after, upto),
        step=step,
        table=steps[place_of(step)],
        after=after,
        upto=upto,
        token=1,
        resource=RESOURCE,
        archive_dir=archive,
    )


def sweep(conn: Connection, family: Family, rng: random.Random, *, job: str, archive: str | None) -> None:
    """All units one after the other, some of them twice."""
    steps = family.steps()
    walk = RowsWalk(steps, family.repeats, {})
    known: dict[str, Any] = {}
    for step in walk.steps:
        known[step] = bounds = walk.bounds(conn, step, known)
        after = None
        while bounds is not None:
            pieces = walk.pieces(conn, step, bounds, after=after, rows=rng.choice([3, 20, 100]), count=3)
            if not pieces:
                break
            for piece in pieces:
                unit = unit_of(steps, step, piece, job=job, archive=archive)
                run_rows(conn, unit)
                if rng.random() < 0.2:
                    assert run_rows(conn, unit).repeated
            after = pieces[-1].hi


def check_case(conn: Connection, seed: int, archive: Path) -> None:
    case = oracle.make_case(seed, conn.dialect.name)
    oracle.create(conn, case)
    try:
        family = Family.read(conn, selection_of(case), time_zone=case.zone)
        assert not [found for found in family.findings() if found.severity == "ERROR"], family.findings()
        model = oracle.Model(case)
        plan = plan_rows(conn, family, should_stop=lambda: False)
        planned = {table.table: (table.rows, table.rows_to_remove) for table in plan.tables}
        may_go = {name: model.planned(name) for name in model.family}
        assert planned == {name: (len(model.rows[name]), len(rows)) for name, rows in may_go.items()}, seed
        job = f"job_{seed}"
        raise_fence(conn, RESOURCE, token=1, owner="test")
        sweep(conn, family, random.Random(seed), job=job, archive=str(archive))
        left = model.run()
        for name, made in case.tables.items():
            assert oracle.numbers(conn, name) == sorted(row["n"] for row in left[name]), (seed, name)
            kept = {row["n"] for row in left[name]}
            gone = {row["n"] for row in made.rows} - kept
            listed = {row["n"] for row in may_go.get(name, ())}
            assert gone <= listed, (seed, name)
            assert gone == listed or case.refers_to_itself, (seed, name)
        _check_archive(conn, case, job, left)
        if case.has_trigger:
            gone = sorted(
                {row["n"] for row in case.tables[case.root].rows} - {row["n"] for row in left[case.root]}
            )
            assert oracle.numbers(conn, "gone") == gone
    finally:
        oracle.drop(conn, case)


def _check_archive(conn: Connection, case: oracle.Case, job: str, left: dict[str, list[oracle.Row]]) -> None:
    archived: Counter[tuple[str, int]] = Counter()
    for entry in archive_manifest(conn, job):
        names = [column.name for column in read_shape(entry.path).columns]
        archived.update((entry.table_name, int(row[names.index("n")])) for row in read_rows(entry.path))
    gone: Counter[tuple[str, int]] = Counter()
    for name, made in case.tables.items():
        kept = {row["n"] for row in left[name]}
        gone.update((name, row["n"]) for row in made.rows if row["n"] not in kept)
    assert archived == gone
    assert sum(total.rows for total in ledger_totals(conn, job).values()) == gone.total()


def test_random_tables_end_as_the_model_says(conn: Connection, tmp_path: Path) -> None:
    for seed in [*range(16 if conn.dialect.name == "sqlite" else 8), *FREE_LATER]:
        check_case(conn, seed, tmp_path / str(seed))


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_many_random_tables_end_as_the_model_says(conn: Connection, tmp_path: Path) -> None:
    for seed in range(1_000, 1_300):
        check_case(conn, seed, tmp_path / str(seed))
