"""Cycles as rows by hand, and their certificates."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from lethe_client.certificates import verify_certificate

from app.db import Database
from app.erase.certificates.certificate import document_of, issue_certificate
from app.erase.certificates.rows import ErasureCertificate
from app.erase.rows import CycleState, ErasureCycle, ErasureFile, FileState
from app.jobs.service import JobRequest, submit
from app.jobs.states import JobState
from app.kit.ids import new_id
from app.settings import Settings
from app.stores.rows import Store, StoreKind, StoreMode
from tests.app.fake_clock import FakeClock

STORE = "je"
PLAN = {
    "first_active": (3 << 32) + 100,
    "checkpoint_lsn": (3 << 32) + 900,
    "vetoed": [[(1 << 32) + 38, "SUPERSEDED"]],
    "vetoed_count": 7,
    "missing_count": 2,
    "vlsn": None,
    "torn_at": None,
    "nodes_wait": True,
}
BEFORE, AFTER = "a" * 64, "b" * 64


class Ledger:
    """Rows of cycles by hand."""

    def __init__(self, database: Database, settings: Settings, clock: FakeClock, directory: Path) -> None:
        self.database, self.settings, self.clock, self.directory = database, settings, clock, directory
        now = clock.now()
        with database.transaction() as db:
            fields = {"path": str(directory), "mode": StoreMode.CLOSED, "created_at": now, "updated_at": now}
            db.add(Store(id=STORE, kind=StoreKind.JE, **fields))

    def add(self, state: CycleState, job_state: JobState, *files: ErasureFile, **fields: Any) -> str:
        """A cycle; `path` is that of its target."""
        now = self.clock.now()
        path = fields.pop("path", str(self.directory))
        with self.database.transaction() as db:
            request = JobRequest(
                kind="ERASURE",
                store=STORE,
                params={"target": {"path": path}},
                requested_by="ann",
                reason="of age",
            )
            job = submit(db, request, now=now, queued_max=100)
            job.state, job.finished_at = job_state, now + timedelta(hours=1)
            db.add(job)
            named = {"id": new_id("cyc"), "store": STORE, "job_id": job.id, "state": state}
            times = {"created_at": now, "started_at": now, "updated_at": now}
            spans = {"min_file_age_s": 0.0, "duration_s": 60.5, "plan": PLAN, "mode": "CLOSED"}
            cycle = ErasureCycle(**(named | times | spans | fields))
            db.add(cycle)
            db.flush()
            for file in files:
                file.cycle_id = cycle.id
                db.add(file)
            cycle_id = cycle.id
        self.clock.advance(1)
        return cycle_id

    def issue(self, cycle_id: str) -> ErasureCertificate:
        return issue_certificate(
            self.database, self.settings, cycle_id, instance_id="ins_a", now=self.clock.now()
        )

    def said(self, cycle_id: str) -> dict[str, Any]:
        """What the certificate of a cycle says."""
        return dict(verify_certificate(document_of(self.issue(cycle_id))).certificate)

    def remove(self, model: type, key: str) -> None:
        with self.database.transaction() as db:
            db.delete(db.get_one(model, key))


def file(number: int, state: FileState, **fields: Any) -> ErasureFile:
    return ErasureFile(cycle_id="", number=number, state=state, size_bytes=1000, **fields)


def proved(number: int, **fields: Any) -> ErasureFile:
    known = {
        "planned": {"SUPERSEDED": [3, 300], "OLD_NODE": [1, 50]},
        "kept": {"SWITCHED_OFF": [2, 20]},
        "entry_count": 4,
        "rows_done": 4,
        "entries_erased": 4,
        "is_proved": True,
        "was_written": True,
        "sha256_before": BEFORE,
        "sha256_expected": AFTER,
        "sha256_after": AFTER,
        "fsync_s": [0.0015, 0.25],
        "fsyncs": 2,
    }
    return file(number, FileState.ERASED, **(known | fields))
