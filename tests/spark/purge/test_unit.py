"""symmetricds-purge, Outgoing Purge: what is left equals the document's statements, row for row."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from spark.purge.statements import PurgeSpec
from tests.oracles.symmetricds import (
    CUTOFF,
    VERSIONS,
    Place,
    Rows,
    Version,
    build,
    create,
    empty,
    expected_after_purge,
    literal_purge,
    load,
    random_database,
    removed_keys,
    snapshot,
)
from tests.spark.purge.outgoing_run import OutgoingRun

CASES = pytest.mark.parametrize("cases", [4, pytest.param(200, marks=pytest.mark.long)])
SIZES = [(1, 1), (3, 2), (7, None), (20_000, None)]


def _spec(place: Place, rng: Random) -> PurgeSpec:
    return PurgeSpec(
        cutoff=_cutoff(place),
        strict=rng.random() < 0.4,
        mark_stranded=rng.random() < 0.75,
        stranded_nodes=rng.choice([None, None, ("00004",), ("00005", "-1"), ()]),
    )


def _cutoff(place: Place) -> datetime | str | int:
    if place.dialect != "sqlite":
        return CUTOFF
    encoded = place.encode(CUTOFF)
    return encoded if isinstance(encoded, int) else str(CUTOFF)


def _check(place: Place, rows: Rows, spec: PurgeSpec, *, size: tuple[int, int | None], workers: int) -> None:
    before = snapshot(place)
    expected = expected_after_purge(
        before,
        place.encode(CUTOFF) if place.dialect == "sqlite" else CUTOFF,
        strict=spec.strict,
        stranded="MARK" if spec.mark_stranded else "SKIP",
        stranded_nodes=None if spec.stranded_nodes is None else [n for n in spec.stranded_nodes if n],
    )
    run = OutgoingRun(place, spec, rows=size[0], max_batches=size[1], workers=workers)
    totals = run.run()
    after = snapshot(place)
    for table, content in expected.items():
        assert after[table] == content, (table, size, spec, removed_keys(place, before, after))
    assert {
        "data": totals["DATA"],
        "data_event": totals["EVENTS"],
        "outgoing_batch": totals["BATCHES"],
    } == {
        table: len(before[table]) - len(expected[table]) for table in ("data", "data_event", "outgoing_batch")
    }


@CASES
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("encoding", ["text", "text_ms", "text_s", "epoch_ms"])
def test_random_sqlite_databases_keep_what_the_oracle_keeps(
    tmp_path: Path, version: Version, encoding: str, cases: int
) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db", version=version, encoding=encoding)  # type: ignore[arg-type]
    create(place)
    rng = Random(f"{version} {encoding}")
    for case in range(max(len(SIZES), cases // 2)):
        empty(place)
        rows = random_database(rng, version)
        load(place, rows)
        _check(place, rows, _spec(place, rng), size=SIZES[case % len(SIZES)], workers=1)


@CASES
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_random_postgresql_databases_keep_what_the_oracle_keeps(
    postgresql_url: str, version: Version, workers: int, cases: int
) -> None:
    place = Place(postgresql_url, version=version, schema="tenant" if workers == 2 else None)
    create(place)
    rng = Random(f"{version} {workers}")
    for case in range(cases):
        empty(place)
        rows = random_database(rng, version)
        load(place, rows)
        _check(place, rows, _spec(place, rng), size=SIZES[case % len(SIZES)], workers=workers)


@CASES
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_random_mariadb_databases_keep_what_the_oracle_keeps(
    mariadb_url: str, version: Version, workers: int, cases: int
) -> None:
    place = Place(mariadb_url, version=version)
    create(place)
    rng = Random(f"{version} {workers}")
    for case in range(max(2, cases // 4)):
        empty(place)
        rows = random_database(rng, version)
        load(place, rows)
        _check(place, rows, _spec(place, rng), size=SIZES[case % len(SIZES)], workers=workers)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("version", VERSIONS)
def test_literal_statements_and_units_leave_the_same_rows(
    tmp_path: Path, version: Version, size: tuple[int, int | None]
) -> None:
    rows = random_database(Random(7), version, rows=400)
    literal = Place(f"sqlite:///{tmp_path}/literal.db", version=version)
    ours = Place(f"sqlite:///{tmp_path}/ours.db", version=version)
    for place in (literal, ours):
        build(place, rows)
    counts = literal_purge(literal, CUTOFF, data_limit=size[0], events_limit=size[1] or 5)
    totals = OutgoingRun(ours, PurgeSpec(_cutoff(ours)), rows=size[0], max_batches=size[1]).run()
    assert snapshot(ours) == snapshot(literal)
    assert [totals[step] for step in ("STRANDED", "DATA", "EVENTS", "BATCHES")] == list(counts.values())
