"""A purge was paused, and its target restored from a backup meanwhile. The bounds of its steps were those
of the younger database, so that the greatest data id of the restored one lay inside them: it was removed,
and an engine that numbers by MAX()+1 would have given it away a second time.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from spark.purge.statements import PurgeSpec, Step
from spark.purge.unit import run_unit
from spark.targets.connection import connect
from tests.oracles.symmetricds import CUTOFF, Place, build, random_database, session
from tests.spark.purge.outgoing_run import OutgoingRun


@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_unit_beyond_the_greatest_id_leaves_it(
    request: pytest.FixtureRequest, tmp_path: Path, dialect: str
) -> None:
    url = f"sqlite:///{tmp_path}/sym.db" if dialect == "sqlite" else request.getfixturevalue("postgresql_url")
    place = Place(url)
    build(place, random_database(Random(5), "3.x", rows=60))
    with session(place) as target:
        target.run(
            "update sym_outgoing_batch set status = 'OK', create_time = :t", {"t": place.encode(CUTOFF)}
        )
        target.run("update sym_data set create_time = :t", {"t": "2001-01-01 00:00:00"})
        greatest = target.run(
            "select (select max(data_id) from sym_data), (select max(batch_id) from sym_outgoing_batch)"
        )
        for data_id, batch_id in greatest:  # both would go, but for being the greatest
            target.run(
                "delete from sym_data_event where data_id = :d or batch_id = :b",
                {"d": data_id, "b": batch_id},
            )
            target.run("insert into sym_data_event (data_id, batch_id) values (:d, 1)", {"d": data_id})
    run = OutgoingRun(place, PurgeSpec(CUTOFF if dialect == "postgresql" else str(CUTOFF)))
    steps: tuple[Step, ...] = ("DATA", "EVENTS", "BATCHES")
    with connect(run.target, application_name="t") as conn:
        run.claim(conn)
        removed = [run_unit(conn, run.unit(step, step.lower(), -(2**40), 2**40)).rows for step in steps]
    assert all(rows > 0 for rows in removed), removed
    with session(place) as target:
        assert (
            target.run(
                "select (select max(data_id) from sym_data), (select max(batch_id) from sym_outgoing_batch)"
            )
            == greatest
        )
