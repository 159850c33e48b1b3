"""What is left of cycles: statistics by the document's names, metrics, and retention with the jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import delete
from sqlmodel import func, select

from app.erase.models import StatsRead
from app.erase.queries import newest_cycle
from app.erase.rows import ErasureCycle, ErasureFile, ErasureStore
from app.erase.stats import stats_of_store
from app.jobs.rows import Job, JobCheckpoint, JobEvent
from app.metrics import render_metrics
from tests.app.erase.erasers import Erasers


def stats(erasers: Erasers) -> StatsRead:
    with erasers.database.reading() as db:
        return stats_of_store(db, erasers.store_id, newest_cycle(db, erasers.store_id))


def test_store_without_a_cycle_has_empty_times_and_zeros(erasers: Erasers) -> None:
    found = stats(erasers)
    assert found.erasure_cycle_id is None
    assert set(found.cycle.model_dump().values()) == {"", 0}


def test_statistics_have_the_eleven_names_of_the_document(erasers: Erasers) -> None:
    erasers.begin(min_file_age="PT0S", duration="PT1000S")
    erasers.run(until_s=999)
    assert stats(erasers).cycle.model_dump() == {
        "eraserCycleStart": erasers.events("eraser")[1]["start"],
        "eraserCycleEnd": erasers.events("eraser")[1]["end"],
        "eraserFilesRemaining": 0,
        "eraserFilesErased": 2,
        "eraserFilesDeleted": 0,
        "eraserFilesAlreadyDeleted": 0,
        "eraserFSyncs": 24,
        "eraserReads": 12,
        "eraserReadBytes": 3 * 38 + 10 + 8 * 1000,
        "eraserWrites": 16,
        "eraserWriteBytes": 8 * 200,
    }


def test_metrics_show_the_statistics_of_each_store(erasers: Erasers) -> None:
    erasers.begin()
    erasers.run()
    text = render_metrics(erasers.database, alive_within_s=60).decode()
    assert 'lethe_eraser_files_erased_total{store="je"} 2.0' in text
    assert 'lethe_eraser_fsyncs_total{store="je"} 24.0' in text
    assert 'lethe_eraser_files_remaining{store="je"} 0.0' in text
    assert 'lethe_eraser_cycle_state{state="COMPLETE",store="je"} 1.0' in text
    name = "lethe_eraser_cycle_start_timestamp_seconds{"
    [line] = [row for row in text.splitlines() if row.startswith(name)]
    started = erasers.cycle().started_at
    assert started is not None
    assert float(line.split()[-1]) == pytest.approx(started.timestamp())


def test_statistics_tell_why_no_cycle_was_begun(erasers: Erasers) -> None:
    """Else it stood in the log alone."""
    erasers.begin()
    erasers.run()
    assert stats(erasers).not_begun is None
    with erasers.database.transaction() as db:
        row = db.get_one(ErasureStore, erasers.store_id)
        row.trouble = "CONFLICTING_JOB: job_1 writes here"
        db.add(row)
    assert stats(erasers).not_begun == "CONFLICTING_JOB: job_1 writes here"


def test_metrics_show_what_is_protected(erasers: Erasers) -> None:
    erasers.protect(0, lease=timedelta(hours=1))
    text = render_metrics(erasers.database, alive_within_s=60).decode()
    assert 'lethe_protections_active{kind="BACKUP",store="je"} 1.0' in text
    assert 'lethe_protections_active{kind="SCAN",store="je"} 0.0' in text
    erasers.clock.advance(3_601)
    text = render_metrics(erasers.database, alive_within_s=60).decode()
    assert 'lethe_protections_active{kind="BACKUP",store="je"} 0.0' in text


def test_cycle_goes_with_its_job_and_the_sums_stay(erasers: Erasers) -> None:
    erasers.begin()
    erasers.run()
    with erasers.database.transaction() as db:
        for table in (JobEvent, JobCheckpoint, Job):
            db.execute(delete(table))
    with erasers.database.reading() as db:
        counts = [
            db.exec(select(func.count()).select_from(table)).one()
            for table in (ErasureCycle, ErasureFile, ErasureStore)
        ]
    assert counts == [0, 0, 1]
    assert erasers.sums().files_erased == 2
