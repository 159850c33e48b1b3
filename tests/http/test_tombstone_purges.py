"""Purges TOMBSTONES over HTTP: plans, what holds tombstones, what makes no sense, and what comes after."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.replica.replica import snapshot
from spark.targets.fence import raise_fence, read_fence
from tests.http.changelogs import RID, MakeChangelog, Replica, changelog_maker
from tests.http.changelogs import csn as old_csn
from tests.http.problem import pointers, problem
from tests.http.replica_stores import grant_discard
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.shop import Shop, accepted, wait_for
from tests.http.supplying import Pair, make_pair
from tests.spark.replication.tombstone_tables import keys_left, put_entries

FENCE = "public.replica_entries"
DAY = 1_440
"""Minutes: nothing younger goes unforced."""


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: tombstones lie in the targets."""
    return sqlite_service


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def make(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> MakeChangelog:
    """Makes a replica on either kind of target; it has written one change already."""
    return changelog_maker(request, http, roots)


@pytest.fixture
def replica(make: MakeChangelog) -> Replica:
    """A replica with one live entry, and ten deletes of its own that are more than a day old."""
    made = make()
    bury_old(made, 10)
    return made


def bury_old(replica: Replica, count: int, *, rid: int = RID) -> None:
    """Tombstones of old deletes, all of which are here."""
    dead = {b"dead%d-%03d" % (rid, number): (old_csn(number, rid), True) for number in range(count)}
    with replica.opened() as conn, conn.transaction():
        put_entries(conn, dead)
        conn.execute(
            f"insert into {tables_of(conn).ruv} (rid, min_csn, max_csn) values (:rid, :csn, :csn)"
            " on conflict (rid) do nothing",
            {"rid": rid, "csn": str(old_csn(count - 1, rid))},
        )


def keys(replica: Replica) -> set[bytes]:
    with replica.opened() as conn:
        return keys_left(conn)


def buried(replica: Replica) -> str | None:
    with replica.opened() as conn:
        return snapshot(conn).replica.buried


def plan_of(replica: Replica, **fields: Any) -> dict[str, Any]:
    answer = replica.plan(kind="TOMBSTONES", **fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def done(replica: Replica, **fields: Any) -> dict[str, Any]:
    return replica.done(kind="TOMBSTONES", **fields)


def test_old_tombstones_go_and_the_plan_said_so(replica: Replica) -> None:
    plan = plan_of(replica, retention_minutes=DAY)
    assert (plan["kind"], plan["entries"], plan["rows"], plan["rows_to_remove"]) == ("TOMBSTONES", 11, 10, 10)
    assert (plan["held_by"], plan["upto"]) == ([], old_csn(9, RID))
    assert len(keys(replica)) == 11
    result = done(replica, plan_id=plan["plan_id"])
    assert (result["removed"], result["counts"]) == ({"entries": 10}, "EXACT")
    assert (result["cutoff"], result["planned"], result["rows_left"]) == (plan["cutoff"], {"entries": 10}, 0)
    assert (keys(replica), buried(replica)) == ({b"key"}, old_csn(9, RID))
    assert result["buried"] == buried(replica)
    shown = replica.http.get(f"/v1/replicas/{replica.id}/ruv").json()
    assert shown["buried"] == buried(replica)
    assert done(replica, retention_minutes=DAY)["removed"] == {"entries": 0}


def test_an_agreement_holds_what_its_consumer_has_not_acknowledged(replica: Replica) -> None:
    replica.acknowledge("agr_a", {RID: old_csn(3, RID)})
    result = done(replica, retention_minutes=DAY)
    assert (result["removed"], result["held_by"]) == ({"entries": 4}, ["agr_a"])
    assert result["rids"] == [{"rid": RID, "rows_left": 6, "rows_held": 6}]
    with replica.opened() as conn:
        newest = snapshot(conn).vectors.ruv[RID]
    replica.acknowledge("agr_a", {RID: newest})
    assert done(replica, retention_minutes=DAY)["removed"] == {"entries": 6}


def test_a_silent_replica_id_holds_unless_it_is_gone(replica: Replica) -> None:
    with replica.opened() as conn:
        conn.execute(
            f"insert into {tables_of(conn).ruv} (rid, min_csn, max_csn) values (7, :csn, :csn)",
            {"csn": str(old_csn(2, 7))},
        )
    plan = plan_of(replica, retention_minutes=DAY)
    assert (plan["held_by"], plan["rows_to_remove"]) == (["RID 7"], 3)
    told = plan_of(replica, retention_minutes=DAY, gone_rids=[7])
    assert (told["held_by"], told["gone_rids"], told["rows_to_remove"]) == ([], [7], 10)
    problem(replica.purge(kind="TOMBSTONES", plan_id=told["plan_id"], gone_rids=[8]), 422, "PLAN_DIFFERS")
    result = done(replica, plan_id=told["plan_id"])
    assert (result["removed"], result["gone_rids"]) == ({"entries": 10}, [7])


def test_this_replica_is_not_gone(replica: Replica) -> None:
    answer = replica.purge(kind="TOMBSTONES", gone_rids=[RID])
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {"/gone_rids"}


def test_by_default_seven_days_stay(make: MakeChangelog) -> None:
    replica = make()
    bury_old(replica, 3)
    plan = plan_of(replica)
    assert (plan["retention_minutes"], plan["retention_source"]) == (10_080, "DEFAULT")
    assert (plan["rows"], plan["rows_to_remove"]) == (3, 0)


@pytest.mark.parametrize(("delay", "gone"), [("P1D", 3), ("PT0S", 0)])
def test_the_store_says_how_old_a_tombstone_must_be(make: MakeChangelog, delay: str, gone: int) -> None:
    replica = make(parameters={"nsds5ReplicaPurgeDelay": delay})
    bury_old(replica, 3)
    assert done(replica)["removed"] == {"entries": gone}


def test_nothing_younger_than_a_day_goes_unforced(make: MakeChangelog) -> None:
    replica = make(parameters={"nsds5ReplicaPurgeDelay": "PT23H"})
    bury_old(replica, 3)
    problem(replica.purge(kind="TOMBSTONES", retention_minutes=DAY - 1), 422, "RETENTION_TOO_SHORT")
    problem(replica.purge(kind="TOMBSTONES"), 422, "RETENTION_TOO_SHORT")
    assert len(keys(replica)) == 4
    assert done(replica, force=True)["removed"] == {"entries": 3}


def test_small_units_and_an_archive(replica: Replica) -> None:
    fields = {"retention_minutes": DAY, "max_rows_in_tx": 3, "archive": {"format": "PARQUET"}}
    result = done(replica, **fields)
    assert (result["units"], result["archive"]["rows"]) == (4, 10)


@pytest.mark.parametrize(
    ("field", "value"),
    [("stranded", "MARK"), ("engine", "INLINE"), ("strategy", "DOCUMENT"), ("max_entries", 3)],
)
def test_fields_of_other_purges_make_no_sense(replica: Replica, field: str, value: Any) -> None:
    body = problem(replica.purge(kind="TOMBSTONES", **{field: value}), 422, "INVALID_REQUEST")
    assert pointers(body) == {f"/{field}"}


def test_gone_replica_ids_make_no_sense_elsewhere(replica: Replica, shop: Shop) -> None:
    body = problem(replica.purge(gone_rids=[2]), 422, "INVALID_REQUEST")
    assert pointers(body) == {"/gone_rids"}
    problem(shop.purge(kind="TOMBSTONES"), 409, "STORE_KIND_WRONG")


def test_limits_of_the_store_stop_it_before_its_first_delete(make: MakeChangelog) -> None:
    replica = make(limits={"max_rows": 5})
    bury_old(replica, 6)
    plan = plan_of(replica, retention_minutes=DAY)
    assert plan["limits"]["exceeded"] == ["max_rows: 6 rows would go, 5 may"]
    problem(replica.purge(kind="TOMBSTONES", plan_id=plan["plan_id"]), 409, "LIMIT_EXCEEDED")
    job = wait_for(replica.http, accepted(replica.purge(kind="TOMBSTONES", retention_minutes=DAY)))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "LIMIT_EXCEEDED")
    assert (len(keys(replica)), buried(replica)) == (7, None)


@pytest.mark.parametrize("status", ["RESTORED", "INITIALIZING"])
def test_a_replica_that_is_not_whole_keeps_them(replica: Replica, status: str) -> None:
    with replica.opened() as conn:
        conn.execute(f"update {tables_of(conn).replica} set status = :status", {"status": status})
    problem(replica.purge(kind="TOMBSTONES", retention_minutes=DAY), 409, f"REPLICA_{status}")


def test_a_fence_above_ours_fails_the_job_until_recover(replica: Replica) -> None:
    assert done(replica, cutoff="1990-01-01T00:00:00Z")["removed"] == {"entries": 0}
    with replica.opened() as conn:
        ours = read_fence(conn, FENCE)
        assert ours is not None
        raise_fence(conn, FENCE, token=ours[0] + 10**6, owner="job_of_another_metadata")
    job = wait_for(replica.http, accepted(replica.purge(kind="TOMBSTONES", retention_minutes=DAY)))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "EPOCH_AHEAD")
    assert replica.http.post(f"/v1/stores/{replica.id}:recover").status_code == 200
    assert done(replica, retention_minutes=DAY)["removed"] == {"entries": 10}


def test_the_command_plans_and_runs_it(service: ServiceProcess, replica: Replica) -> None:
    replica.acknowledge("agr_a", {RID: old_csn(3, RID)})
    settings = {"LETHE_URL": service.url, "LETHE_TOKEN": service.token}
    options = ["--kind", "tombstones", "--retention-minutes", str(DAY), "--gone-rid", "7"]
    run = run_to_end(["purge", "plan", replica.id, *options], settings=settings)
    assert run.returncode == 0, run.stderr
    assert "agr_a" in run.stdout
    run = run_to_end(["purge", "run", replica.id, *options], settings=settings)
    assert run.returncode == 0, run.stderr
    assert "agr_a" in run.stdout
    assert len(keys(replica)) == 7


# -- two replicas


def change(pair: Pair, store: str, key: str, value: str | None) -> None:
    """One change through the API."""
    coded = {
        "database": base64.b64encode(b"db").decode(),
        "key": base64.b64encode(key.encode()).decode(),
        "value": None if value is None else base64.b64encode(value.encode()).decode(),
    }
    answer = pair.http.post(f"/v1/stores/{store}/changes", json=coded)
    assert answer.status_code == 200, answer.text


def purge(pair: Pair, store: str) -> dict[str, Any]:
    body = {"kind": "TOMBSTONES", "retention_minutes": 0, "force": True}
    job = wait_for(pair.http, accepted(pair.http.post(f"/v1/stores/{store}/purges", json=body)))
    assert job["state"] == "SUCCEEDED", job
    result: dict[str, Any] = job["result"]
    return result


@pytest.fixture
def pair(http: httpx.Client, service: ServiceProcess, roots: Path) -> Pair:
    """Replica 1 with two deleted keys and one that lives, which replica 2 has too."""
    made = make_pair(http, service, roots)
    for key in ("a", "b", "c"):
        change(made, made.supplier.id, key, "v")
    for key in ("a", "b"):
        change(made, made.supplier.id, key, None)
    made.run("SUCCEEDED")
    time.sleep(1.1)  # a cut-off of now is a second behind them
    return made


def test_audits_agree_where_one_side_has_purged(pair: Pair) -> None:
    assert purge(pair, pair.supplier.id)["removed"] == {"entries": 2}
    body = {"agreement_id": pair.agreement["id"]}
    job = wait_for(pair.http, accepted(pair.http.post(f"{pair.store}/audits", json=body)))
    found = job["result"]
    assert (found["agrees"], found["complete"]) == (True, True)
    assert found["entries"]["supplier"] == found["entries"]["consumer"]
    assert found["entries"]["supplier"]["count"] == 1


def test_a_copy_takes_the_bound_along(pair: Pair) -> None:
    bound = purge(pair, pair.supplier.id)["buried"]
    grant_discard(pair.consumer, supplier_rid=1)  # it holds something, and a copy takes its place
    job = pair.run("SUCCEEDED", mode="TOTAL")
    assert job["result"]["outcome"] == "UP_TO_DATE", job
    shown = pair.http.get(f"/v1/replicas/{pair.consumer.id}/ruv").json()
    assert shown["buried"] == bound is not None
    assert Csn(bound) <= Csn(shown["ruv"]["1"])
