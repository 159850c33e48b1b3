"""A wake that comes before the WAITING it is meant for finds nobody; the wait itself must notice.

The parent of a batch looked at its children, the last of them ended and woke nobody, and only then the parent
became WAITING: it slept until it looked again by itself.
"""

import pytest

from app.jobs import outcome
from app.jobs.batch import run_batch
from app.jobs.errors import JobWaiting
from app.jobs.service import claim_key
from app.jobs.sql_target import _conflict
from app.jobs.states import JobState
from tests.app.jobs.workbench import Workbench


def test_child_that_ends_before_its_parent_waits_is_noticed(bench: Workbench) -> None:
    parent = bench.submit("BATCH", store=None)
    context = bench.context()
    child = bench.submit(parent_id=parent)
    with pytest.raises(JobWaiting) as caught:
        run_batch(context)
    bench.set(child, state=JobState.SUCCEEDED)
    outcome.wait(context, caught.value, proven=True)
    job = bench.job(parent)
    assert job.state == "WAITING"
    assert job.not_before is not None
    assert job.not_before <= job.updated_at


def test_child_that_goes_on_leaves_its_parent_waiting(bench: Workbench) -> None:
    parent = bench.submit("BATCH", store=None)
    context = bench.context()
    bench.submit(parent_id=parent)
    with pytest.raises(JobWaiting) as caught:
        run_batch(context)
    outcome.wait(context, caught.value, proven=True)
    assert bench.job(parent).not_before == caught.value.not_before


def test_claim_that_is_free_before_the_wait_is_noticed(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    waiting = _conflict(context.clock, "job_other", "target", "tables", queue=True)
    assert isinstance(waiting, JobWaiting)
    assert waiting.wake_key == claim_key("target", "tables")
    outcome.wait(context, waiting, proven=True)
    job = bench.job(job_id)
    assert job.not_before is not None
    assert waiting.not_before is not None
    assert job.not_before < waiting.not_before
