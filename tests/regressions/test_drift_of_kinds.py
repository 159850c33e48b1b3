"""The same act was written four times, and the copies had drifted. A unit that was too long for a statement
was divided by purges and cleanups, tried nine times unchanged by a purge CHANGELOG, and ended a scan for
extinct entries at once. An archive whose manifest could not be written at the end FAILED a purge OUTGOING,
and let a purge CHANGELOG and a cleanup SUCCEED without it. Which bounds hold a job was told by three kinds of
six, and a job that knows none took them without a word. One rule for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.clock import SystemClock
from app.jobs.again import set_throttle
from app.jobs.models import ThrottleSetting
from app.jobs.rows import Job
from app.jobs.running import sql_target
from app.replication.replica.replicas import close_idle_replicas
from app.settings import Settings
from app.verbs.table import VERBS
from app.verbs.verb import Limits
from spark.targets.manifest import MANIFEST_NAME, read_manifest_json
from tests.regressions.destructive_kinds import ARCHIVING, ELSEWHERE, KINDS, UPKEEP, Destructive, make
from tests.regressions.purges import Purges
from tests.spark.events.catalogs import Catalogs, catalogs, slony_templates  # noqa: F401 -- fixtures

pytestmark = pytest.mark.postgresql
ROW_S = 0.01
TIMEOUT_MS = 300
"""Of a statement: some thirty of the slow rows."""
ALIKE = {"DATA_GAP", *UPKEEP[1:]}
"""Differ from others by their statements only, which their oracles prove: asked in the long run."""


def _asked(kinds: Sequence[str]) -> list[Any]:
    """Each kind, those that are like another one in the long run."""
    return [pytest.param(kind, marks=pytest.mark.long if kind in ALIKE else ()) for kind in kinds]


@pytest.fixture
def clock() -> SystemClock:
    """Waits end by time: these tests run on the real one."""
    return SystemClock()


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def act(
    kind: str,
    purges: Purges,
    catalogs: Catalogs,  # noqa: F811
    postgresql_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    monkeypatch.setattr(sql_target, "ARCHIVE_LOOK_AGAIN", timedelta(milliseconds=200))
    yield make(kind, purges, catalogs, postgresql_url)
    close_idle_replicas()


def test_every_verb_that_removes_something_is_asked() -> None:
    removing = [verb for verb in VERBS if verb.limits is not Limits.REMOVES_NOTHING]
    names = [name for verb in removing for name in verb.acts or {verb.kind}]
    assert sorted(names) == sorted([*KINDS, *ELSEWHERE])


@pytest.mark.parametrize("kind", _asked(KINDS), indirect=True)
def test_unit_too_long_for_a_statement_is_divided(
    act: Destructive, purges: Purges, settings: Settings
) -> None:
    before = act.count()
    act.slow_down(ROW_S)
    purges.bench.settings = settings.model_copy(
        update={"target_statement_timeout_ms": TIMEOUT_MS, "purge_unit_retries_max": 5, "job_retries_max": 0}
    )
    job = purges.run(act.submit())
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert job.result is not None
    assert act.went(job.result) == before - act.count() > 2 * TIMEOUT_MS / 1000 / ROW_S


@pytest.mark.parametrize("kind", _asked(ARCHIVING), indirect=True)
def test_manifest_that_cannot_be_written_at_the_end_is_waited_for(
    act: Destructive, purges: Purges, settings: Settings
) -> None:
    before = act.count()
    job_id = act.submit(is_archived=True)
    in_the_way = settings.effective_archive_root / "shop" / job_id / MANIFEST_NAME / "in the way"
    in_the_way.mkdir(parents=True)
    with purges.bench.running(purges.kinds):
        waiting = purges.bench.until(job_id, "WAITING", "FAILED", "SUCCEEDED")
        assert waiting.state == "WAITING", (waiting.error, waiting.result)
        assert [each["kind"] for each in waiting.waiting_on] == ["ARCHIVE_FAILED"]
        assert "is a directory" in waiting.waiting_on[0]["ref"].lower()
        in_the_way.rmdir()
        in_the_way.parent.rmdir()
        job = purges.bench.until(job_id, "SUCCEEDED", "FAILED")
    _check_archived(act, job, before, in_the_way.parent.parent)


def _check_archived(act: Destructive, job: Job, before: int, directory: Path) -> None:
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert job.result is not None
    assert act.went(job.result) == before - act.count() > 0
    assert job.result["counts"] == "EXACT"
    entries = read_manifest_json(directory)
    assert entries is not None
    assert sum(entry.rows for entry in entries) == job.result["archive"]["rows"] >= act.went(job.result)


@pytest.mark.parametrize("kind", _asked(KINDS), indirect=True)
def test_bounds_that_hold_a_job_are_shown_with_their_cause(act: Destructive, purges: Purges) -> None:
    job_id = act.submit(rows_in_tx=5, rate=20)
    with purges.bench.running(purges.kinds):
        _await_bound(purges, job_id, 20)
        purges.bench.do(set_throttle, job_id, setting=ThrottleSetting(rows_per_s=30))
        _await_bound(purges, job_id, 30)
        purges.bench.do(set_throttle, job_id, setting=ThrottleSetting())
        job = purges.bench.until(job_id, "SUCCEEDED", "FAILED")
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert (job.throttle_effective, job.throttle_cause) == (None, None)


def _await_bound(purges: Purges, job_id: str, rows_per_s: float) -> None:
    deadline = time.monotonic() + 10
    while True:
        job = purges.bench.job(job_id)
        if job.throttle_effective is not None and job.throttle_effective["rows_per_s"] == rows_per_s:
            break
        assert job.state not in ("SUCCEEDED", "FAILED"), (job.state, job.error)
        assert time.monotonic() < deadline, (job.state, job.throttle_effective)
        time.sleep(0.02)
    assert job.throttle_cause == "REQUESTED"
