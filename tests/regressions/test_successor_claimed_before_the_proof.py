"""A proof of silence takes a token after every claim. A job that had been claimed a moment before, and came
to the target a moment after the proven one had set it free, met a fence above its own token: it took its
lease for lost, and stood there RUNNING, with nobody at work, until the lease had run out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.jobs.errors import JobWaiting, LeaseLost
from app.jobs.running import outcome
from app.jobs.running.sql_target import claim, controlled, prove_silence, read_store_of
from app.jobs.service import request_abort
from app.purge.rules import fence_resource
from app.sweeps.purging import JOB_PURGE
from tests.app.jobs.workbench import claimer
from tests.oracles.symmetricds import Place
from tests.regressions.purges import OLD_CUTOFF, Purges


@pytest.fixture
def place(purges: Purges, tmp_path: Path) -> Place:
    """A store to purge."""
    place = purges.fill(Place(f"sqlite:///{tmp_path}/sym.db"))
    purges.store(place)
    return place


@pytest.mark.usefixtures("place")
def test_successor_that_was_claimed_before_the_proof_is_claimed_again_at_once(purges: Purges) -> None:
    bench = purges.bench
    first, second = purges.submit(cutoff=OLD_CUTOFF), purges.submit(cutoff=OLD_CUTOFF)
    ending = purges.attempt()
    store = read_store_of(ending)
    with controlled(ending, store) as conn:
        claim(ending, conn, resource=fence_resource(store), queue=True)
    successor = purges.attempt()
    assert (ending.job.id, successor.job.id) == (first, second)
    bench.do(request_abort, first)
    prove_silence(ending)
    outcome.aborted(ending)
    with pytest.raises(JobWaiting) as waiting:
        purges.kinds[JOB_PURGE].run(successor)
    assert waiting.value.transient
    outcome.wait(successor, waiting.value, proven=False)
    bench.clock.sleep(2 * outcome.RETRY_BACKOFF_FIRST_S)
    assert purges.run(second).state == "SUCCEEDED"
    assert bench.row(second)["crash_count"] == 0


@pytest.mark.usefixtures("place")
def test_attempt_whose_job_was_taken_by_another_instance_gives_up(purges: Purges) -> None:
    job_id = purges.submit(cutoff=OLD_CUTOFF)
    sleeper = purges.attempt()
    purges.bench.set(job_id, state="QUEUED", lease_instance=None, lease_expires_at=None)
    taker = purges.bench.context(claimer("ins_b"))
    store = read_store_of(taker)
    with controlled(taker, store) as conn:
        claim(taker, conn, resource=fence_resource(store), queue=True)
    with pytest.raises(LeaseLost):
        purges.kinds[JOB_PURGE].run(sleeper)
