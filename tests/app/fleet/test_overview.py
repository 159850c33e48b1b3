"""The overview: what it tells, to whom, and what it costs however large the fleet is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
import sqlmodel as sm

from app.auth.models import TokenCreate
from app.auth.scopes import Role
from app.auth.service import authenticate, create_token
from app.backups.rows import BackupMode, BackupSession, BackupState
from app.db import Database
from app.figures.sums import Name, count
from app.fleet.standing import DUE_MAX
from app.jobs.rows import Instance, Job
from app.jobs.states import JobState
from app.kit.ids import new_id
from app.main import create_app
from app.replication.rows import Agreement
from app.schedules.models import ScheduleCreate
from app.schedules.rows import Schedule
from app.schedules.service import create_schedule
from app.settings import Settings
from app.stores.checks.rows import StoreHealth
from app.stores.rows import Store
from app.sweeps.rows import SweepTick
from tests.app.agreements import agreement_of
from tests.app.fake_clock import FakeClock

STATEMENTS_MAX = 10
BYTES_MAX = 100 * 1024
NOT_STATEMENTS = ("BEGIN", "PRAGMA")


class Fleet:
    """A service in this process, and its metadata."""

    def __init__(self, database: Database, clock: FakeClock, settings: Settings) -> None:
        self.database, self.clock = database, clock
        self.app = create_app(settings, database, clock=clock)

    def token(self, role: Role = Role.VIEWER, stores: list[str] | None = None) -> str:
        request = TokenCreate.model_validate({"name": "t", "role": role, "stores": stores})
        with self.database.transaction() as db:
            return create_token(db, request, now=self.clock.now(), caller=None)[1]

    def add(self, *rows: Any) -> None:
        with self.database.transaction() as db:
            for row in rows:
                db.add(row)
                db.flush()

    def insert(self, rows: Sequence[Any]) -> None:
        """Many rows of one table at once."""
        with self.database.transaction() as db:
            db.add_all(rows)

    def store(self, name: str, **fields: Any) -> Store:
        now = self.clock.now()
        return Store(
            id=name, kind="SYMMETRICDS", url="sqlite:////x", created_at=now, updated_at=now, **fields
        )

    def job(self, state: JobState, *, store: str | None = "shop", **fields: Any) -> Job:
        now = self.clock.now()
        values = {"kind": "PURGE", "requested_by": "ann", "created_at": now, "updated_at": now} | fields
        return Job(id=new_id("job"), store=store, state=state, **values)

    def backup(self, state: BackupState, *, store: str = "shop", **fields: Any) -> BackupSession:
        now = self.clock.now()
        values: dict[str, Any] = {
            "mode": BackupMode.BACKUP,
            "lease": timedelta(hours=1),
            "erase_abort_timeout": timedelta(seconds=30),
            "protection_id": "prt_x",
            "requested_by": "ann",
            "created_at": now,
            "prepare_until": now,
            "owner": "ins_x",
        }
        return BackupSession(id=new_id("bks"), store=store, state=state, **(values | fields))

    def get(self, path: str, token: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://lethe") as client:
                return await client.get(path, headers=headers)

        return asyncio.run(ask())

    @contextmanager
    def statements(self) -> Iterator[list[str]]:
        """What the metadata is asked meanwhile."""
        seen: list[str] = []

        def note(_conn: Any, _cursor: Any, statement: str, *_more: Any) -> None:
            if not statement.startswith(NOT_STATEMENTS):
                seen.append(statement)

        sa.event.listen(self.database.engine, "before_cursor_execute", note)
        try:
            yield seen
        finally:
            sa.event.remove(self.database.engine, "before_cursor_execute", note)


@pytest.fixture
def fleet(database: Database, clock: FakeClock, settings: Settings) -> Fleet:
    return Fleet(database, clock, settings)


def test_store_is_told_with_all_that_concerns_it(fleet: Fleet) -> None:
    now = fleet.clock.now()
    waiting = [{"kind": "PROGRAM_RUNS", "ref": "node 7", "until": None}]
    fleet.add(
        fleet.store("shop", labels={"region": "eu"}),
        StoreHealth(
            store="shop",
            checked_at=now - timedelta(minutes=2),
            warnings=1,
            is_reachable=True,
            findings=[{"code": "OWN_PURGE", "severity": "WARNING", "detail": "d"}],
            due_at=now,
        ),
        fleet.job(JobState.RUNNING, started_at=now, progress={"fraction": 0.25}),
        fleet.job(
            JobState.WAITING,
            waiting_on=waiting,
            waiting_cause="PROGRAM_RUNS",
            waiting_since=now - timedelta(minutes=5),
            not_before=now + timedelta(seconds=30),
        ),
        fleet.backup(BackupState.ACTIVE, lease_expires_at=now + timedelta(hours=1), label="nightly"),
        SweepTick(store="shop", kind="OUTGOING", cron="0 0 0 * * *", next_at=now + timedelta(hours=3)),
    )
    with fleet.database.transaction() as db:
        count(db, Name.LAST_SUCCESS, "PURGE", store="shop", value=now.timestamp(), now=now)
    told = fleet.get("/v1/overview", fleet.token()).json()
    [shop] = told["stores"]
    assert shop["health"] == {
        "state": "WARNING",
        "checked_at": _text(now - timedelta(minutes=2)),
        "age": "PT2M",
        "reachable": True,
        "findings": ["OWN_PURGE"],
        "details": [],
    }
    assert shop["jobs"] == {"RUNNING": 1, "WAITING": 1}
    running, waits = shop["work"]
    assert (running["state"], running["fraction"]) == ("RUNNING", 0.25)
    assert (waits["waits_for"], waits["ref"]) == ("PROGRAM_RUNS", "node 7")
    assert waits["since"] == _text(now - timedelta(minutes=5))
    assert waits["next_look"] == _text(now + timedelta(seconds=30))
    assert shop["verbs"] == [
        {
            "verb": "PURGE",
            "last_success_at": _text(now),
            "next_due_at": _text(now + timedelta(hours=3)),
        }
    ]
    assert [(each["label"], each["valid_now"]) for each in shop["backups"]] == [("nightly", True)]
    assert told["counters"]["jobs"] == {"RUNNING": 1, "WAITING": 1}
    assert told["attention"] == []


def _text(at: Any) -> str:
    return str(at.isoformat().replace("+00:00", "Z"))


def test_what_needs_somebody_stands_first_errors_before_warnings(fleet: Fleet) -> None:
    now = fleet.clock.now()
    hour = timedelta(hours=1)
    failed = fleet.job(JobState.FAILED, finished_at=now - hour, error={"code": "TARGET_AUTH_FAILED"})
    healed = fleet.job(JobState.FAILED, kind="EVENT_CLEANUP", finished_at=now - hour, error={"code": "X"})
    retried = fleet.job(JobState.FAILED, store="other", finished_at=now - hour, error={"code": "Y"})
    fleet.add(
        fleet.store("shop"),
        fleet.store("other"),
        fleet.store("stale"),
        StoreHealth(
            store="other", checked_at=now, trouble="TARGET_UNREACHABLE", trouble_since=now, due_at=now
        ),
        StoreHealth(store="stale", checked_at=now - hour, stale_at=now - hour / 2, due_at=now),
        failed,
        healed,
        retried,
        fleet.job(JobState.QUEUED, store="other", retried_from=retried.id),
        fleet.job(
            JobState.WAITING, waiting_cause="JOB", waiting_since=now - 2 * hour, waiting_on=[{"kind": "JOB"}]
        ),
        fleet.job(JobState.WAITING, waiting_cause="THROTTLE", waiting_since=now - 9 * hour),
        fleet.backup(BackupState.INVALID, ended_at=now - hour),
        _agreement(fleet, "HALTED"),
        Instance(
            id="ins_gone",
            hostname="h",
            pid=1,
            role="serve",
            version="1",
            started_at=now,
            heartbeat_at=now - hour,
        ),
    )
    with fleet.database.transaction() as db:
        count(db, Name.LAST_SUCCESS, "EVENT_CLEANUP", store="shop", value=1.0, now=now)
    told = fleet.get("/v1/overview", fleet.token()).json()
    found = [(each["code"], each["store"], each["detail"]) for each in told["attention"]]
    assert sorted(found[:4]) == [
        ("BACKUP_INVALID", "shop", "INVALID"),
        ("JOB_FAILED", "shop", "TARGET_AUTH_FAILED"),
        ("SESSION_HALTED", "shop", "PEER_SAID_NO"),
        ("STORE_UNREADY", "other", "TARGET_UNREACHABLE"),
    ]
    assert sorted(found[4:], key=str) == [
        ("CHECK_STALE", "stale", ""),
        ("INSTANCE_SILENT", None, "h"),
        ("WAITS_LONG", "shop", "JOB"),
    ]
    assert told["attention_total"] == 7
    assert told["attention_counts"] == dict.fromkeys({code for code, *_ in found}, 1)
    assert told["attention"][0]["help"].startswith("docs/reference/runbook.md#")
    limited = fleet.get("/v1/overview", fleet.token(stores=["other"])).json()
    assert [each["code"] for each in limited["attention"]] == ["STORE_UNREADY"]
    assert [each["id"] for each in limited["stores"]] == ["other"]
    assert (limited["counters"]["stores"], limited["counters"]["instances"]) == (1, None)
    assert "shop" not in str(limited)
    patient = fleet.get("/v1/overview?waits_longer_than=P1D", fleet.token()).json()
    assert "WAITS_LONG" not in {each["code"] for each in patient["attention"]}


def test_a_job_that_works_again_after_a_wait_needs_nobody(fleet: Fleet) -> None:
    """Its row keeps since when it has waited: it was shown as one that waits for long."""
    since = fleet.clock.now() - timedelta(hours=2)
    waited: dict[str, Any] = {"waiting_cause": "BACKUP", "waiting_since": since}
    shown = [{"kind": "BACKUP", "ref": "bks_1", "until": None}]
    works = fleet.job(JobState.RUNNING, **waited)
    held_up = fleet.job(JobState.RUNNING, waiting_on=shown, **waited)
    fleet.add(fleet.store("shop"), works, held_up)
    told = fleet.get("/v1/overview", fleet.token()).json()["attention"]
    assert [each["subject"] for each in told] == [f"jobs/{held_up.id}"]


def test_what_needs_somebody_is_narrowed_with_the_stores(fleet: Fleet) -> None:
    """A batch that failed made `lethe status --store shop --check` exit with 1."""
    now = fleet.clock.now()
    labels = {"region": "eu"}
    fleet.add(
        fleet.store("shop", labels=labels),
        fleet.store("other"),
        fleet.job(JobState.FAILED, store=None, kind="BATCH", finished_at=now, error={"code": "X"}),
        fleet.job(JobState.FAILED, store="other", finished_at=now, error={"code": "Y"}),
        Instance(
            id="ins_gone",
            hostname="h",
            pid=1,
            role="serve",
            version="1",
            started_at=now,
            heartbeat_at=now - timedelta(hours=1),
        ),
    )
    token = fleet.token()
    assert fleet.get("/v1/overview", token).json()["attention_total"] == 3
    for question in ("store=shop", "label=region=eu", "kind=JE"):
        assert fleet.get(f"/v1/overview?{question}", token).json()["attention"] == [], question
    fleet.add(fleet.job(JobState.FAILED, finished_at=now, error={"code": "Z"}))
    for question in ("store=shop", "label=region=eu", "kind=SYMMETRICDS&label=region=eu"):
        [found] = fleet.get(f"/v1/overview?{question}", token).json()["attention"]
        assert (found["store"], found["detail"]) == ("shop", "Z"), question
    told = fleet.get("/v1/overview?store=shop&store=other", token).json()
    assert sorted(each["detail"] for each in told["attention"]) == ["Y", "Z"]


def _agreement(fleet: Fleet, outcome: str) -> Agreement:
    now = fleet.clock.now()
    ended: dict[str, Any] = {"last_outcome": outcome, "last_code": "PEER_SAID_NO", "last_ended_at": now}
    return agreement_of("shop", now, id=new_id("agr"), strategy="LOSSLESS", **ended)


def test_pages_of_stores_are_whole_and_narrowed_by_label_and_kind(fleet: Fleet) -> None:
    names = [f"s{number}" for number in range(7)]
    fleet.add(*(fleet.store(name, labels={"even": str(int(name[1]) % 2 == 0)}) for name in names))
    token, seen, page = fleet.token(), [], ""
    while True:
        told = fleet.get(f"/v1/overview?page_size=3&page_token={page}", token).json()
        seen += [each["id"] for each in told["stores"]]
        page = told["next_page_token"]
        if not page:
            break
    assert seen == names
    even = fleet.get("/v1/overview?label=even=True", token).json()
    assert [each["id"] for each in even["stores"]] == ["s0", "s2", "s4", "s6"]
    assert fleet.get("/v1/overview?kind=JE", token).json()["stores"] == []
    assert fleet.get("/v1/overview?label=even", token).status_code == 422
    assert fleet.get("/v1/overview?waits_longer_than=soon", token).status_code == 422


def crowd(fleet: Fleet, stores: int, jobs: int) -> None:
    now = fleet.clock.now()
    names = [f"store-{number:04}" for number in range(stores)]
    states = [JobState.QUEUED, JobState.WAITING, JobState.RUNNING, JobState.FAILED, JobState.SUCCEEDED]
    ended = {JobState.FAILED, JobState.SUCCEEDED}
    fleet.insert([fleet.store(name, labels={"region": f"r{len(name) % 3}"}) for name in names])
    fleet.insert(
        [
            StoreHealth(
                store=name, checked_at=now, due_at=now, trouble="TARGET_UNREACHABLE" if odd % 2 else None
            )
            for odd, name in enumerate(names)
        ]
    )
    fleet.insert(
        [
            fleet.job(
                state,
                store=names[number % stores],
                finished_at=now if state in ended else None,
                waiting_since=now - timedelta(hours=2) if state is JobState.WAITING else None,
                waiting_cause="JOB" if state is JobState.WAITING else None,
                waiting_on=[{"kind": "JOB", "ref": "r" * 150}] if state is JobState.WAITING else [],
                error={"code": "TARGET_AUTH_FAILED"} if state is JobState.FAILED else None,
            )
            for number in range(jobs)
            for state in [states[number // stores % len(states)]]
        ]
    )
    fleet.insert(
        [SweepTick(store=name, kind=kind, next_at=now) for name in names for kind in ("OUTGOING", "INCOMING")]
    )
    fleet.insert([fleet.backup(BackupState.ACTIVE, store=name, label="l" * 100) for name in names])


@pytest.mark.parametrize(("stores", "jobs"), [(5, 100), (60, 1_200)])
def test_overview_takes_few_statements_and_bytes(fleet: Fleet, stores: int, jobs: int) -> None:
    crowd(fleet, stores, jobs)
    token = fleet.token()
    with fleet.statements() as seen:
        answer = fleet.get("/v1/overview", token)
    assert answer.status_code == 200
    assert len(answer.json()["stores"]) == min(stores, 25)
    assert len(seen) <= STATEMENTS_MAX, seen
    assert len(answer.content) <= BYTES_MAX


@pytest.mark.alone
@pytest.mark.long
def test_overview_of_500_stores_takes_at_most_three_times_that_of_five(
    fleet: Fleet, database: Database, clock: FakeClock, settings: Settings
) -> None:
    token = fleet.token()

    def measured() -> float:
        times = []
        for _ in range(15):
            begun = time.perf_counter()
            assert fleet.get("/v1/overview", token).status_code == 200
            times.append(time.perf_counter() - begun)
        return sorted(times)[len(times) // 2]

    crowd(fleet, 5, 100)
    few_s = measured()
    with fleet.database.transaction() as db:
        for table in (StoreHealth, SweepTick, BackupSession, Job, Store):
            db.execute(sa.delete(table))
    crowd(fleet, 500, 10_000)
    with fleet.statements() as seen:
        answer = fleet.get("/v1/overview", token)
    assert len(seen) <= STATEMENTS_MAX
    assert len(answer.content) <= BYTES_MAX
    many_s = measured()
    print(f"{len(seen)} statements, {len(answer.content)} bytes, {few_s * 1e3:.1f} -> {many_s * 1e3:.1f} ms")
    assert many_s <= 3 * few_s


def _schedule(fleet: Fleet, secret: str, **fields: Any) -> None:
    body = {"verb": "PURGE", "body": {"kind": "OUTGOING"}, "cron": "0 3 * * *", "labels": {"tier": "gold"}}
    with fleet.database.transaction() as db:
        caller = authenticate(db, secret, now=fleet.clock.now())
        request = ScheduleCreate.model_validate(body | fields)
        create_schedule(db, request, caller=caller, settings=fleet.app.state.settings, now=fleet.clock.now())


def test_schedule_over_labels_comes_only_where_its_token_reaches(fleet: Fleet) -> None:
    gold = {"labels": {"tier": "gold"}}
    fleet.add(fleet.store("ours", **gold), fleet.store("theirs", **gold))
    _schedule(fleet, fleet.token(Role.OPERATOR, ["theirs"]))

    def due(secret: str) -> dict[str, int]:
        stores = fleet.get("/v1/overview", secret).json()["stores"]
        return {store["id"]: len(store["verbs"]) for store in stores}

    assert due(fleet.token(stores=["ours"])) == {"ours": 0}
    assert due(fleet.token()) == {"ours": 0, "theirs": 1}
    _schedule(fleet, fleet.token(Role.OPERATOR), verb="EVENT_CLEANUP", body={})
    assert due(fleet.token()) == {"ours": 1, "theirs": 2}


def test_any_number_of_schedules_of_others_hides_none(fleet: Fleet) -> None:
    fleet.add(fleet.store("shop"))
    secret = fleet.token(Role.OPERATOR)
    _schedule(fleet, secret, store="shop", labels=None)
    with fleet.database.reading() as db:
        row = db.exec(sm.select(Schedule)).one().model_dump(warnings=False)
    fleet.insert(
        [
            Schedule(**row | {"id": f"sch_{number:026d}", "store": None, "labels": {"tier": "x"}})
            for number in range(DUE_MAX)
        ]
    )
    [shop] = fleet.get("/v1/overview", secret).json()["stores"]
    assert [each["verb"] for each in shop["verbs"]] == ["PURGE"]
