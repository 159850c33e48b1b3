"""`lethe replication agreement | session | compare` against a running service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.supplying import GENERATION, Pair, entries, make_pair, registered, token_file, write


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """The command knows nothing of metadata."""
    return sqlite_service


def _lethe(service: ServiceProcess, *arguments: str, code: int = 0) -> Any:
    access = ["--url", service.url, "--data-dir", str(service.data_dir), "--json"]
    done = run_to_end(["replication", *arguments, *access])
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def test_an_agreement_is_made_shown_and_taken_away(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    stores = [make_replica(http, rid=rid, folder=roots, generation=GENERATION) for rid in (1, 2)]
    token = registered(http, f"file:{token_file(service, roots)}", store=stores[0].id)
    made = _lethe(
        service,
        "agreement",
        "create",
        stores[0].id,
        service.url,
        stores[1].id,
        "--token",
        token,
        "--max-changes",
        "5",
    )
    assert (made["state"], made["max_changes"]) == ("REGISTERED", 5)
    [listed] = _lethe(service, "agreement", "list", stores[0].id)
    assert listed["id"] == made["id"]
    shown = _lethe(service, "agreement", "show", stores[0].id, made["id"])
    assert shown["status"]["lag_changes"] == 0
    _lethe(service, "agreement", "delete", stores[0].id, made["id"])
    assert _lethe(service, "agreement", "list", stores[0].id) == []


def test_grants_to_discard_and_the_clock_are_an_admins_commands(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    store = make_replica(http, rid=2, folder=roots, generation=GENERATION).id
    write(ConsumerStore(http, store, None), 1)
    told = ["--supplier-rid", "1", "--reason", "east was chosen", "--expires-in", "PT5M"]
    made = _lethe(service, "discard-grant", "create", store, *told)
    assert made["state"] == "OPEN"
    assert _lethe(service, "discard-grant", "revoke", store, made["id"])["state"] == "REVOKED"
    [listed] = _lethe(service, "discard-grant", "list", store)
    assert listed["id"] == made["id"]
    assert _lethe(service, "clock", "show", store)["standing"]["ahead"] == "PT0S"
    assert _lethe(service, "clock", "repair", store, "--reason", "a test")["consumers_asked"] == []
    pinned = _lethe(service, "key", "pin", store, "7", "9a" * 32, "--reason", "read at west")
    assert _lethe(service, "key", "list", store)["known"] == [pinned]
    assert _lethe(service, "key", "forget", store, "7", "--reason", "west is gone") == pinned


def test_a_session_is_begun_followed_and_shown(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair: Pair = make_pair(http, service, roots)
    write(pair.supplier, 12)
    arguments = (pair.supplier.id, pair.agreement["id"])
    assert _lethe(service, "compare", *arguments)["missing"] == {"1": 12}
    job = _lethe(service, "session", "start", *arguments, "--strategy", "classic")
    assert job["result"]["outcome"] == "UP_TO_DATE"
    assert entries(pair.consumer) == entries(pair.supplier)
    [listed] = _lethe(service, "session", "list", pair.supplier.id)
    shown = _lethe(service, "session", "show", pair.supplier.id, listed["id"])
    assert (shown["strategy"], shown["counters"]["1"]["acknowledged"]) == ("CLASSIC", 12)
    access = ["--url", service.url, "--data-dir", str(service.data_dir)]
    human = run_to_end(["replication", "session", "show", pair.supplier.id, listed["id"], *access])
    assert "acknowledged" in human.stdout
    assert "UP_TO_DATE" in human.stdout


def test_a_session_that_needs_a_total_ends_with_1_and_says_so(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, generations=(GENERATION, None))
    write(pair.supplier, 3)
    arguments = (pair.supplier.id, pair.agreement["id"])
    job = _lethe(service, "session", "start", *arguments, code=1)
    assert job["error"]["code"] == "NEEDS_TOTAL"
    job = _lethe(service, "session", "start", *arguments, "--total")
    assert job["result"]["outcome"] == "UP_TO_DATE"
    assert entries(pair.consumer) == entries(pair.supplier)
