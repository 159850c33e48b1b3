"""A worker of Spark that is cancelled lives on for some seconds, with the token of the attempt that was
aborted. The proof of silence raised the fence to that very token: the worker, awake again, found itself
allowed, and removed rows after ABORTED had been said.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.jobs.service import request_abort
from app.purge.rules import fence_resource
from app.stores.rows import Store
from app.stores.targets import place_of
from spark.purge.unit import UnitSpec, run_unit
from spark.targets.connection import connect
from spark.targets.errors import FenceRaised
from spark.targets.fence import check_fence
from tests.oracles.symmetricds import Place, snapshot
from tests.regressions.purges import OLD_CUTOFF, Purges


def test_unit_with_the_aborted_attempts_token_is_refused(purges: Purges, tmp_path: Path) -> None:
    bench, place = purges.bench, purges.fill(Place(f"sqlite:///{tmp_path}/sym.db"))
    purges.store(place)
    job_id = purges.submit(cutoff=OLD_CUTOFF, max_rows_in_tx=10, throttle={"rows_per_s": 40})
    with bench.running(purges.kinds):
        while not bench.job(job_id).progress:
            pass
        bench.do(request_abort, job_id)
        aborted = bench.until(job_id, "ABORTED")
    rows = snapshot(place)
    with bench.database.reading() as db:
        store = db.get(Store, "shop")
        assert store is not None
    unit = UnitSpec(
        job_id=job_id,
        unit_id="data-late",
        step="DATA",
        lo=0,
        hi=2**40,
        cutoff="2999-01-01 00:00:00",
        strict=False,
        token=aborted.fencing_token,
        resource=fence_resource(store),
    )
    with connect(place_of(store), application_name="late") as conn:
        with pytest.raises(FenceRaised):
            run_unit(conn, unit)
        with conn.transaction(), pytest.raises(FenceRaised):
            check_fence(conn, fence_resource(store), token=aborted.fencing_token)
    assert snapshot(place) == rows
