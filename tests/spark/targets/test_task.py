"""A task of units as a Python worker runs it: every end is a report, one connection, closed at the end."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark.targets import errors
from spark.targets.connection import Target
from spark.targets.errors import (
    ArchiveFailed,
    FenceRaised,
    TargetDatabaseMissing,
    TargetError,
    TargetLockTimeout,
)
from spark.targets.task import Report, Task, Unsendable, pack, run_task
from tests.spark.exchange.work import blunder, done, made_target, note, trip, work_of


def task_of(target: Target, run: object, units: list[Any]) -> Task:
    content = tuple((100 + place, pack(unit)) for place, unit in enumerate(units))
    return Task(7, pack(work_of(target, run)), content)


def opened(report: Report) -> tuple[Any, TargetError | None, float]:
    result, error, elapsed_s = pickle.loads(report.content)
    return result, error, elapsed_s


def test_units_of_a_task_are_done_in_their_order_on_one_connection(tmp_path: Path) -> None:
    target = made_target(tmp_path)
    reports = run_task(task_of(target, note, [3, 1, 2]))
    assert [(report.task, report.ticket, report.kind) for report in reports] == [
        (7, 100, "DONE"),
        (7, 101, "DONE"),
        (7, 102, "DONE"),
    ]
    assert [opened(report)[0] for report in reports] == [9, 1, 4]
    assert all(opened(report)[2] > 0 for report in reports)
    assert done(target) == [1, 2, 3]


def test_after_an_error_of_the_target_the_rest_is_not_run(tmp_path: Path) -> None:
    reports = run_task(task_of(made_target(tmp_path), trip, [3, 4, 5, 6]))
    assert [report.kind for report in reports] == ["DONE", "DONE", "NOT_RUN", "NOT_RUN"]
    assert isinstance(opened(reports[1])[1], TargetLockTimeout)


def test_worker_that_does_not_see_the_folder_of_the_files_does_nothing(tmp_path: Path) -> None:
    target, folder = made_target(tmp_path), tmp_path / "archive" / "shop" / "job_1"
    work = replace(work_of(target, note), folder=str(folder))
    [report] = run_task(Task(7, pack(work), ((100, pack(3)),)))
    result, error, _ = opened(report)
    assert result is None
    assert isinstance(error, ArchiveFailed)
    assert str(folder) in error.detail
    assert "must be shared storage" in error.detail
    assert done(target) == []
    folder.mkdir(parents=True)
    [report] = run_task(Task(7, pack(work), ((100, pack(3)),)))
    assert opened(report)[0] == 9


def test_target_that_cannot_be_opened_is_the_outcome_of_the_first_unit(tmp_path: Path) -> None:
    missing = Target(url=f"sqlite:///{tmp_path / 'nothing.db'}")
    reports = run_task(task_of(missing, note, [1, 2]))
    assert [report.kind for report in reports] == ["DONE", "NOT_RUN"]
    assert isinstance(opened(reports[0])[1], TargetDatabaseMissing)


def test_mistake_of_a_program_is_reported_not_raised(tmp_path: Path) -> None:
    reports = run_task(task_of(made_target(tmp_path), blunder, [1, 2]))
    assert [report.kind for report in reports] == ["BROKEN", "NOT_RUN"]
    assert reports[0].content == b"KeyError: 'unit 1'"


def test_work_whose_module_the_worker_lacks_is_reported_for_every_unit(tmp_path: Path) -> None:
    whole = task_of(made_target(tmp_path), note, [1, 2])
    foreign = Task(
        7, whole.work.replace(b"tests.spark.exchange.work", b"tests.spark.exchange.wrok"), whole.units
    )
    reports = run_task(foreign)
    assert [report.kind for report in reports] == ["BROKEN", "BROKEN"]
    assert b"wrok" in reports[0].content


def test_what_pickle_refuses_is_told_by_name() -> None:
    with pytest.raises(Unsendable, match="function cannot be sent"):
        pack(lambda: None)


@pytest.mark.parametrize("kind", [kind for _, kind in inspect.getmembers(errors, inspect.isclass)])
def test_every_error_of_a_target_survives_the_way_back(kind: type) -> None:
    if not issubclass(kind, TargetError) or kind is FenceRaised:
        return
    there = kind("the detail", sqlstate="55P03")
    here = pickle.loads(pack(there))
    assert (type(here), here.detail, here.sqlstate, here.code) == (kind, "the detail", "55P03", there.code)


def test_raised_fence_survives_the_way_back() -> None:
    here = pickle.loads(pack(FenceRaised("whose", token=3, fence_token=None)))
    assert (here.detail, here.token, here.fence_token) == ("whose", 3, None)
