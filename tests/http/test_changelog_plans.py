"""A purge CHANGELOG of a reviewed plan: no record beyond it; `max_drift` says how many fewer are fine."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from spark.formats.csn import Csn
from tests.http.changelogs import OLD_S, MakeChangelog, Replica, changelog_maker, csn, old
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what differs here is at the target."""
    return sqlite_service


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def make(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> MakeChangelog:
    """Makes a replica on either kind of target; it has written one change already."""
    return changelog_maker(request, http, roots)


@pytest.fixture
def replica(make: MakeChangelog) -> Replica:
    """A replica with one change of its own, logged now."""
    return make()


@pytest.mark.parametrize(("max_drift", "holds"), [(3, False), (0.3, False), (4, True), (0.5, True)])
def test_fewer_records_than_max_drift_allows_are_412(replica: Replica, max_drift: float, holds: bool) -> None:
    """`max_drift` was taken and had no effect: four of ten reviewed records were held by an agreement that
    came after the review, and the purge of the plan said SUCCEEDED.
    """
    replica.log(old(2, 10))
    plan = replica.plan(retention_minutes=60).json()["plan_id"]
    replica.acknowledge("agr_late", {1: Csn("f" * 8 + "0000" + "0001" + "0000"), 2: csn(5, 2)})
    before = replica.left()
    if not holds:
        told = problem(replica.purge(plan_id=plan, max_drift=max_drift), 412, "PLAN_NO_LONGER_HOLDS")
        assert told["detail"].startswith("10 rows were reviewed, 6 of them would go now: 4 fewer")
        assert replica.left() == before
        return
    result = replica.done(plan_id=plan, max_drift=max_drift)
    assert (result["planned"], result["removed"]) == ({"changelog": 10}, {"changelog": 6})
    assert (result["plan_id"], result["fewer_than_planned"]) == (plan, 4)


def test_the_job_counts_once_more_before_its_first_record(replica: Replica) -> None:
    replica.log(old(2, 10))
    plan = replica.plan(retention_minutes=60).json()["plan_id"]
    with replica.suspended():
        job_id = accepted(replica.purge(plan_id=plan, max_drift=0))
        replica.acknowledge("agr_late", {1: Csn("f" * 8 + "0000" + "0001" + "0000"), 2: csn(5, 2)})
        before = replica.left()
    job = wait_for(replica.http, job_id)
    assert (job["state"], job["error"]["code"]) == ("FAILED", "PLAN_NO_LONGER_HOLDS")
    assert "max_drift allows 0" in job["error"]["detail"]
    assert replica.left() == before


def test_records_that_came_below_the_reviewed_ones_are_another_changelog(replica: Replica) -> None:
    replica.log(old(2, 10)[5:])
    plan = replica.plan(retention_minutes=60).json()["plan_id"]
    replica.log([*old(2, 5), (csn(10, 2), OLD_S)])
    told = problem(replica.purge(plan_id=plan), 412, "PLAN_NO_LONGER_HOLDS")
    assert "5 records of replica id 2 were reviewed, and up to the last of them 10" in told["detail"]
    assert len(replica.left()) == 12


def test_a_limit_is_held_against_what_was_reviewed_not_against_what_came_since(
    make: MakeChangelog,
) -> None:
    replica = make(limits={"max_rows": 6})
    replica.log(old(2, 6))
    plan = replica.plan(retention_minutes=60).json()
    assert plan["limits"] == {"max_rows": 6, "max_fraction": None, "exceeded": []}
    replica.log([(csn(number, 3), OLD_S) for number in range(5)])
    result = replica.done(plan_id=plan["plan_id"], max_drift=0)
    assert result["removed"] == result["planned"] == {"changelog": 6}
    assert len(replica.left()) == 6
