"""Lethe's own rows: each table has its retention, and nothing that is still needed goes."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from sqlmodel import select

from app.archives.rows import Archive
from app.auth.rows import AuditEvent, IdempotencyKey
from app.db import Database
from app.jobs.rows import Job, JobCheckpoint, JobEvent
from app.jobs.states import TERMINAL, JobState
from app.jobs.writing import EVENT_PROGRESS
from app.kit.ids import new_id
from app.parameters.service import known_parameter, set_global
from app.retention import ROWS_PER_PASS, forget_rows, remove_expired_archives
from app.settings import Settings
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench


@pytest.fixture
def bench(database: Database, clock: FakeClock, settings: Settings) -> Workbench:
    return Workbench(database, clock, settings)


@pytest.fixture
def ago(database: Database) -> Callable[[float], datetime]:
    def moment(days: float) -> datetime:
        with database.reading() as db:
            return database.now(db) - timedelta(days=days)

    return moment


def ended(
    bench: Workbench, at: datetime, *, state: JobState = JobState.SUCCEEDED, parent: str | None = None
) -> str:
    job_id = bench.submit(parent_id=parent)
    bench.set(job_id, state=state, finished_at=at)
    with bench.database.transaction() as db:
        db.add(JobCheckpoint(job_id=job_id, name="units", value={}, at=at))
        db.add(JobEvent(job_id=job_id, seq=2, at=at, type="progress", data={}))
    return job_id


def jobs(database: Database) -> set[str]:
    with database.reading() as db:
        return set(db.exec(select(Job.id)).all())


def test_ended_job_goes_after_ninety_days_with_all_that_is_its(bench: Workbench, ago) -> None:
    old = ended(bench, ago(90.1))
    young = ended(bench, ago(89.9))
    assert forget_rows(bench.database)["jobs"] == 1
    assert jobs(bench.database) == {young}
    with bench.database.reading() as db:
        assert db.exec(select(JobEvent).where(JobEvent.job_id == old)).all() == []
        assert db.exec(select(JobCheckpoint).where(JobCheckpoint.job_id == old)).all() == []


@pytest.mark.parametrize("state", [state for state in JobState if state not in TERMINAL])
def test_job_that_has_not_ended_never_goes(bench: Workbench, ago, state: JobState) -> None:
    job_id = bench.put(state, created_at=ago(4_000), updated_at=ago(4_000))
    forget_rows(bench.database)
    assert jobs(bench.database) == {job_id}


def test_parent_goes_only_after_its_children(bench: Workbench, ago) -> None:
    parent = ended(bench, ago(100))
    child = ended(bench, ago(10), parent=parent)
    forget_rows(bench.database)
    assert jobs(bench.database) == {parent, child}
    bench.set(child, finished_at=ago(95))
    for _ in range(2):
        forget_rows(bench.database)
    assert jobs(bench.database) == set()


def test_job_stays_as_long_as_its_archive(bench: Workbench, ago) -> None:
    job_id = ended(bench, ago(100))
    with bench.database.transaction() as db:
        db.add(_archive(job_id, "/nowhere", expires_at=ago(-1), at=ago(100)))
    forget_rows(bench.database)
    assert jobs(bench.database) == {job_id}


def _archive(job_id: str, directory: str, *, expires_at: datetime, at: datetime) -> Archive:
    return Archive(
        job_id=job_id, store="shop", directory=directory, instance="ins_a", resource="sym_",
        created_at=at, expires_at=expires_at,
    )  # fmt: skip


def test_progress_of_ended_jobs_goes_and_transitions_stay(bench: Workbench, ago) -> None:
    old, young = ended(bench, ago(15)), ended(bench, ago(13))
    running = bench.put(JobState.RUNNING)
    with bench.database.transaction() as db:
        db.add(JobEvent(job_id=running, seq=2, at=ago(15), type="progress", data={}))
        db.add(JobEvent(job_id=old, seq=3, at=ago(15), type="warning", data={}))
    assert forget_rows(bench.database)["events"] == 1
    kinds = {job_id: [event.type for event in bench.events(job_id)] for job_id in (old, young, running)}
    assert kinds == {
        old: ["state", "warning"],
        young: ["state", "progress"],
        running: ["state", "progress"],
    }


def test_audit_rows_and_keys_go_at_their_time(bench: Workbench, ago) -> None:
    with bench.database.transaction() as db:
        for days in (731, 729):
            db.add(
                AuditEvent(
                    id=new_id("aud"),
                    at=ago(days),
                    actor="ann",
                    action="x",
                    subject_type="y",
                    subject_id=str(days),
                )
            )
        for days in (6.9, 7.1):
            db.add(
                IdempotencyKey(
                    token_id="t", method="POST", path="/", key=str(days), request_sha256="", status=200,
                    created_at=ago(days),
                )
            )  # fmt: skip
    gone = {table: count for table, count in forget_rows(bench.database).items() if count}
    assert gone == {"audit": 1, "idempotency": 1}
    with bench.database.reading() as db:
        assert [row.subject_id for row in db.exec(select(AuditEvent)).all()] == [
            "729",
            "chain",  # it tells up to which row the others went
        ]
        assert [row.key for row in db.exec(select(IdempotencyKey)).all()] == ["6.9"]


def test_retention_is_a_parameter_each(bench: Workbench, ago) -> None:
    job_id = ended(bench, ago(0.2))
    with bench.database.transaction() as db:
        set_global(db, known_parameter("lethe.retention.jobs"), "PT1H", now=bench.clock.now())
    assert forget_rows(bench.database)["jobs"] == 1
    assert job_id not in jobs(bench.database)


def test_expired_archive_goes_with_its_files_and_others_stay(bench: Workbench, ago) -> None:
    root = bench.settings.effective_archive_root
    expired, kept = root / "shop" / "job_a", root / "shop" / "job_b"
    outside = bench.settings.data_dir / "precious"
    foreign = root / "shop" / "job_d"
    for directory in (expired, kept, outside, foreign):
        directory.mkdir(parents=True)
        (directory / "u-1.parquet").write_bytes(b"rows")
    with bench.database.transaction() as db:
        db.add(_archive("job_a", str(expired), expires_at=ago(0.1), at=ago(400)))
        db.add(_archive("job_b", str(kept), expires_at=ago(-0.1), at=ago(300)))
        db.add(_archive("job_c", str(outside), expires_at=ago(0.1), at=ago(400)))
        row = _archive("job_d", str(foreign), expires_at=ago(0.1), at=ago(400))
        row.instance = "ins_other"
        db.add(row)
    assert remove_expired_archives(bench.database, bench.settings, instance_id="ins_a") == ["job_a"]
    assert [path.exists() for path in (expired, kept, outside, foreign)] == [False, True, True, True]
    with bench.database.reading() as db:
        assert sorted(db.exec(select(Archive.job_id)).all()) == ["job_b", "job_c", "job_d"]


def test_archive_that_a_job_still_uses_stays_on_disk(bench: Workbench, ago) -> None:
    directories = {}
    writing = bench.put(JobState.RUNNING)
    read = ended(bench, ago(400))
    bench.put(JobState.QUEUED, subject={"type": "archive", "id": read, "href": f"/v1/archives/{read}"})
    for job_id in (writing, read):
        directories[job_id] = bench.settings.effective_archive_root / "shop" / job_id
        directories[job_id].mkdir(parents=True)
        with bench.database.transaction() as db:
            db.add(_archive(job_id, str(directories[job_id]), expires_at=ago(0.1), at=ago(400)))
    assert remove_expired_archives(bench.database, bench.settings, instance_id="ins_a") == []
    assert all(directory.exists() for directory in directories.values())


def test_any_number_of_archives_of_others_hides_none(bench: Workbench, ago) -> None:
    root = bench.settings.effective_archive_root
    mine = root / "shop" / "job_z"
    mine.mkdir(parents=True)
    with bench.database.transaction() as db:
        for number in range(ROWS_PER_PASS):
            job_id = f"job_{number:04d}"
            row = _archive(job_id, str(root / "shop" / job_id), expires_at=ago(1), at=ago(400))
            row.instance = "ins_gone"
            db.add(row)
        db.add(_archive("job_z", str(mine), expires_at=ago(0.1), at=ago(400)))
    assert remove_expired_archives(bench.database, bench.settings, instance_id="ins_a") == ["job_z"]
    assert not mine.exists()


def test_more_rows_than_one_piece_go_in_one_pass(bench: Workbench, ago) -> None:
    job_id = ended(bench, ago(30))
    number = 2 * ROWS_PER_PASS + 1
    with bench.database.transaction() as db:
        old = {"job_id": job_id, "at": ago(20), "type": EVENT_PROGRESS, "data": {}}
        db.add_all([JobEvent(seq=1_000 + seq, **old) for seq in range(number)])
    assert forget_rows(bench.database, ["events"])["events"] >= number
