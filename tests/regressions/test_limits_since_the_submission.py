"""A purge failed, an operator lowered the store's `max_rows`, and somebody retried the job: the retry
brought the old limit along and removed more than the store allows. And the plan of a first attempt that was
paused before its first delete was believed when the job went on, days and a million newly delivered rows
later.
"""

from __future__ import annotations

from pathlib import Path

from app.jobs.again import retry
from app.purge.task import CHECKPOINT_LIMITS
from tests.oracles.symmetricds import Place, session, snapshot
from tests.regressions.purges import OLD_CUTOFF, Purges


def test_retry_keeps_within_the_limit_that_the_store_has_now(purges: Purges, tmp_path: Path) -> None:
    place = purges.fill(Place(f"sqlite:///{tmp_path}/sym.db"))
    purges.store(place, limits={"max_rows": 1_000_000})
    first = purges.submit(cutoff=OLD_CUTOFF)
    purges.bench.set(first, state="FAILED")
    purges.change_store(limits={"max_rows": 5})
    again = purges.bench.do(retry, first, token_id="tok", queued_max=100).id
    before = snapshot(place)
    job = purges.run(again)
    assert job.error is not None
    assert job.error["code"] == "LIMIT_EXCEEDED"
    assert "5 may" in job.error["detail"]
    assert snapshot(place) == before


def test_plan_is_made_again_while_no_unit_has_begun(purges: Purges, tmp_path: Path) -> None:
    place = purges.fill(Place(f"sqlite:///{tmp_path}/sym.db"))
    purges.store(place, limits={"max_rows": 5})
    job_id = purges.submit(cutoff=OLD_CUTOFF)
    held = purges.attempt()
    held.save_checkpoint(CHECKPOINT_LIMITS, {"rows": 5, "rows_to_remove": 5})  # as it was before the pause
    purges.bench.set(job_id, state="QUEUED", lease_instance=None)
    with session(place) as target:
        target.run("update sym_outgoing_batch set status = 'OK'")  # and all is delivered since
    before = snapshot(place)
    job = purges.run(job_id)
    assert job.error is not None
    assert job.error["code"] == "LIMIT_EXCEEDED"
    assert snapshot(place) == before
