"""Every verb that makes sense to recur comes by a schedule; the others are refused."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.archives.rows import Archive
from app.archives.service import ArchiveNotFound
from app.auth.scopes import Scope
from app.erase.errors import CycleNotFound
from app.erase.rows import CycleState
from app.errors import InvalidRequest, ScopeMissing, ServiceError
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.replication.agreements.errors import AgreementNotFound
from app.schedules.errors import VerbNotScheduled
from app.secrets.rows import Secret
from app.stores.errors import StoreKindWrong
from app.stores.models import StoreKind
from app.verbs.table import SCHEDULED, VERBS
from tests.app.agreements import agreement_of
from tests.app.erase.ledger import Ledger
from tests.app.fake_clock import FakeClock
from tests.app.schedules.schedules_bench import BEGIN, SchedulesBench

TEN = timedelta(minutes=10)
AGREEMENT, OTHER = f"agr_{'0' * 26}", f"agr_{'1' * 26}"
BY_HAND_ALONE = {
    "EXTINCTION",  # it is committed at the target as it is asked for, and holds for ever
    "EVENT_WAIT",  # it waits for what has just been done
    "REPLICA_IMPORT",  # a replica is blank once
    "ARCHIVE_RESTORE",  # it takes back what a job has removed
}


def test_what_recurs_and_what_does_not() -> None:
    assert {verb.kind for verb in VERBS} - set(SCHEDULED) == BY_HAND_ALONE


def replica(bench: SchedulesBench) -> None:
    bench.store(kind=StoreKind.REPLICA, rid=1)
    row = agreement_of("shop", BEGIN, id=AGREEMENT, consumer_token="secret:peer")
    fields = {"reference": "env:LETHE_NO_SUCH", "stores": ["shop"], "hosts": ["127.0.0.1:9"]}
    with bench.database.transaction() as db:
        db.add(Secret(name="peer", **fields, created_at=BEGIN, updated_at=BEGIN))
        db.add(row)


def archive(bench: SchedulesBench, *names: str) -> None:
    bench.store()
    with bench.database.transaction() as db:
        for name in names:
            db.add(
                Archive(
                    job_id=name,
                    store="shop",
                    directory="/a",
                    instance="ins_a",
                    resource="r",
                    created_at=BEGIN,
                    expires_at=BEGIN + timedelta(days=90),
                )
            )


def came(bench: SchedulesBench, *scopes: Scope, **fields: Any) -> Job:
    """The job that a schedule has made at its first time."""
    caller = bench.caller(Scope.SCHEDULES_WRITE, *scopes)
    schedule = bench.write(caller, **fields)
    assert bench.jobs() == []  # what was tried as it was written is gone
    bench.look_at(BEGIN + TEN)
    shown = bench.row(schedule)
    assert shown.last_outcome == "SUBMITTED", shown.last_detail
    [job] = bench.jobs()
    assert (job.kind, job.store, job.reason) == (fields["verb"], "shop", f"schedule {schedule.id}")
    assert job.token_id == caller.token_id
    return job


@pytest.mark.parametrize("verb", ["REPLICATION_SESSION", "AUDIT"])
def test_replication_comes_by_a_cron(bench: SchedulesBench, verb: str) -> None:
    replica(bench)
    job = came(bench, Scope.REPLICATION_WRITE, verb=verb, body={"agreement_id": AGREEMENT})
    assert job.params["agreement_id"] == AGREEMENT


def test_the_newest_archive_is_verified(bench: SchedulesBench) -> None:
    names = [f"job_{number:026d}" for number in (1, 3, 2)]
    archive(bench, *names)
    job = came(bench, Scope.EVIDENCE_VERIFY, verb="ARCHIVE_VERIFY", body={})
    assert job.params == {"archive": max(names)}
    assert job.runs_on == ["instance/ins_a"]


def test_engine_of_a_verification_comes_with_its_schedule(bench: SchedulesBench) -> None:
    name = f"job_{1:026d}"
    archive(bench, name)
    job = came(bench, Scope.EVIDENCE_VERIFY, verb="ARCHIVE_VERIFY", body={"engine": "INLINE"})
    assert job.params == {"archive": name, "engine": "INLINE"}


def test_rows_of_any_table_are_purged(bench: SchedulesBench) -> None:
    bench.store(kind=StoreKind.SQL)
    rules = {"kind": "ROWS", "table": "orders", "time_column": "made_at", "older_than": "P30D"}
    job = came(bench, Scope.PURGES_WRITE, verb="PURGE", body=rules)
    assert (job.params["kind"], job.params["table"]) == ("ROWS", "orders")


def test_a_changelog_is_trimmed(bench: SchedulesBench) -> None:
    bench.store(kind=StoreKind.REPLICA, rid=1)
    job = came(bench, Scope.PURGES_WRITE, verb="PURGE", body={"kind": "CHANGELOG"})
    assert job.params["kind"] == "CHANGELOG"


def test_a_sync_of_a_node_comes_by_a_cron(bench: SchedulesBench) -> None:
    bench.store(kind=StoreKind.SLONY, cluster="lab", url="postgresql+psycopg://slony@127.0.0.1:1/lab")
    job = came(bench, Scope.EVENTS_WRITE, verb="EVENT_SYNC", body={"interval": "PT5M"})
    assert (job.params["interval"], job.claim_resource) == ("PT5M", "_lab.sync")


def test_an_export_of_each_run_has_a_file_of_its_own(bench: SchedulesBench) -> None:
    bench.store(kind=StoreKind.REPLICA, rid=1)
    job = came(bench, Scope.ADMIN, verb="REPLICA_EXPORT", body={"path": "/srv/orders-{at}.lethe"})
    assert job.params["path"] == f"/srv/orders-{BEGIN + TEN:%Y%m%dT%H%M%SZ}.lethe"


def test_an_export_that_would_meet_its_own_file_is_refused(bench: SchedulesBench) -> None:
    bench.store(kind=StoreKind.REPLICA, rid=1)
    caller = bench.caller(Scope.SCHEDULES_WRITE, Scope.ADMIN)
    with pytest.raises(InvalidRequest, match="a file of its own") as refused:
        bench.write(caller, verb="REPLICA_EXPORT", body={"path": "/srv/orders.lethe"})
    assert refused.value.errors[0]["pointer"] == "/body/path"


@pytest.mark.parametrize(
    ("verb", "body", "error"),
    [
        (
            "REPLICATION_SESSION",
            {"agreement_id": AGREEMENT, "typo": 1},
            InvalidRequest,
        ),
        ("REPLICATION_SESSION", {"agreement_id": OTHER}, AgreementNotFound),
        (
            "REPLICATION_SESSION",
            {"agreement_id": AGREEMENT, "mode": "TOTAL", "discard_consumer_changes": True},
            ScopeMissing,
        ),
        (
            "REPLICATION_SESSION",
            {
                "agreement_id": AGREEMENT,
                "discard_consumer_changes": True,
            },  # for INCREMENTAL: rights come first
            ScopeMissing,
        ),
        ("AUDIT", {}, InvalidRequest),
        ("REPLICA_EXPORT", {"path": "/srv/{at}"}, ScopeMissing),
        ("ARCHIVE_VERIFY", {"archive": "job_1"}, InvalidRequest),
        ("ARCHIVE_VERIFY", {}, ArchiveNotFound),
        ("ARCHIVE_VERIFY", {"engine": "FLINK"}, InvalidRequest),
        ("ERASURE_VERIFY", {}, StoreKindWrong),
        ("EXTINCTION", {}, VerbNotScheduled),
    ],
)
def test_what_the_post_would_refuse_is_refused_as_it_is_written(
    bench: SchedulesBench, verb: str, body: dict[str, Any], error: type[ServiceError]
) -> None:
    replica(bench)
    caller = bench.caller(Scope.SCHEDULES_WRITE, Scope.REPLICATION_WRITE, Scope.EVIDENCE_VERIFY)
    with pytest.raises(error):
        bench.write(caller, verb=verb, body=body)
    assert bench.jobs() == []


def test_without_the_scope_of_the_verb_none_is_written(bench: SchedulesBench) -> None:
    replica(bench)
    caller = bench.caller(Scope.SCHEDULES_WRITE, Scope.PURGES_WRITE)
    with pytest.raises(ScopeMissing):
        bench.write(caller, verb="AUDIT", body={"agreement_id": AGREEMENT})


def test_over_labels_comes_only_what_makes_a_batch(bench: SchedulesBench) -> None:
    replica(bench)
    caller = bench.caller(Scope.SCHEDULES_WRITE, Scope.REPLICATION_WRITE)
    body = {"agreement_id": AGREEMENT}
    with pytest.raises(VerbNotScheduled) as refused:
        bench.write(caller, verb="AUDIT", body=body, labels={"region": "eu"})
    assert refused.value.errors[0]["pointer"] == "/labels"


@pytest.mark.parametrize("ends", [True, False])
def test_the_newest_cycle_that_has_ended_is_verified(
    bench: SchedulesBench, clock: FakeClock, tmp_path: Path, ends: bool
) -> None:
    ledger = Ledger(bench.database, bench.settings, clock, tmp_path)
    over = {"ended_at": clock.now()}
    names = [ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, **over) for _ in range(2)] if ends else []
    ledger.add(CycleState.RUNNING, JobState.RUNNING)
    before = len(bench.jobs())
    caller = bench.caller(Scope.SCHEDULES_WRITE, Scope.EVIDENCE_VERIFY)
    fields = {"verb": "ERASURE_VERIFY", "body": {"engine": "INLINE"}, "store": "je"}
    if not ends:
        with pytest.raises(CycleNotFound):
            bench.write(caller, **fields)
        return
    bench.write(caller, **fields)
    [job_id] = bench.look_at(BEGIN + TEN)
    assert len(bench.jobs()) == before + 1
    [job] = [each for each in bench.jobs() if each.id == job_id]
    assert job.params["cycle"] == names[-1]
