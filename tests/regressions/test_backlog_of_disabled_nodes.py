"""A node was disabled for an hour of maintenance, the nightly purge ran, and the node never got what had been
captured for it: `stranded: MARK`, the document's first step, was what a request meant that said nothing. The
first example of the README gave up 15 batches in that way, below the promise that nothing undelivered goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.purge.models import PurgeKind, PurgeParams, PurgeRequest, StrandedMode
from app.purge.service import MARK_STRANDED, snapshot
from app.purge.tick import tick_once
from app.stores.rows import Store
from app.sweeps.rows import SweepTick
from spark.purge.plan import plan_outgoing
from spark.purge.statements import PurgeSpec
from spark.targets.connection import connect
from tests.oracles.symmetricds import CUTOFF, Place, stranded_batches
from tests.oracles.symmetricds import snapshot as rows_of
from tests.regressions.purges import OLD_CUTOFF, Purges
from tests.spark.purge.outgoing_run import target_of


@pytest.fixture
def place(purges: Purges, tmp_path: Path) -> Place:
    """A database whose disabled and absent nodes have a backlog."""
    found = purges.fill(Place(f"sqlite:///{tmp_path}/sym.db"))
    assert stranded_batches(rows_of(found))
    return found


def _backlog(place: Place) -> dict[Any, Any]:
    rows = rows_of(place)
    return {
        (row["batch_id"], row["node_id"]): row["status"]
        for row in rows["outgoing_batch"]
        if (row["batch_id"], row["node_id"]) in stranded_batches(rows)
    }


def test_a_request_that_says_nothing_keeps_the_backlog(purges: Purges, place: Place) -> None:
    purges.store(place)
    before = _backlog(place)
    job = purges.run(purges.submit(cutoff=OLD_CUTOFF))
    assert job.result is not None
    assert job.result["stranded"]["marked"] == 0
    assert sum(job.result["removed"].values()) > 0
    assert _backlog(place) == before


@pytest.mark.parametrize("said", ["REQUEST", "STORE"])
def test_an_explicit_word_gives_it_up(purges: Purges, place: Place, said: str) -> None:
    purges.store(place, parameters={MARK_STRANDED: True} if said == "STORE" else {})
    marked = len(_backlog(place))
    fields = {"stranded": "MARK"} if said == "REQUEST" else {}
    job = purges.run(purges.submit(cutoff=OLD_CUTOFF, **fields))
    assert job.result is not None
    assert (job.params["stranded_by"], job.result["stranded"]["marked"]) == (said, marked)


def test_skip_goes_over_what_the_store_says(purges: Purges, place: Place) -> None:
    purges.store(place, parameters={MARK_STRANDED: True})
    job = purges.run(purges.submit(cutoff=OLD_CUTOFF, stranded="SKIP"))
    assert job.result is not None
    assert job.result["stranded"]["marked"] == 0


def test_the_recurring_purge_keeps_it(purges: Purges, place: Place) -> None:
    purges.store(place, parameters={"start.purge.outgoing.job": True})
    bench = purges.bench
    tick_once(bench.database, bench.settings, now=bench.clock.now())
    with bench.database.transaction() as db:
        for kind in (PurgeKind.OUTGOING, PurgeKind.DATA_GAP):
            db.get_one(SweepTick, ("shop", kind.value)).next_at = bench.clock.now()
    jobs = tick_once(bench.database, bench.settings, now=bench.clock.now())
    params = [bench.job(job_id).params for job_id in jobs]
    assert len(params) == 2
    assert {each["stranded"] for each in params} == {"SKIP"}


def test_a_job_of_the_version_before_marks_nothing_unasked(purges: Purges, place: Place) -> None:
    """There MARK stood in every snapshot, whether or not somebody had said it."""
    purges.store(place)
    job_id = purges.submit(cutoff=OLD_CUTOFF, stranded="MARK")
    params = {name: value for name, value in purges.bench.job(job_id).params.items() if name != "stranded_by"}
    purges.bench.set(job_id, params=params)
    before = _backlog(place)
    job = purges.run(job_id)
    assert job.state == "SUCCEEDED"
    assert job.result is not None
    assert job.result["stranded"]["marked"] == 0
    assert _backlog(place) == before


def test_a_plan_says_what_a_mark_costs(place: Place) -> None:
    rows = rows_of(place)
    stranded = stranded_batches(rows)
    lost: dict[str, int] = {}
    for batch_id, node in stranded:
        events = sum(event["batch_id"] == batch_id for event in rows["data_event"])
        lost[node] = lost.get(node, 0) + events
    with connect(target_of(place), application_name="plan", read_only=True) as conn:
        plan = plan_outgoing(conn, PurgeSpec(place.encode(CUTOFF), mark_stranded=False))
    assert {node.node_id: node.rows for node in plan.stranded_nodes} == lost
    assert sum(node.batches for node in plan.stranded_nodes) == len(stranded)


def test_snapshot_of_a_plain_request_says_skip_by_default(purges: Purges, place: Place) -> None:
    purges.store(place)
    with purges.bench.database.transaction() as db:
        store = db.get_one(Store, "shop")
        found: PurgeParams = snapshot(db, store, PurgeRequest(kind=PurgeKind.OUTGOING), None)
    assert (found.stranded, found.stranded_by) == (StrandedMode.SKIP, "DEFAULT")
