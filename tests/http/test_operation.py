"""Batches, archives, parameters, statistics and figures over HTTP."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.kit.durations import parse_duration
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.targets import REMOVED_3X, count_rows, symmetricds_rows

MakeShop = Callable[..., Shop]
MakeToken = Callable[..., str]
RETENTION = "purge.retention.minutes"
ARCHIVED = sum(REMOVED_3X.values())


@pytest.fixture(scope="session")
def service(postgresql_service: ServiceProcess) -> ServiceProcess:
    """PostgreSQL metadata alone, where labels are asked for in another dialect; the demo uses SQLite."""
    return postgresql_service


def _batch(http: httpx.Client, shop: Shop, **fields: Any) -> httpx.Response:
    return http.post("/v1/jobs:batch", json={"kind": "PURGE", "params": shop.body({})} | fields)


def test_batch_over_stores_makes_a_child_for_each(http: httpx.Client, make_shop: MakeShop) -> None:
    shops = [make_shop() for _ in range(3)]
    parent_id = accepted(_batch(http, shops[0], stores=[shop.id for shop in shops], reason="all of them"))
    parent = wait_for(http, parent_id)
    assert (parent["kind"], parent["state"]) == ("BATCH", "SUCCEEDED"), parent["error"]
    results = parent["result"]["stores"]
    assert sorted(results) == sorted(shop.id for shop in shops)
    assert all(item["removed"] == REMOVED_3X for item in results.values())
    children = http.get("/v1/jobs", params={"parent": parent_id}).json()["items"]
    assert {child["id"] for child in children} == {item["job_id"] for item in results.values()}
    assert parent["progress"] | {"done": 3, "total": 3} == parent["progress"]


def test_batch_by_labels_takes_the_stores_that_have_them_all(http: httpx.Client, make_shop: MakeShop) -> None:
    label = {"batch": make_shop().id}
    chosen = make_shop(labels=label | {"tier": "1"})
    make_shop(labels=label)
    parent = wait_for(http, accepted(_batch(http, chosen, labels=label | {"tier": "1"})))
    assert list(parent["result"]["stores"]) == [chosen.id]
    problem(_batch(http, chosen, labels={"batch": "nobody"}), 422, "NO_STORES_SELECTED")


def test_batch_tells_which_of_its_stores_failed(http: httpx.Client, make_shop: MakeShop) -> None:
    good, limited, busy = make_shop(), make_shop(limits={"max_rows": 1}), make_shop()
    running = busy.slow_purge()
    parent = wait_for(http, accepted(_batch(http, good, stores=[good.id, limited.id, busy.id])))
    assert (parent["state"], parent["error"]["code"]) == ("FAILED", "CHILDREN_FAILED")
    results = parent["result"]["stores"]
    assert results[good.id]["state"] == "SUCCEEDED"
    assert results[limited.id]["error"]["code"] == "LIMIT_EXCEEDED"
    assert (results[busy.id]["state"], results[busy.id]["error"]["code"]) == ("REFUSED", "CONFLICTING_JOB")
    http.post(f"/v1/jobs/{running}:abort", json={})
    wait_for(http, running)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"stores": ["none-such"]}, "/stores/0"),
        ({"labels": {"nobody": "has-it"}}, "/labels"),
        ({"stores": ["{shop}"], "kind": "ERASE"}, "/kind"),
        (
            {"stores": ["{shop}"], "params": {"kind": "OUTGOING", "plan_id": f"job_{'0' * 26}"}},
            "/params/plan_id",
        ),
        (
            {
                "stores": ["{shop}"],
                "params": {"kind": "OUTGOING", "retention_minutes": 60, "cutoff": "2026-11-01T10:00:00Z"},
            },
            "/params",
        ),
    ],
)
def test_batch_that_is_wrong_says_where(
    http: httpx.Client, shop: Shop, fields: dict[str, Any], pointer: str
) -> None:
    stores = (
        {"stores": [name.format(shop=shop.id) for name in fields["stores"]]} if "stores" in fields else {}
    )
    answer = _batch(http, shop, **fields | stores)
    assert answer.status_code == 422, answer.text
    assert pointers(answer.json()) == {pointer}
    assert "Value error" not in answer.text


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"stores": ["none-such"]}, "STORE_NOT_FOUND"),
        ({"stores": []}, "INVALID_REQUEST"),
        ({}, "INVALID_REQUEST"),
        ({"stores": ["{shop}"], "labels": {"a": "b"}}, "INVALID_REQUEST"),
        ({"stores": ["{shop}"], "kind": "ERASE"}, "KIND_NOT_BATCHED"),
        ({"stores": ["{shop}"], "params": {"kind": "OUTGOING", "colour": "red"}}, "INVALID_REQUEST"),
        ({"stores": ["{shop}"], "params": {}}, "INVALID_REQUEST"),
        (
            {"stores": ["{shop}"], "params": {"kind": "OUTGOING", "plan_id": f"job_{'0' * 26}"}},
            "PLAN_NOT_USABLE",
        ),
    ],
)
def test_batch_that_is_wrong_for_all_makes_no_job(
    http: httpx.Client, metadata: MetadataRows, shop: Shop, fields: dict[str, Any], code: str
) -> None:
    if "stores" in fields:
        fields = fields | {"stores": [name.format(shop=shop.id) for name in fields["stores"]]}
    with metadata.unchanged():
        problem(_batch(http, shop, **fields), 422, code)


def test_abort_of_a_batch_aborts_its_children(http: httpx.Client, make_shop: MakeShop) -> None:
    shops = [make_shop() for _ in range(2)]
    params = shops[0].body({"max_rows_in_tx": 10, "throttle": {"rows_per_s": 30}})
    parent_id = accepted(_batch(http, shops[0], stores=[shop.id for shop in shops], params=params))
    wait_for(http, parent_id, "WAITING", timeout_s=10)
    assert http.post(f"/v1/jobs/{parent_id}:abort", json={"reason": "enough"}).status_code in (200, 202)
    assert wait_for(http, parent_id)["state"] == "ABORTED"
    children = http.get("/v1/jobs", params={"parent": parent_id}).json()["items"]
    assert {child["state"] for child in children} == {"ABORTED"}


def test_throttle_of_a_batch_is_that_of_each_child(http: httpx.Client, make_shop: MakeShop) -> None:
    shops = [make_shop() for _ in range(2)]
    params = shops[0].body({"max_rows_in_tx": 10, "throttle": {"rows_per_s": 30}})
    parent_id = accepted(_batch(http, shops[0], stores=[shop.id for shop in shops], params=params))
    wait_for(http, parent_id, "WAITING", timeout_s=10)
    assert http.patch(f"/v1/jobs/{parent_id}/throttle", json={"rows_per_s": 12}).status_code == 200
    children = http.get("/v1/jobs", params={"parent": parent_id}).json()["items"]
    assert [child["throttle"]["requested"]["rows_per_s"] for child in children] == [12, 12]
    http.post(f"/v1/jobs/{parent_id}:abort", json={"reason": "enough"})
    assert wait_for(http, parent_id)["state"] == "ABORTED"


@pytest.fixture
def archived(http: httpx.Client, shop: Shop) -> dict[str, Any]:
    """A purge that has kept what it removed."""
    job = wait_for(http, accepted(shop.purge(archive={"format": "PARQUET"})))
    assert job["state"] == "SUCCEEDED", job["error"]
    return job


def test_archive_is_listed_with_its_files_and_verified(
    http: httpx.Client, shop: Shop, archived: dict[str, Any]
) -> None:
    (listed,) = http.get("/v1/archives", params={"store": shop.id}).json()["items"]
    assert (listed["job_id"], listed["rows"], listed["counts"]) == (archived["id"], ARCHIVED, "EXACT")
    detail = http.get(f"/v1/archives/{archived['id']}").json()
    assert sum(file["rows"] for file in detail["file_list"] if file["state"] == "VALID") == ARCHIVED
    verified = wait_for(http, accepted(http.post(f"/v1/archives/{archived['id']}:verify")))
    assert (verified["state"], verified["result"]["rows"], verified["result"]["bad"]) == (
        "SUCCEEDED",
        ARCHIVED,
        [],
    )


def test_engine_of_a_verification_is_the_one_that_was_asked_for(
    http: httpx.Client, archived: dict[str, Any]
) -> None:
    verify = f"/v1/archives/{archived['id']}:verify"
    asked = {"engine": "INLINE", "reason": "audit"}
    job = wait_for(http, accepted(http.post(verify, json=asked)))
    assert (job["state"], job["engine"], job["reason"]) == ("SUCCEEDED", "INLINE", "audit")
    assert job["params"] == {"archive": archived["id"], "engine": "INLINE"}
    [chosen] = [
        event["data"]
        for event in http.get(f"/v1/jobs/{job['id']}/events").json()["items"]
        if event["type"] == "engine"
    ]
    assert (chosen["reason"], chosen["archive_bytes"]) == (
        "REQUESTED",
        archived["result"]["archive"]["bytes"],
    )
    assert pointers(problem(http.post(verify, json={"engine": "FLINK"}), 422, "INVALID_REQUEST")) == {
        "/engine"
    }


def test_a_verification_that_names_nothing_is_one_request_however_it_is_sent(
    http: httpx.Client, archived: dict[str, Any]
) -> None:
    """Clients send `{}`, which was no body to the versions that took none: a retry is the same request."""
    verify, headers = f"/v1/archives/{archived['id']}:verify", {"Idempotency-Key": f"once-{archived['id']}"}
    bodies: list[Any] = [None, {}, {"engine": None}]
    [job_id] = {accepted(http.post(verify, json=body, headers=headers)) for body in bodies}
    problem(http.post(verify, json={"reason": "x"}, headers=headers), 422, "IDEMPOTENCY_KEY_REUSED")
    wait_for(http, job_id)


def test_archive_of_a_purge_that_removed_nothing_is_whole(http: httpx.Client, shop: Shop) -> None:
    """The second run of the README's example kept nothing, and its verification FAILED: ARCHIVE_EMPTY."""
    purge = wait_for(http, accepted(shop.purge(cutoff="2020-01-01T00:00:00Z", archive={"format": "PARQUET"})))
    assert purge["result"]["archive"]["files"] == 0
    verified = wait_for(http, accepted(http.post(f"/v1/archives/{purge['id']}:verify")))
    assert (verified["state"], verified["result"]["files"]) == ("SUCCEEDED", 0), verified


def test_archive_that_was_touched_is_found_out(http: httpx.Client, archived: dict[str, Any]) -> None:
    file = Path(http.get(f"/v1/archives/{archived['id']}").json()["file_list"][0]["path"])
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    verified = wait_for(http, accepted(http.post(f"/v1/archives/{archived['id']}:verify")))
    assert (verified["state"], verified["error"]["code"]) == ("FAILED", "ARCHIVE_CORRUPT")
    assert file.name in verified["error"]["detail"]


def test_archive_is_restored_into_a_new_file(
    http: httpx.Client, archived: dict[str, Any], roots: Path
) -> None:
    path = roots / f"restored-{archived['id']}.sqlite"
    restore = f"/v1/archives/{archived['id']}:restore"
    job = wait_for(http, accepted(http.post(restore, json={"into": {"file": str(path)}})))
    assert job["state"] == "SUCCEEDED", job["error"]
    assert {table: count_rows(path, f"sym_{table}") for table in REMOVED_3X} == REMOVED_3X
    again = wait_for(http, accepted(http.post(restore, json={"into": {"file": str(path)}})))
    assert (again["state"], again["error"]["code"]) == ("FAILED", "RESTORE_CONFLICT")


def test_archive_is_restored_into_the_live_tables(
    http: httpx.Client, shop: Shop, make_shop: MakeShop
) -> None:
    before = make_shop()
    http.post(f"/v1/stores/{shop.id}:check")
    job = wait_for(http, accepted(shop.purge(archive={"format": "PARQUET"}, stranded="SKIP")))
    assert symmetricds_rows(shop.path) != symmetricds_rows(before.path)
    restore = f"/v1/archives/{job['id']}:restore"
    restored = wait_for(http, accepted(http.post(restore, json={"into": {"live": True}})))
    assert restored["state"] == "SUCCEEDED", restored
    assert _all_rows(shop.path) == _all_rows(before.path)


def test_restore_into_the_live_tables_says_which_marks_it_does_not_undo(
    http: httpx.Client, shop: Shop
) -> None:
    job = wait_for(http, accepted(shop.purge(archive={"format": "PARQUET"}, stranded="MARK")))
    restore = f"/v1/archives/{job['id']}:restore"
    restored = wait_for(http, accepted(http.post(restore, json={"into": {"live": True}})))
    [warning] = restored["result"]["warnings"]
    assert (warning["code"], warning["count"]) == ("MARKS_NOT_UNDONE", job["result"]["stranded"]["marked"])
    assert warning["count"] > 0


def _all_rows(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as target:
        return {
            table: sorted(map(repr, target.execute(f"select * from sym_{table}").fetchall()))
            for table in REMOVED_3X
        }


def test_restore_needs_the_right_that_its_place_asks_for(
    service: ServiceProcess,
    archived: dict[str, Any],
    make_token: MakeToken,
    metadata: MetadataRows,
    shop: Shop,
) -> None:
    secret = make_token("purges:write", "jobs:read", "stores:read")
    before = shop.digest
    restore = f"/v1/archives/{archived['id']}:restore"
    with service.http(secret) as operator, metadata.unchanged():
        assert (
            problem(operator.post(restore, json={"into": {"live": True}}), 403, "SCOPE_MISSING")["scope"]
            == "admin"
        )
        answer = operator.post(restore, json={"into": {"file": "/tmp/x.sqlite"}})
        assert problem(answer, 403, "SCOPE_MISSING")["scope"] == "stores:write"
    assert shop.digest == before


def test_restore_into_no_place_is_refused(
    http: httpx.Client, archived: dict[str, Any], metadata: MetadataRows
) -> None:
    places: dict[str, list[dict[str, Any]]] = {
        "INVALID_REQUEST": [
            {},
            {"file": "relative.sqlite"},
            {"file": "/srv/x", "live": True},
            {"schema": "x; drop table y"},
            {"file": "/a\0b"},
        ],
        "PATH_NOT_ALLOWED": [{"file": "/etc/passwd"}],
    }
    with metadata.unchanged():
        for code, refused in places.items():
            for into in refused:
                answer = http.post(f"/v1/archives/{archived['id']}:restore", json={"into": into})
                problem(answer, 422, code)


def test_parameter_goes_request_over_store_over_target_over_global_over_default(
    http: httpx.Client, shop: Shop
) -> None:
    own = f"/v1/stores/{shop.id}/parameters/{RETENTION}"
    shared = f"/v1/parameters/{RETENTION}"

    def put(path: str, value: Any) -> httpx.Response:
        return http.put(path, json={"value": value}, headers={"If-Match": http.get(path).headers["etag"]})

    def planned(**fields: Any) -> tuple[int, str]:
        answer = http.post(
            f"/v1/stores/{shop.id}/purges?validate_only=true",
            json={"kind": "OUTGOING", "force": True} | fields,
        )
        assert answer.status_code == 200, answer.text
        return answer.json()["retention_minutes"], answer.json()["retention_source"]

    assert (http.get(own).json()["value"], http.get(own).json()["source"]) == (7200, "DEFAULT")
    assert planned() == (7200, "DEFAULT")
    try:
        assert put(shared, 500).status_code == 200
        assert (http.get(own).json()["value"], http.get(own).json()["source"]) == (500, "GLOBAL")
        assert planned() == (500, "GLOBAL")
        assert put(own, 400).status_code == 200
        assert planned() == (400, "STORE")
        assert planned(retention_minutes=300) == (300, "REQUEST")
        assert http.delete(own, headers={"If-Match": shop.etag()}).status_code == 200
        assert planned() == (500, "GLOBAL")
    finally:
        unset = http.delete(shared, headers={"If-Match": http.get(shared).headers["etag"]})
    assert (unset.json()["value"], unset.json()["source"]) == (7200, "DEFAULT")


@pytest.mark.parametrize("value", [-1, 10**12, "many", 1.5, None, True, [60], {"a": 1}])
def test_parameter_out_of_its_range_is_refused(
    http: httpx.Client, shop: Shop, metadata: MetadataRows, value: Any
) -> None:
    for path in (f"/v1/parameters/{RETENTION}", f"/v1/stores/{shop.id}/parameters/{RETENTION}"):
        etag = http.get(path).headers["etag"]
        with metadata.unchanged():
            answer = http.put(path, json={"value": value}, headers={"If-Match": etag})
        assert answer.status_code == 422, answer.text
        assert answer.json()["code"] in ("INVALID_REQUEST", "PARAMETER_VALUE_INVALID", "PARAMETER_INVALID")


def test_store_with_an_unknown_parameter_is_refused(
    http: httpx.Client, shop: Shop, metadata: MetadataRows
) -> None:
    with metadata.unchanged():
        answer = shop.change(parameters={"no.such.parameter": 1})
    assert answer.status_code in (404, 422), answer.text


def test_parameter_has_its_aliases_and_bounds(http: httpx.Client) -> None:
    items = {item["name"]: item for item in http.get("/v1/parameters").json()["items"]}
    retention = items[RETENTION]
    assert (retention["default"], retention["type"]) == (7200, "INTEGER") or retention["default"] == 7200
    for alias in retention["aliases"]:
        assert http.get(f"/v1/parameters/{alias}").json()["name"] == RETENTION


def test_stats_tell_what_was_removed_and_what_is_left(http: httpx.Client, shop: Shop) -> None:
    before = http.get(f"/v1/stores/{shop.id}/purge-stats").json()
    assert {item["removed"] for item in before["tables"]} == {0}
    wait_for(http, accepted(shop.purge()))
    after = http.get(f"/v1/stores/{shop.id}/purge-stats").json()
    removed = {item["table"].removeprefix("sym_"): item["removed"] for item in after["tables"]}
    assert removed == REMOVED_3X | {"incoming_batch": 0, "data_gap": 0}
    for old, new in zip(before["tables"], after["tables"], strict=True):
        if old["lag_behind_retention"] is not None and new["lag_behind_retention"] is not None:
            lag = parse_duration(old["lag_behind_retention"])
            assert parse_duration(new["lag_behind_retention"]) <= lag + timedelta(minutes=1)
    batches = next(item for item in after["tables"] if item["table"] == "sym_outgoing_batch")
    assert batches["oldest_row_left"] is not None


def _figures(http: httpx.Client) -> dict[str, float]:
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def _of_metadata(figures: dict[str, float]) -> dict[str, float]:
    """Without the requests that each instance has had itself, and what it has heard."""
    own = ("lethe_http_", "lethe_news_")
    return {name: value for name, value in figures.items() if not name.startswith(own)}


def test_figures_are_the_same_on_every_instance(
    postgresql_service: ServiceProcess, second_service: ServiceProcess
) -> None:
    with postgresql_service.http() as one, second_service.http() as two:
        first, second = _figures(one), _figures(two)
        assert _of_metadata(first) == _of_metadata(second)
        posts = 'lethe_http_requests_total{method="GET",route="/metrics",status="200"}'
        assert _figures(one)[posts] >= 1
        assert [name for name in first if name.startswith("lethe_build_info{")]
        assert first["lethe_instances_alive"] == 2
        instances = one.get("/v1/instances").json()
        assert instances == two.get("/v1/instances").json()
        assert [item["alive"] for item in instances["items"]] == [True, True]


def test_figures_count_what_purges_removed(http: httpx.Client, shop: Shop) -> None:
    wait_for(http, accepted(shop.purge()))
    figures = _figures(http)
    for table, rows in REMOVED_3X.items():
        assert figures[f'lethe_purge_rows_removed{{store="{shop.id}",table="{table}"}}'] == rows


def test_retry_makes_a_new_job_like_the_old_one(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge()
    problem(http.post(f"/v1/jobs/{job_id}:retry", json={}), 409, "ILLEGAL_TRANSITION")
    http.post(f"/v1/jobs/{job_id}:abort", json={"reason": "try again"})
    assert wait_for(http, job_id)["reason"] == "try again"
    answer = http.post(f"/v1/jobs/{job_id}:retry", json={})
    retried = http.get(f"/v1/jobs/{accepted(answer)}").json()
    assert (retried["retried_from"], retried["params"]["cutoff"]) == (job_id, "2026-11-01T10:00:00Z")
    http.patch(f"/v1/jobs/{retried['id']}/throttle", json={})
    assert wait_for(http, retried["id"])["state"] == "SUCCEEDED"


def test_state_that_is_reached_already_is_no_error(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge()
    http.post(f"/v1/jobs/{job_id}:pause", json={})
    wait_for(http, job_id, "PAUSED")
    before = http.get(f"/v1/jobs/{job_id}").headers["etag"]
    assert http.post(f"/v1/jobs/{job_id}:pause", json={}).status_code == 200
    assert http.get(f"/v1/jobs/{job_id}").headers["etag"] == before
    for _ in range(2):
        assert http.post(f"/v1/jobs/{job_id}:abort", json={}).status_code in (200, 202)
        wait_for(http, job_id)
    assert http.post(f"/v1/jobs/{job_id}:abort", json={}).status_code == 200


def test_throttle_names_the_field_that_is_wrong(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge()
    answer = http.patch(f"/v1/jobs/{job_id}/throttle", json={"rows_per_s": -1, "intensity": 7})
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {"/rows_per_s", "/intensity"}
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    wait_for(http, job_id)
