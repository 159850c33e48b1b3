"""The last progress of a sweep says what its result says, and a total holds over all attempts.

A purge that was aborted soon after it had been resumed showed fewer rows removed than its result for good,
and one that went on showed the rows that were left as all there were.
"""

from __future__ import annotations

from typing import Any

import pytest

from app.db import Database
from app.jobs.queries import get_job
from app.jobs.running.context import JobContext
from app.settings import Settings
from app.sweeps.settling import settle, settled
from app.sweeps.start import noted_start, total_at_start
from app.sweeps.windows import CHECKPOINT_LOOP, LoopState
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench


@pytest.fixture
def context(database: Database, settings: Settings) -> JobContext:
    jobs = Workbench(database, FakeClock(), settings)
    jobs.submit()
    return jobs.context()


def _shown(**fields: Any) -> dict[str, Any]:
    return {"done": 10, "total": 90, "total_is_estimate": True, "fraction": 0.1111} | fields


@pytest.mark.parametrize(
    ("progress", "removed", "wanted"),
    [
        (_shown(removed=8), {"a": 7, "b": 2}, _shown(removed=9)),
        (_shown(removed=8), {"a": 12}, _shown(removed=12, done=12, fraction=0.1333)),
        (_shown(removed=8), {"a": 100}, _shown(removed=100, done=100, total=100, fraction=1.0)),
        (_shown(), {"changelog": 45}, _shown(done=45, fraction=0.5)),
        (_shown(total=None, fraction=None), {"a": 45}, _shown(done=45, total=None, fraction=None)),
        (None, {"a": 1}, None),
        (_shown(removed=8), None, _shown(removed=8)),
        (_shown(removed=8), 3, _shown(removed=8)),
    ],
)
def test_progress_becomes_what_the_result_says(
    progress: dict[str, Any] | None, removed: object, wanted: dict[str, Any] | None
) -> None:
    assert settled(progress, {} if removed is None else {"removed": removed}) == wanted


def test_it_is_written_with_the_result(context: JobContext) -> None:
    context.progress(unit="rows", done=10, total=90, total_is_estimate=True, removed=8)
    result = {"removed": {"event": 12}}
    context.write(lambda db: settle(context, db, result, {"result": result}))
    with context.database.reading() as db:
        job = get_job(db, context.job.id)
        assert job.progress is not None
        assert (job.progress["removed"], job.progress["done"], job.result) == (12, 12, result)


def test_the_first_attempts_look_holds_for_all(context: JobContext) -> None:
    looks = [{"total_rows": 100}, {"total_rows": 60}]
    assert [noted_start(context, lambda: looks.pop(0))["total_rows"] for _ in range(2)] == [100, 100]
    assert len(looks) == 1


def test_what_a_job_of_before_has_removed_counts_in_its_total(context: JobContext) -> None:
    assert total_at_start(context, 60) == 60
    context.save_checkpoint(CHECKPOINT_LOOP, LoopState("0", rows={"0": 30, "1": 10}).dump())
    assert total_at_start(context, 60) == 100
    assert total_at_start(context, None) is None
