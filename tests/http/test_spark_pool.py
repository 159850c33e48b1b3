"""`/v1/spark-pool` of a service that nobody has asked for Spark yet: no JVM is started by any of this."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.targets import symmetricds_rows

MakeShop = Callable[..., Shop]
MakeToken = Callable[..., str]
VERBS = ("recycle", "drain", "resume")


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """Nothing here depends on the metadata's kind."""
    return sqlite_service


@pytest.fixture(scope="module")
def inline_only(roots: Path, settings: dict[str, str]) -> Iterator[httpx.Client]:
    """A service without Spark."""
    made = ServiceProcess(
        roots / "inline-only", settings=settings | {"LETHE_SPARK__ENABLED": "false"}
    ).start()
    with made.http() as client:
        yield client
    assert made.stop() == 0


@pytest.fixture(scope="module")
def never_ready(roots: Path, settings: dict[str, str]) -> Iterator[httpx.Client]:
    """A service whose Java starts and says nothing; one job may wait for Spark."""
    home = roots / "mute-java"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\nexec sleep 300\n")
    java.chmod(0o755)
    spark = {"LETHE_SPARK__JAVA_HOME": str(home), "LETHE_SPARK__QUEUE_MAX": "1"}
    made = ServiceProcess(roots / "never-ready", settings=settings | spark).start()
    with made.http() as client:
        yield client
    began = time.monotonic()
    assert made.stop() == 0
    assert time.monotonic() - began < 15, "a start of Spark that hangs must not hold up the stop"


def _register(service: httpx.Client, shop: Shop) -> None:
    body = {"id": shop.id, "kind": "SYMMETRICDS", "url": f"sqlite:///{shop.path}"}
    assert service.post("/v1/stores", json=body).status_code == 201


def _waiting_on(service: httpx.Client, job_id: str) -> list[dict[str, str]]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        waiting: list[dict[str, str]] = service.get(f"/v1/jobs/{job_id}").json()["waiting_on"]
        if waiting and waiting[0]["kind"] != "QUEUED":  # for a runner
            return waiting
        time.sleep(0.05)
    raise AssertionError("the job does not say what it waits for")


def test_queue_for_a_pool_that_is_not_ready_has_an_end(
    never_ready: httpx.Client, make_shop: MakeShop
) -> None:
    """The first job waits and says for what, the second is told to come later, the third does without."""
    shops = [make_shop() for _ in range(3)]
    for shop in shops:
        _register(never_ready, shop)
    first, second, third = shops
    before = symmetricds_rows(first.path)
    asked = {"engine": "SPARK"}
    job_id = accepted(never_ready.post(f"/v1/stores/{first.id}/purges", json=first.body(asked)))
    [waiting] = _waiting_on(never_ready, job_id)
    assert (waiting["kind"], waiting["ref"]) == ("SPARK_POOL", "STARTING")
    assert never_ready.get("/v1/spark-pool").json()["exchange"]["jobs_waiting"] == 1
    assert never_ready.get("/readyz").status_code == 200
    refused = never_ready.post(f"/v1/stores/{second.id}/purges", json=second.body(asked))
    problem(refused, 429, "POOL_QUEUE_FULL")
    assert int(refused.headers["Retry-After"]) > 0
    inline = accepted(never_ready.post(f"/v1/stores/{third.id}/purges", json=third.body({})))
    assert wait_for(never_ready, inline)["state"] == "SUCCEEDED"
    began = time.monotonic()
    never_ready.post(f"/v1/jobs/{job_id}:abort", json={})
    assert wait_for(never_ready, job_id)["state"] == "ABORTED"
    print(f"abort of a job that waits for the pool: {time.monotonic() - began:.2f} s")
    assert symmetricds_rows(first.path) == before


def test_pool_that_nobody_has_needed_is_stopped(http: httpx.Client) -> None:
    pool = http.get("/v1/spark-pool").json()
    assert (pool["state"], pool["rebuilds"], pool["last_error"]) == ("STOPPED", 0, None)
    assert pool["instance"].startswith("ins_")
    assert [slot["state"] for slot in pool["slots"]] in ([], ["IDLE"] * 4)
    assert pool["limits"]["slots"] == 4
    assert pool["limits"]["min_rows"] == 100_000
    assert pool["limits"]["task_duration"] == "PT1.5S"
    assert (pool["start_took"], pool["context_age"]) == (None, None)
    assert http.get("/readyz").json() == {"status": "ready"}


def test_looking_needs_jobs_read_and_orders_need_admin(
    service: ServiceProcess, make_token: MakeToken, anonymous: httpx.Client
) -> None:
    problem(anonymous.get("/v1/spark-pool"), 401, "TOKEN_MISSING")
    with service.http(make_token("jobs:read", "jobs:control")) as reader:
        assert reader.get("/v1/spark-pool").status_code == 200
        for verb in VERBS:
            problem(reader.post(f"/v1/spark-pool:{verb}", json={}), 403, "SCOPE_MISSING")
    with service.http(make_token("stores:read")) as other:
        problem(other.get("/v1/spark-pool"), 403, "SCOPE_MISSING")


def test_orders_leave_audit_rows_and_are_remembered_by_their_key(
    http: httpx.Client, metadata: MetadataRows
) -> None:
    key, drains = {"Idempotency-Key": "drain-once"}, {"action": "spark-pool.drain"}
    before = http.get("/v1/audit-events", params=drains).json()["items"]
    first = http.post("/v1/spark-pool:drain", json={"reason": "maintenance"}, headers=key)
    again = http.post("/v1/spark-pool:drain", json={"reason": "maintenance"}, headers=key)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert first.json() == again.json()
    problem(
        http.post("/v1/spark-pool:drain", json={"reason": "other"}, headers=key),
        422,
        "IDEMPOTENCY_KEY_REUSED",
    )
    assert http.post("/v1/spark-pool:resume", json={}).status_code == 200
    found = http.get("/v1/audit-events", params=drains).json()["items"]
    assert [(row["subject_type"], row["detail"]) for row in found if row not in before] == [
        ("spark_pool", {"reason": "maintenance"})
    ]


def test_drained_pool_that_is_not_up_says_that_it_is_drained(http: httpx.Client) -> None:
    assert http.get("/v1/spark-pool").json()["draining"] is False
    try:
        http.post("/v1/spark-pool:drain", json={})
        pool = http.get("/v1/spark-pool").json()
        assert (pool["state"], pool["draining"]) == ("STOPPED", True)
    finally:
        resumed = http.post("/v1/spark-pool:resume", json={}).json()
    assert resumed["draining"] is False


def test_pool_without_a_jvm_cannot_be_recycled(http: httpx.Client) -> None:
    problem(http.post("/v1/spark-pool:recycle", json={}), 409, "POOL_NOT_RUNNING")


@pytest.mark.parametrize("verb", VERBS)
def test_unknown_fields_of_an_order_are_refused(http: httpx.Client, verb: str) -> None:
    answer = http.post(f"/v1/spark-pool:{verb}", json={"hard": True})
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {"/hard"}


def test_unknown_engine_of_a_purge_is_refused(shop: Shop) -> None:
    before = symmetricds_rows(shop.path)
    answer = shop.http.post(f"/v1/stores/{shop.id}/purges", json=shop.body({"engine": "FLINK"}))
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {"/engine"}
    assert symmetricds_rows(shop.path) == before


def test_purge_of_one_machine_runs_inline_and_says_why(http: httpx.Client, shop: Shop) -> None:
    job_id = accepted(http.post(f"/v1/stores/{shop.id}/purges", json=shop.body({"engine": "AUTO"})))
    job = wait_for(http, job_id)
    assert (job["state"], job["engine"]) == ("SUCCEEDED", "INLINE"), job["error"]
    events = http.get(f"/v1/jobs/{job_id}/events").json()["items"]
    [chosen] = [event["data"] for event in events if event["type"] == "engine"]
    assert (chosen["requested"], chosen["reason"]) == ("AUTO", "NO_GAIN")
    assert chosen["estimated_rows"] > 0
    assert (chosen["min_rows"], chosen["threshold_source"]) == (None, "BUILT_IN")
    assert http.get("/v1/spark-pool").json()["state"] == "STOPPED"


def test_metrics_tell_of_the_pool(http: httpx.Client) -> None:
    lines = http.get("/metrics").text.splitlines()
    assert 'lethe_spark_state{state="STOPPED"} 1.0' in lines
    assert "lethe_spark_slots 4.0" in lines
    assert "lethe_spark_units_total 0.0" in lines


def test_service_without_spark_refuses_what_names_it(inline_only: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop()
    _register(inline_only, shop)
    before = symmetricds_rows(shop.path)
    asked = shop.body({"engine": "SPARK"})
    problem(inline_only.post(f"/v1/stores/{shop.id}/purges", json=asked), 409, "SPARK_DISABLED")
    batch = {"kind": "PURGE", "params": asked, "stores": [shop.id]}
    parent = wait_for(inline_only, accepted(inline_only.post("/v1/jobs:batch", json=batch)))
    assert parent["state"] == "FAILED"
    assert parent["result"]["stores"][shop.id]["error"]["code"] == "SPARK_DISABLED"
    problem(inline_only.get("/v1/spark-pool"), 409, "SPARK_DISABLED")
    problem(inline_only.post("/v1/spark-pool:drain", json={}), 409, "SPARK_DISABLED")
    assert symmetricds_rows(shop.path) == before
    job = wait_for(
        inline_only, accepted(inline_only.post(f"/v1/stores/{shop.id}/purges", json=shop.body({})))
    )
    assert (job["state"], job["engine"]) == ("SUCCEEDED", "INLINE")
    assert "lethe_spark" not in inline_only.get("/metrics").text
