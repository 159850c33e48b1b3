"""Purges CHANGELOG over HTTP: plans, trimming, what holds it back, and what makes no sense."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.agreements import remove_agreement
from spark.targets.fence import raise_fence, read_fence
from tests.conftest import SharedServer
from tests.http.changelogs import FENCE, OLD_S, RID, MakeChangelog, Replica, changelog_maker
from tests.http.changelogs import csn as _csn
from tests.http.changelogs import old as _old
from tests.http.problem import pointers, problem
from tests.http.replica_stores import make_replica
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.shop import Shop, accepted, wait_for
from tests.spark.replication.replica_tables import (
    postgresql_target,
)


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


def test_records_older_than_the_retention_go_and_the_plan_said_so(replica: Replica) -> None:
    replica.log(_old(2, 10) + _old(3, 4, logged_at_s=int(time.time())))
    before = replica.left()
    plan = replica.plan(retention_minutes=60).json()
    assert (plan["kind"], plan["rows"], plan["rows_to_remove"]) == ("CHANGELOG", 15, 10)
    assert [(item["rid"], item["rows_to_remove"]) for item in plan["rids"]] == [(1, 0), (2, 10), (3, 0)]
    assert replica.left() == before
    result = replica.done(plan_id=plan["plan_id"])
    assert (result["removed"], result["counts"], result["cutoff"]) == (
        {"changelog": 10},
        "EXACT",
        plan["cutoff"],
    )
    assert replica.purged() == {2: _csn(9, 2)}
    assert len(replica.left()) == 5
    assert replica.done(retention_minutes=60)["removed"] == {"changelog": 0}
    listed = replica.http.get(f"/v1/stores/{replica.id}/purges").json()["items"]
    assert [item["params"]["kind"] for item in listed] == ["CHANGELOG", "CHANGELOG"]


def test_what_a_consumer_has_not_acknowledged_stays_and_is_named(replica: Replica) -> None:
    replica.log(_old(2, 10) + _old(3, 5))
    replica.acknowledge("agr_a", {1: Csn("f" * 8 + "0000" + "0001" + "0000"), 2: _csn(3, 2)})
    replica.acknowledge("agr_b", {1: _csn(0, 1), 2: _csn(9, 2), 3: _csn(4, 3)})
    result = replica.done(retention_minutes=60)
    assert result["removed"] == {"changelog": 4}
    by_rid = {item["rid"]: item for item in result["rids"]}
    assert (by_rid[2]["rows_removed"], by_rid[2]["rows_held"], by_rid[2]["held_by"]) == (4, 6, ["agr_a"])
    assert (by_rid[3]["rows_removed"], by_rid[3]["rows_held"], by_rid[3]["held_by"]) == (0, 5, ["agr_a"])
    assert (by_rid[2]["floor"], by_rid[3]["floor"]) == (_csn(3, 2), None)
    assert replica.purged() == {2: _csn(3, 2)}
    replica.acknowledge("agr_a", {2: _csn(9, 2), 3: _csn(1, 3)})
    result = replica.done(retention_minutes=60)
    assert replica.purged() == {2: _csn(9, 2), 3: _csn(1, 3)}
    assert [item["purge_headroom"] for item in result["rids"]] == [0, 0, 0]
    with replica.opened() as conn:
        for name in ("agr_a", "agr_b"):
            remove_agreement(conn, name, now_s=int(time.time()) - 7 * 86_400 - 60)
    assert replica.done(retention_minutes=60)["removed"] == {"changelog": 3}


def test_by_count_the_newest_stay(replica: Replica) -> None:
    replica.log([*_old(2, 20), (_csn(100, 3), OLD_S)])
    result = replica.done(max_entries=5)
    assert (result["removed"], result["rows_left"], result["max_entries_source"]) == (
        {"changelog": 17},
        5,
        "REQUEST",
    )
    assert {csn for csn in replica.left() if csn.rid != RID} == {
        _csn(17, 2),
        _csn(18, 2),
        _csn(19, 2),
        _csn(100, 3),
    }


def test_parameters_of_the_store_say_what_is_old(make: MakeChangelog) -> None:
    replica = make(parameters={"nsslapd-changelogmaxage": "PT1H", "nsslapd-changelogmaxentries": 3})
    replica.log(_old(2, 4, logged_at_s=int(time.time())))
    plan = replica.plan().json()
    assert (plan["retention_minutes"], plan["retention_source"]) == (60, "STORE")
    assert (plan["max_entries"], plan["max_entries_source"], plan["rows_over_max_entries"]) == (3, "STORE", 2)
    assert replica.done()["removed"] == {"changelog": 2}


def test_by_default_seven_days_stay(replica: Replica) -> None:
    week_s = 7 * 86_400
    now_s = int(time.time())
    replica.log(_old(2, 3, logged_at_s=now_s - week_s - 60))
    replica.log(_old(3, 3, logged_at_s=now_s - week_s + 60))
    result = replica.done()
    assert (result["removed"], result["retention_minutes"]) == ({"changelog": 3}, 10_080)
    assert (result["retention_source"], result["max_entries"]) == ("DEFAULT", None)


def test_an_age_of_nothing_is_no_bound(make: MakeChangelog) -> None:
    replica = make(parameters={"nsslapd-changelogmaxage": "PT0S"})
    replica.log(_old(2, 3, logged_at_s=1))
    result = replica.done()
    assert (result["removed"], result["cutoff"]) == ({"changelog": 0}, None)


def test_small_units_and_an_archive(replica: Replica) -> None:
    replica.log(_old(2, 10))
    result = replica.done(retention_minutes=60, max_rows_in_tx=3, archive={"format": "PARQUET"})
    assert (result["units"], result["archive"]["rows"]) == (4, 10)
    job = replica.http.get(f"/v1/stores/{replica.id}/purges").json()["items"][0]
    archive = replica.http.get(f"/v1/archives/{job['id']}").json()
    assert archive["rows"] == 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stranded", "MARK"),
        ("strict", False),
        ("engine", "INLINE"),
        ("force", True),
        ("strategy", "DOCUMENT"),
    ],
)
def test_fields_of_other_purges_make_no_sense(replica: Replica, field: str, value: Any) -> None:
    body = problem(replica.purge(**{field: value}), 422, "INVALID_REQUEST")
    assert pointers(body) == {f"/{field}"}


def test_max_entries_makes_no_sense_elsewhere(shop: Shop) -> None:
    body = problem(shop.purge(max_entries=5), 422, "INVALID_REQUEST")
    assert pointers(body) == {"/max_entries"}


def test_each_kind_of_store_has_its_kinds(replica: Replica, shop: Shop) -> None:
    for kind in ("OUTGOING", "INCOMING", "DATA_GAP"):
        answer = replica.http.post(f"/v1/stores/{replica.id}/purges", json={"kind": kind})
        problem(answer, 409, "STORE_KIND_WRONG")
    problem(shop.purge(kind="CHANGELOG"), 409, "STORE_KIND_WRONG")
    problem(shop.plan(kind="CHANGELOG"), 409, "STORE_KIND_WRONG")


def test_a_cut_off_in_the_future_is_refused(replica: Replica) -> None:
    problem(replica.purge(cutoff="2099-01-01T00:00:00Z"), 422, "FUTURE_CUTOFF")


def test_a_plan_of_another_store_or_kind_is_not_executed(replica: Replica, shop: Shop) -> None:
    problem(replica.purge(plan_id=shop.plan().json()["plan_id"]), 422, "PLAN_NOT_USABLE")
    plan = replica.plan(retention_minutes=60, max_entries=7).json()
    problem(shop.purge(plan_id=plan["plan_id"]), 422, "PLAN_NOT_USABLE")
    problem(replica.purge(plan_id=plan["plan_id"], max_entries=6), 422, "PLAN_DIFFERS")
    assert replica.done(plan_id=plan["plan_id"], max_entries=7)["max_entries_source"] == "PLAN"


def test_limits_of_the_store_stop_it_before_its_first_delete(make: MakeChangelog) -> None:
    replica = make(limits={"max_rows": 5})
    replica.log(_old(2, 6))
    plan = replica.plan(retention_minutes=60).json()
    assert plan["limits"]["exceeded"] == ["max_rows: 6 rows would go, 5 may"]
    problem(replica.purge(plan_id=plan["plan_id"]), 409, "LIMIT_EXCEEDED")
    job = wait_for(replica.http, accepted(replica.purge(retention_minutes=60)))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "LIMIT_EXCEEDED")
    assert len(replica.left()) == 7
    assert replica.done(cutoff="1990-01-01T00:00:00Z")["removed"] == {"changelog": 0}


@pytest.mark.parametrize("status", ["RESTORED", "INITIALIZING"])
def test_a_replica_that_is_not_whole_is_not_trimmed(replica: Replica, status: str) -> None:
    replica.log(_old(2, 6))
    with replica.opened() as conn:
        conn.execute(f"update {tables_of(conn).replica} set status = :status", {"status": status})
    problem(replica.purge(retention_minutes=60), 409, f"REPLICA_{status}")
    assert len(replica.left()) == 7


def test_a_fence_above_ours_fails_the_job(replica: Replica) -> None:
    replica.log(_old(2, 6))
    assert replica.done(cutoff="1990-01-01T00:00:00Z")["removed"] == {"changelog": 0}
    with replica.opened() as conn:
        ours = read_fence(conn, FENCE)
        assert ours is not None
        raise_fence(conn, FENCE, token=ours[0] + 10**6, owner="job_of_another_metadata")
    job = wait_for(replica.http, accepted(replica.purge(retention_minutes=60)))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "EPOCH_AHEAD")
    assert len(replica.left()) == 7
    assert replica.http.post(f"/v1/stores/{replica.id}:recover").status_code == 200
    assert replica.done(retention_minutes=60)["removed"] == {"changelog": 6}


@pytest.mark.postgresql
def test_a_database_without_a_replica_has_nothing_to_trim(http: httpx.Client, postgresql_url: str) -> None:
    store = make_replica(http, rid=RID, url=postgresql_url)
    replica = Replica(http, store.id, postgresql_target(postgresql_url))
    assert (replica.plan().json()["rows"], replica.plan().json()["rids"]) == (0, [])
    assert replica.done()["removed"] == {"changelog": 0}


def test_a_file_that_is_not_there_is_an_error_and_is_not_made(http: httpx.Client, roots: Path) -> None:
    store = make_replica(http, rid=RID, folder=roots)
    answer = http.post(f"/v1/stores/{store.id}/purges", json={"kind": "CHANGELOG"})
    job = wait_for(http, accepted(answer))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "TARGET_DATABASE_MISSING")
    assert store.path is not None
    assert not store.path.exists()


@pytest.mark.postgresql
def test_without_a_ledger_it_works_and_counts_at_least(
    http: httpx.Client, postgresql_server: SharedServer, postgresql_url: str
) -> None:
    """A role that may make tables, and no schema."""
    role = f"lethe_tables_{uuid.uuid4().hex[:8]}"
    postgresql_server.execute(f"create role {role} login")
    try:
        owner = make_url(postgresql_url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute(f"grant create, usage on schema public to {role}")
        url = make_url(postgresql_url).set(username=role).render_as_string(hide_password=False)
        store = make_replica(http, rid=RID, url=url)
        change = {"database": "ZGI=", "key": "a2V5", "value": "dg=="}
        assert http.post(f"/v1/stores/{store.id}/changes", json=change).status_code == 200
        replica = Replica(http, store.id, postgresql_target(url))
        replica.log(_old(2, 30))
        result = replica.done(retention_minutes=60, max_rows_in_tx=7)
        assert (result["counts"], result["removed"], result["units"]) == ("AT_LEAST", {"changelog": 30}, 5)
        assert replica.purged() == {2: _csn(29, 2)}
    finally:
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute(f"drop owned by {role} cascade")
        postgresql_server.execute(f"drop role {role}")


def test_a_batch_trims_many_replicas(make: MakeChangelog, shop: Shop) -> None:
    replica = make(labels={"fleet": "trimmed"})
    replica.log(_old(2, 6))
    body = {
        "kind": "PURGE",
        "params": {"kind": "CHANGELOG", "retention_minutes": 60},
        "stores": [replica.id, shop.id],
    }
    parent = wait_for(replica.http, accepted(replica.http.post("/v1/jobs:batch", json=body)))
    assert parent["params"]["refused"][shop.id]["code"] == "STORE_KIND_WRONG"
    assert len(replica.left()) == 1


def test_the_command_plans_and_runs_it(service: ServiceProcess, replica: Replica) -> None:
    replica.log(_old(2, 10))
    replica.acknowledge("agr_a", {1: _csn(0, 1), 2: _csn(6, 2)})
    settings = {"LETHE_URL": service.url, "LETHE_TOKEN": service.token}
    options = ["--kind", "changelog", "--retention-minutes", "60", "--max-entries", "2"]
    run = run_to_end(["purge", "plan", replica.id, *options], settings=settings)
    assert run.returncode == 0, run.stderr
    assert "agr_a" in run.stdout
    assert len(replica.left()) == 11
    run = run_to_end(["purge", "run", replica.id, *options], settings=settings)
    assert run.returncode == 0, run.stderr
    assert _csn(6, 2) in run.stdout
    assert len(replica.left()) == 4


def test_a_throttled_trimming_is_aborted_and_tells_what_it_did(replica: Replica) -> None:
    replica.log(_old(2, 200))
    job_id = accepted(replica.purge(retention_minutes=60, max_rows_in_tx=5, throttle={"rows_per_s": 50}))
    wait_for(replica.http, job_id, "RUNNING")
    while replica.purged() == {}:
        time.sleep(0.02)
    assert replica.http.post(f"/v1/jobs/{job_id}:abort").status_code in (200, 202)
    job = wait_for(replica.http, job_id)
    assert job["state"] == "ABORTED"
    gone = job["result"]["removed"]["changelog"]
    assert 0 < gone < 200
    assert len(replica.left()) == 201 - gone
    assert replica.purged() == {2: _csn(gone - 1, 2)}
