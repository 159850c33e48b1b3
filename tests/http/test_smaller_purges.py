"""The smaller purges of SymmetricDS over HTTP: retentions, words, versions, archives that come back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.oracles.symmetricds import Place
from tests.regressions.old_rows import OLD_ROWS, UPKEEP, insert

MakeShop = Callable[..., Shop]
SIMPLE = ("EXTRACT_REQUEST", "REGISTRATION_REQUEST", "INCOMING_ERROR", "STATISTICS", "TRIGGER_HIST")
NUMBERS = range(900_001, 900_021)
"""Of rows that the reference database has not."""
RETENTIONS = {
    "EXTRACT_REQUEST": ("purge.extract.request.retention.minutes", 14_400),
    "REGISTRATION_REQUEST": ("purge.registration.request.retention.minutes", 7_200),
    "INCOMING_ERROR": ("purge.retention.minutes", 7_200),
    "STATISTICS": ("purge.stats.retention.minutes", 14_400),
    "TRIGGER_HIST": ("purge.trigger.hist.retention.minutes", 86_400),
    "STRANDED": ("purge.retention.minutes", 7_200),
    "CHANNELS": ("purge.retention.minutes", 7_200),
}


@pytest.fixture
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what differs here is at the target."""
    return sqlite_service


def _run(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as target, target:
        return target.execute(statement).fetchall()


def _rows(path: Path, table: str) -> set[Any]:
    return set(_run(path, f"select * from sym_{table}"))


def _words(kind: str) -> dict[str, str]:
    return {"stranded": "REMOVE"} if kind == "STRANDED" else {}


@pytest.mark.parametrize("kind", SIMPLE)
def test_rows_go_as_planned_and_come_back(http: httpx.Client, make_shop: MakeShop, kind: str) -> None:
    shop = make_shop("3.x")
    [table] = OLD_ROWS[kind]
    insert(Place(f"sqlite:///{shop.path}"), kind, NUMBERS)
    before = _rows(shop.path, table)
    plan = shop.plan(kind=kind).json()
    planned = {each["table"]: each["rows_to_remove"] for each in plan["tables"]}
    assert planned[f"sym_{table}"] >= len(NUMBERS)
    job_id = accepted(shop.purge(kind=kind, plan_id=plan["plan_id"], archive={"format": "PARQUET"}))
    job = wait_for(http, job_id)
    assert job["state"] == "SUCCEEDED", job
    removed = {f"sym_{name}": count for name, count in job["result"]["removed"].items()}
    assert removed == planned
    assert len(before) - len(_rows(shop.path, table)) == planned[f"sym_{table}"]
    restored = wait_for(
        http, accepted(http.post(f"/v1/archives/{job_id}:restore", json={"into": {"live": True}}))
    )
    assert restored["state"] == "SUCCEEDED", restored
    assert restored["result"]["rows"] == sum(planned.values())
    assert _rows(shop.path, table) == before


@pytest.mark.parametrize("kind", UPKEEP)
def test_the_retention_is_requests_over_stores_over_targets_over_symmetricds(
    http: httpx.Client, make_shop: MakeShop, kind: str
) -> None:
    shop = make_shop("3.x")
    name, default = RETENTIONS[kind]

    def planned(**fields: Any) -> tuple[int, str]:
        body = http.post(
            f"/v1/stores/{shop.id}/purges",
            params={"validate_only": "true"},
            json={"kind": kind} | _words(kind) | fields,
            headers={"Prefer": "wait=20"},
        ).json()
        return body["retention_minutes"], body["retention_source"]

    assert planned() == (default, "DEFAULT")
    _run(
        shop.path,
        "create table sym_parameter (external_id text, node_group_id text, param_key text, param_value text)",
    )
    _run(shop.path, f"insert into sym_parameter values ('ALL', 'ALL', '{name}', '700')")
    assert planned() == (700, "TARGET")
    assert shop.change(parameters={name: 800}).status_code == 200
    assert planned() == (800, "STORE")
    assert planned(retention_minutes=900) == (900, "REQUEST")


@pytest.mark.parametrize("kind", UPKEEP)
def test_a_version_without_the_tables_is_told_so(make_shop: MakeShop, kind: str) -> None:
    shop = make_shop("2.x")
    digest = shop.digest
    for asked in (shop.purge, shop.plan):
        answer = asked(kind=kind, **_words(kind))
        assert answer.status_code == 409, answer.text
        body = answer.json()
        assert body["code"] in ("TARGET_TABLES_MISSING", "TARGET_SCHEMA_UNSUPPORTED")
        assert f"no purge {kind}" in body["detail"]
    assert shop.digest == digest


def test_tables_that_are_not_there_are_left_out(http: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop("3.x")
    insert(Place(f"sqlite:///{shop.path}"), "STATISTICS", NUMBERS)
    _run(shop.path, "drop table sym_node_host_job_stats")
    _run(shop.path, "alter table sym_node_host_channel_stats rename column start_time to begun")
    plan = shop.plan(kind="STATISTICS").json()
    assert [each["table"] for each in plan["tables"]] == ["sym_node_host_stats"]
    details = {
        each["table"]: each["detail"] for each in plan["warnings"] if each["code"] == "TABLE_NOT_PURGED"
    }
    assert details == {
        "sym_node_host_job_stats": "sym_node_host_job_stats is not there: nothing of it goes",
        "sym_node_host_channel_stats": "sym_node_host_channel_stats has no column start_time:"
        " nothing of it goes",
    }
    job = wait_for(http, accepted(shop.purge(kind="STATISTICS")))
    assert job["state"] == "SUCCEEDED", job
    assert job["result"]["removed"]["node_host_stats"] >= len(NUMBERS)


def test_what_is_stranded_goes_only_by_the_word_of_its_kind(shop: Shop) -> None:
    digest = shop.digest
    for kind, words in (
        ("STRANDED", {}),
        ("STRANDED", {"stranded": "MARK"}),
        ("CHANNELS", {"stranded": "REMOVE"}),
        ("OUTGOING", {"stranded": "REMOVE"}),
        ("STATISTICS", {"stranded": "REMOVE"}),
        ("CHANNELS", {"stranded": "RECAPTURE"}),
        ("OUTGOING", {"stranded": "RECAPTURE"}),
        ("TRIGGER_HIST", {"stranded": "RECAPTURE"}),
    ):
        body = problem(shop.purge(kind=kind, **words), 422, "INVALID_REQUEST")
        assert [item["pointer"] for item in body["errors"]] == ["/stranded"], kind
    batch = {"kind": "PURGE", "stores": [shop.id], "params": {"kind": "STRANDED"}}
    body = problem(shop.http.post("/v1/jobs:batch", json=batch), 422, "INVALID_REQUEST")
    assert [item["pointer"] for item in body["errors"]] == ["/params/stranded"]
    assert shop.digest == digest


def test_who_says_nothing_or_another_word_is_shown_both_words(shop: Shop) -> None:
    for words in ({}, {"stranded": "SKIP"}):
        body = problem(shop.purge(kind="STRANDED", **words), 422, "INVALID_REQUEST")
        [error] = body["errors"]
        assert "say RECAPTURE or REMOVE" in error["detail"], error


def test_recapture_is_a_word_of_stranded_rows(shop: Shop) -> None:
    digest = shop.digest
    answer = shop.plan(kind="STRANDED", stranded="RECAPTURE")
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert plan["stranded"]["mode"] == "RECAPTURE"
    other = shop.purge(kind="STRANDED", stranded="REMOVE", plan_id=plan["plan_id"])
    problem(other, 422, "PLAN_DIFFERS")
    assert shop.digest == digest


def test_channels_have_a_retention_of_their_own(http: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop("3.x")
    digest = shop.digest
    own = {"default": 5_000_000}
    plan = shop.plan(channel_retention_minutes=own).json()
    assert list(plan["channel_cutoffs"]) == ["default"]
    assert plan["channel_cutoffs"]["default"] < "2020"
    problem(shop.purge(kind="INCOMING", channel_retention_minutes=own), 422, "INVALID_REQUEST")
    problem(shop.purge(plan_id=plan["plan_id"], channel_retention_minutes=own), 422, "INVALID_REQUEST")
    problem(shop.purge(channel_retention_minutes={"default": -1}), 422, "INVALID_REQUEST")
    problem(shop.purge(channel_retention_minutes={"default": 5}), 422, "RETENTION_TOO_SHORT")
    assert shop.digest == digest
    job = wait_for(http, accepted(shop.purge(plan_id=plan["plan_id"])))
    assert job["state"] == "SUCCEEDED", job
    assert job["result"]["channel_cutoffs"] == plan["channel_cutoffs"]
    planned = {each["table"].removeprefix("sym_"): each["rows_to_remove"] for each in plan["tables"]}
    assert job["result"]["removed"] == planned
    assert _run(shop.path, "select count(*) from sym_data where channel_id = 'default'") != [(0,)]
