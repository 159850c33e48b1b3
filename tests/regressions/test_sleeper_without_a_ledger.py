"""Without a ledger a runner fell asleep after it had drawn a unit and before its thread had opened a
session. Nobody could end a session that was not there; the job was aborted. The runner woke, connected,
found the lock free, and removed the unit's rows after ABORTED had been said.
"""

from __future__ import annotations

from app.clock import SystemClock
from app.jobs.engines.engine import Borrower, InlineEngine
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.errors import TargetCancelled
from spark.targets.work import UnitWork


def test_new_session_of_a_job_that_is_lost_does_no_unit(postgresql_url: str) -> None:
    done: list[int] = []
    ours = [True]

    def run(conn: Connection, unit: int) -> int:
        done.append(unit)
        conn.close()  # the next unit needs a new session
        return unit

    work: UnitWork[int, int] = UnitWork(
        Target(postgresql_url), SessionLimits(), "job_x:units:1", run, advisory_key="public.sym_outgoing"
    )
    borrower = Borrower(may_work=lambda: bool(ours))
    with InlineEngine(SystemClock()).lease(work, workers=1, borrower=borrower) as lease:
        assert [outcome.error for outcome in lease.map(iter([1]))] == [None]
        ours.clear()
        [outcome] = lease.map(iter([2]))
    assert isinstance(outcome.error, TargetCancelled)
    assert done == [1]
