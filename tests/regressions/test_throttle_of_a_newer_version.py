"""A bound that a newer version beside us has given to one job made the control loop of our runner fail as a
whole: no job that it held heard of a pause, an abort or its windows. The job, and every list with it, was
answered by 500, and no runner of this version could begin it.
"""

from __future__ import annotations

from typing import Any

import pytest

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.fleet.sight import Sight
from app.fleet.standing import work_of
from app.jobs.models import read_job
from app.jobs.service import request_abort
from app.jobs.states import JobState
from tests.app.jobs.workbench import Workbench, finish, kind, work_until_stopped

NEWER: tuple[dict[str, Any], ...] = (
    {"rows_per_s": 50.0, "statements_per_s": 3.0},
    {"rows_per_s": 50.0, "intensity": "GENTLE"},
)


@pytest.mark.parametrize("throttle", NEWER)
def test_the_other_jobs_of_a_runner_hear_of_their_orders(bench: Workbench, throttle: dict[str, Any]) -> None:
    strange, plain = bench.submit(), bench.submit(store="other")
    with bench.running(kind(work_until_stopped)) as runner:
        bench.until(strange, "RUNNING")
        bench.until(plain, "RUNNING")
        bench.set(strange, throttle_requested=throttle)
        bench.do(request_abort, plain, reason="enough")
        runner.wake()
        bench.until(plain, "ABORTED")
        bench.do(request_abort, strange, reason="enough")
        runner.wake()
        bench.until(strange, "ABORTED")


@pytest.mark.parametrize("throttle", NEWER)
def test_a_job_of_such_a_bound_is_shown_and_run(bench: Workbench, throttle: dict[str, Any]) -> None:
    job_id = bench.submit()
    bench.set(job_id, throttle_requested=throttle, throttle_effective=throttle)
    shown = read_job(bench.job(job_id)).throttle
    assert shown.requested is not None
    assert shown.requested.model_dump(exclude_none=True) == {"rows_per_s": 50.0}
    assert shown.effective == shown.requested
    with bench.running(kind(finish)):
        assert bench.until(job_id, "SUCCEEDED").crash_count == 0


@pytest.mark.parametrize("throttle", NEWER)
def test_the_overview_tells_of_it(bench: Workbench, throttle: dict[str, Any]) -> None:
    bench.put(JobState.RUNNING, throttle_effective=throttle)
    sight = Sight(Caller("tok_1", "ann", frozenset(Scope), None), bench.clock.now())
    with bench.database.reading() as db:
        (told,) = work_of(db, sight, ["shop"]).running
    assert told.throttle is not None
    assert told.throttle.rows_per_s == 50.0
