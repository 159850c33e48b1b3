"""One unit of a window brought the service down, each time. The other units of the window were found in the
ledger at every attempt, and shown as progress: the crashes counted from zero again, and CRASH_LOOP never
came. The same for a unit that failed transiently: its retries never ran out.
"""

from __future__ import annotations

from app.jobs.running.context import JobContext
from tests.app.jobs.workbench import Workbench


def _show(context: JobContext, done: int, *, repeated: int = 0) -> None:
    context.progress(unit="rows", done=done, total=100, repeated=repeated, force=True)


def test_rows_that_an_earlier_attempt_removed_forgive_no_crash(bench: Workbench) -> None:
    job_id = bench.submit()
    bench.set(job_id, crash_count=3, retries=4)
    context = bench.context()
    _show(context, 10)
    _show(context, 40, repeated=30)
    job = bench.job(job_id)
    assert (job.crash_count, job.retries) == (3, 4)
    assert job.progress is not None
    assert (job.progress["done"], job.progress["rate_per_s"]) == (40, None)
    _show(context, 41, repeated=30)
    job = bench.job(job_id)
    assert (job.crash_count, job.retries) == (0, 0)
