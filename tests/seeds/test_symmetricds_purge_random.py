"""The document "SymmetricDS Purge Process in 2.x", Outgoing Purge, on random databases.

Every awkward row of facts/symmetricds-purge occurs; what an engine leaves is held against the oracle.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.oracles.symmetricds import (
    CUTOFF,
    VERSIONS,
    Place,
    Rows,
    Version,
    create,
    empty,
    expected_after_purge,
    load,
    random_database,
    snapshot,
)
from tests.oracles.symmetricds_engines import Engine
from tests.oracles.symmetricds_random_incoming import with_odd_texts


def run_random(place: Place, engine: Engine, seeds: range) -> None:
    """Hold an engine against the oracle on one random database for each seed."""
    create(place)
    for seed in seeds:
        rng = Random(seed)
        empty(place)
        rows = random_database(rng, place.version)
        if seed % 3 == 0:
            rows = with_odd_texts(rng, place.version, rows, place.collation)
        load(place, rows)
        before = snapshot(place)
        options: dict[str, Any] = {
            "strict": rng.random() < 0.3,
            "stranded": rng.choice(["MARK", "MARK", "SKIP"]),
        }
        # At most so many chunks of each table: ids may be far apart, and MariaDB takes its time to commit.
        chunks_max = 20 if place.dialect == "mariadb" else 100
        limit = max(rng.choice([0, 1, 3, 20, 5000]), _span(before) // chunks_max)
        engine(place, CUTOFF, data_limit=limit, events_limit=limit, batches_limit=limit, **options)
        cutoff = place.encode(CUTOFF)
        expected = expected_after_purge(before, cutoff, collation=place.collation, **options)
        assert snapshot(place) == expected, f"seed {seed}"


def _span(rows: Rows) -> int:
    ids = [[row["data_id"] for row in rows["data"]], [row["batch_id"] for row in rows["outgoing_batch"]]]
    return max(max(column, default=0) - min(column, default=0) for column in ids)


@pytest.mark.parametrize("version", VERSIONS)
def test_random_sqlite_databases_are_left_as_the_oracle_says(
    tmp_path: Path, engine: Engine, version: Version
) -> None:
    """Facts, section 4: "Result does not depend on the chunk size" and every awkward row together."""
    encoding: Any = {"2.x": "text_ms", "3.x": "text"}[version]
    run_random(Place(f"sqlite:///{tmp_path}/random.db", version, encoding=encoding), engine, range(20))


@pytest.mark.parametrize("version", VERSIONS)
def test_random_postgresql_databases_are_left_as_the_oracle_says(
    postgresql_url: str, engine: Engine, version: Version
) -> None:
    """The same on PostgreSQL, in a schema and with a prefix of its own."""
    place = Place(postgresql_url, version, schema="replication", prefix="node_a_")
    run_random(place, engine, range(1000, 1004))


@pytest.mark.parametrize("version", VERSIONS)
def test_random_mariadb_databases_are_left_as_the_oracle_says(
    mariadb_url: str, engine: Engine, version: Version
) -> None:
    """The same on MariaDB, where texts are the same in small and capital letters."""
    run_random(Place(mariadb_url, version, prefix="node_a_"), engine, range(2000, 2003))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_random_databases_are_left_as_the_oracle_says(place: Place, engine: Engine) -> None:
    """The same with more seeds."""
    run_random(place, engine, range(10_000, 10_600))
