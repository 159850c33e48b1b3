"""A cycle took no `plan_id`: one thing was reviewed, and what the log held by then was erased."""

from __future__ import annotations

import pytest

from app.erase.errors import PeriodMissing
from app.jobs.errors import PlanNoLongerHolds, PlanNotUsable
from app.jobs.rows import JobCheckpoint
from spark.erase.calls.calls import PlanCall
from spark.erase.entry_tables import unpack
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog

AT_ONCE = {"duration": "PT0S"}


def erased(log: FakeLog) -> dict[int, set[int]]:
    """Offsets that were overwritten, by file."""
    found: dict[int, set[int]] = {}
    for number in log.files:
        for call in log.rounds_of(number):
            found.setdefault(number, set()).update(unpack(call.entries)["offset"].to_pylist())
    return found


def entries_of(log: FakeLog, *numbers: int) -> dict[int, set[int]]:
    return {number: set(log.files[number].entries()["offset"].to_pylist()) for number in numbers}


def test_what_became_obsolete_since_the_review_stays(erasers: Erasers, log: FakeLog) -> None:
    for number in (0, 1):
        log.files[number].rounds = 1  # of two: the second entry is still in use
    plan = erasers.plan()
    reviewed = entries_of(log, 0, 1)
    log.files[0].rounds = log.files[1].rounds = 2
    log.add(3, rounds=2)  # the file that was the last one is old by now
    erasers.begin(plan_id=plan.id, max_drift=0, **AT_ONCE)
    erasers.run()
    assert erased(log) == reviewed
    assert erasers.states() == {0: "ERASED", 1: "ERASED", 2: "KEPT", 3: "NOT_SELECTED"}
    assert erasers.file(0).kept == {"NOT_REVIEWED": [1, 100]}
    assert [cause for cause, _detail in erasers.file(2).causes] == ["NOT_REVIEWED"]
    result = erasers.job().result
    assert result is not None
    assert (result["planned"], result["erased"]) == ({"entries": 2}, {"entries": 2})
    assert (result["plan_id"], result["fewer_than_planned"]) == (plan.id, 0)
    erasers.begin()
    erasers.run()
    again = erasers.job().result
    assert again is not None
    assert again["erased"] == {"entries": 6}
    assert "planned" not in again


def test_what_becomes_obsolete_while_the_cycle_plans_anew_stays(erasers: Erasers, log: FakeLog) -> None:
    """A concurrent writer, at every plan that the cycle makes."""
    log.files[1].causes = {"RECOVERY_INTERVAL": "the recovery would read from here on"}
    log.files[0].rounds = 1
    plan = erasers.plan()
    reviewed = entries_of(log, 0)

    def write(_call: PlanCall) -> None:
        log.files[0].rounds = 2
        log.files[1].causes = {}

    log.on_plan = write
    erasers.begin(plan_id=plan.id, **AT_ONCE)
    erasers.run()
    assert erased(log) == reviewed
    assert erasers.states()[1] == "KEPT"


def test_another_file_or_entry_at_the_same_place_was_not_reviewed(erasers: Erasers, log: FakeLog) -> None:
    plan = erasers.plan()
    path = log.directory / "00000000.jdb"
    path.rename(log.directory / "old")
    log.add(0, rounds=2)
    log.files[1].checksum = 2
    erasers.begin(plan_id=plan.id, **AT_ONCE)
    erasers.run()
    assert erased(log) == {}
    result = erasers.job().result
    assert result is not None
    assert (result["planned"], result["erased"]) == ({"entries": 4}, {"entries": 0})


@pytest.mark.parametrize(("max_drift", "holds"), [(1, False), (0.4, False), (2, True), (0.5, True)])
def test_fewer_entries_than_max_drift_allows_end_the_cycle_before_its_first_write(
    erasers: Erasers, log: FakeLog, max_drift: float, holds: bool
) -> None:
    plan = erasers.plan()
    log.files[0].rounds = log.files[1].rounds = 1
    erasers.begin(plan_id=plan.id, max_drift=max_drift, **AT_ONCE)
    erasers.run()
    job = erasers.job()
    if holds:
        assert (job.state, erased(log)) == ("SUCCEEDED", entries_of(log, 0, 1))
        return
    assert (job.state, erasers.cycle().state, erased(log)) == ("FAILED", "FAILED", {})
    assert job.error is not None
    assert job.error["code"] == "PLAN_NO_LONGER_HOLDS"
    assert job.error["detail"].startswith("4 entries were reviewed, 2 of them would go now: 2 fewer")


def test_a_file_that_is_gone_is_412_at_once(erasers: Erasers, log: FakeLog) -> None:
    plan = erasers.plan()
    log.remove(0)
    with pytest.raises(PlanNoLongerHolds, match="4 entries were reviewed, 2 of them"):
        erasers.begin(plan_id=plan.id, max_drift=0, **AT_ONCE)
    assert erasers.cycles() == []


def test_a_file_that_was_not_to_be_deleted_is_not(erasers: Erasers, log: FakeLog) -> None:
    erasers.change_store(delete_reserved_files=True)
    log.files[0].reserved = True
    plan = erasers.plan()
    assert plan.result is not None
    assert [file["deleted"] for file in plan.result["files"]] == [True, False, False]
    log.files[1].reserved = True
    erasers.begin(plan_id=plan.id, **AT_ONCE)
    erasers.run()
    assert erasers.states() == {0: "DELETED", 1: "CLEAN", 2: "NOT_SELECTED"}


def test_limits_are_held_against_what_was_reviewed(erasers: Erasers, log: FakeLog) -> None:
    erasers.change_store(limits={"max_rows": 2, "max_parallel_jobs": 1})
    for number in (0, 1):
        log.files[number].rounds = 1
    plan = erasers.plan()
    assert plan.result is not None
    assert plan.result["limits"] == {"max_rows": 2, "max_fraction": None, "max_bytes": None, "exceeded": []}
    log.files[0].rounds = 2
    erasers.begin(plan_id=plan.id, **AT_ONCE)
    erasers.run()
    assert (erasers.job().state, erased(log)) == ("SUCCEEDED", {0: {38}, 1: {38}})


def test_an_outdated_or_another_plan_is_refused(erasers: Erasers) -> None:
    plan = erasers.plan()
    with pytest.raises(PlanNotUsable, match="kinds"):
        erasers.begin(plan_id=plan.id, kinds=["EXTINCT_RECORDS"], **AT_ONCE)
    with pytest.raises(PlanNotUsable, match="no finished plan"):
        erasers.begin(plan_id=f"job_{'0' * 26}", **AT_ONCE)
    erasers.change_store(limits={"max_bytes": 5, "max_parallel_jobs": 1})
    with pytest.raises(PlanNoLongerHolds, match="limits"):
        erasers.begin(plan_id=plan.id, **AT_ONCE)
    erasers.change_store(limits={"max_parallel_jobs": 1}, path="/elsewhere")
    with pytest.raises(PlanNoLongerHolds, match="target"):
        erasers.begin(plan_id=plan.id, **AT_ONCE)
    erasers.change_store(path=str(erasers.log.directory))
    by_period = erasers.plan(kinds=["ALL_OBSOLETE_ENTRIES"])
    with pytest.raises(PeriodMissing, match="duration"):
        erasers.begin(plan_id=by_period.id)
    erasers.clock.advance(erasers.settings.plan_valid_s)
    with pytest.raises(PlanNoLongerHolds, match="expired"):
        erasers.begin(plan_id=plan.id, **AT_ONCE)


def test_a_plan_of_the_version_before_is_made_again(erasers: Erasers) -> None:
    plan = erasers.plan()
    with erasers.database.transaction() as db:
        db.delete(db.get_one(JobCheckpoint, (plan.id, "reviewed")))
    with pytest.raises(PlanNoLongerHolds, match="plan again"):
        erasers.begin(plan_id=plan.id, **AT_ONCE)


def test_nothing_follows_a_cycle_of_a_plan_that_expired(erasers: Erasers, log: FakeLog) -> None:
    """A fresh one would erase whatever there is by then."""
    plan = erasers.plan()
    erasers.begin(plan_id=plan.id, duration="PT1000S")
    erasers.run(until=lambda: log.order() == [0])
    erasers.restart(away_s=2_000.0)
    erasers.run()
    assert erasers.cycle().state == "EXPIRED"
    erasers.tick()
    assert len(erasers.cycles()) == 1
