"""Figures as the alert rules need them: zeros before the first, and times since what they speak of."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.figures.sums import Name, count
from app.jobs.counting import QUEUED
from app.jobs.states import TERMINAL, JobState
from tests.app.jobs.workbench import Workbench
from tests.app.metrics.test_metrics import scraped


def test_the_first_that_fails_is_an_increase_of_a_zero_that_was_there(bench: Workbench) -> None:
    # For Prometheus what first appears as a one is no increase: the first that was abandoned alerted nobody.
    before = scraped(bench.database)
    for state in TERMINAL:
        for verb in ("PURGE", "ERASURE", "REPLICATION_SESSION", "PLAN", "BATCH"):
            assert before[f'lethe_jobs_ended_total{{kind="{verb}",state="{state}"}}'] == 0
    with bench.database.transaction() as db:
        count(db, Name.JOBS_ENDED, "PURGE", "ABANDONED", store="shop", now=bench.clock.now())
    assert scraped(bench.database)['lethe_jobs_ended_total{kind="PURGE",state="ABANDONED"}'] == 1


def test_age_of_the_queue_is_that_of_the_stay_in_it(bench: Workbench) -> None:
    # A job that was resumed after three days of rest had been "QUEUED for 3d" at once.
    with bench.database.reading() as db:
        now = bench.database.now(db)
    rested = {"created_at": now - timedelta(days=3), "waiting_cause": QUEUED}
    bench.put(JobState.QUEUED, waiting_since=now - timedelta(minutes=2), **rested)
    assert scraped(bench.database)["lethe_queue_oldest_age_seconds"] == pytest.approx(120, abs=60)
    of_before = {"created_at": now - timedelta(hours=2), "waiting_since": None}  # no version noted it
    bench.put(JobState.QUEUED, **of_before)
    assert scraped(bench.database)["lethe_queue_oldest_age_seconds"] == pytest.approx(7_200, abs=60)
