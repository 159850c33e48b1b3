"""`lethe replication agreement update` and `lethe erasure abort` on the real service."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.http.commands import Command
from tests.http.environments import make_environment_store
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.supplying import make_pair
from tests.je_data import unpack

USAGE = 64


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    return sqlite_service


def test_agreement_is_changed_where_it_is_named_and_nowhere_else(
    http: httpx.Client, service: ServiceProcess, roots: Path, command: Command
) -> None:
    pair = make_pair(http, service, roots, interval="PT5M")
    path = f"{pair.store}/agreements/{pair.agreement['id']}"
    update = ("replication", "agreement", "update", pair.supplier.id, pair.agreement["id"])
    before = http.get(path).json()
    assert command(*update, "--max-changes", "7", "--batch-rows", "20")[0] == 0
    after = http.get(path).json()
    assert (after["max_changes"], after["batch_rows"]) == (7, 20)
    assert {name: after[name] for name in ("interval", "consumer", "in_flight")} == {
        name: before[name] for name in ("interval", "consumer", "in_flight")
    }
    assert command(*update, "--no-interval")[0] == 0
    assert http.get(path).json()["interval"] is None
    version = http.get(path).headers["etag"]
    for wrong in ((), ("--no-interval", "--interval", "PT1M")):
        assert command(*update, *wrong)[0] == USAGE
    assert http.get(path).headers["etag"] == version


def test_cycle_is_ended_by_the_command_and_its_job_says_why(
    http: httpx.Client, roots: Path, tmp_path: Path, command: Command
) -> None:
    store = make_environment_store(http, roots, unpack("closed", tmp_path / "sample"))
    job_id = accepted(store.post("erasure-cycles", {"min_file_age": "PT0S", "duration": "P25D"}))
    wait_for(http, job_id, "RUNNING", "WAITING")
    assert command("erasure", "abort", store.id, "--file", "0")[0] == USAGE
    code, out, _err = command("erasure", "abort", store.id, "--reason", "disk is slow", "--json")
    assert code == 0
    assert json.loads(out)["id"] == job_id
    ended = wait_for(http, job_id)
    assert ended["state"] == "ABORTED"
    assert http.get(f"{store.url}/erasure-cycles").json()["items"][0]["state"] == "ABORTED"
    assert ended["reason"] == "disk is slow"
