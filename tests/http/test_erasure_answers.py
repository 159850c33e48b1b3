"""What clients of erasure cycles read: durations, filters, references, instants, and where things are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.environments import EnvironmentStore, make_environment_store
from tests.http.problem import problem
from tests.http.test_erasure import AT_ONCE, begun, ended, read, samples
from tests.http.test_erasure_refusals import held_by_je

__all__ = ["samples"]
pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)


@pytest.fixture
def store(http: httpx.Client, roots: Path, samples: Path) -> EnvironmentStore:
    return make_environment_store(http, roots, samples / "closed")


def test_job_of_a_cycle_names_its_lengths_as_durations(store: EnvironmentStore) -> None:
    job = store.post("erasure-cycles", {"period": "P25D"}).json()
    params = job["params"]
    assert (params["period"], params["min_file_age"], params["duration"]) == ("P25D", "P25D", "P25D")
    assert not [name for name in params if name.endswith("_s")]


def test_cycles_are_listed_by_state(store: EnvironmentStore) -> None:
    ended(store, begun(store))
    with held_by_je(store.directory):
        job = ended(store, begun(store), "WAITING")
        listed: dict[str, list[Any]] = {
            query: [item["state"] for item in read(store, f"erasure-cycles?{query}")["items"]]
            for query in ("state=COMPLETE", "state=RUNNING", "state=FAILED", "state=RUNNING&state=COMPLETE")
        }
        store.http.post(f"/v1/jobs/{job['id']}:pause")
        assert len(read(store, "erasure-cycles?state=SUSPENDED")["items"]) == 1
        assert read(store, "erasure-cycles?state=RUNNING")["items"] == []
        store.http.post(f"/v1/jobs/{job['id']}:abort")
    assert list(listed.values()) == [["COMPLETE"], ["RUNNING"], [], ["RUNNING", "COMPLETE"]]
    answer = store.http.get(f"{store.url}/erasure-cycles?state=DONE")
    assert problem(answer, 422, "INVALID_REQUEST")["errors"][0]["pointer"] == "query:state.0"


def test_lock_that_is_waited_for_is_named(store: EnvironmentStore) -> None:
    with held_by_je(store.directory):
        job = ended(store, begun(store), "WAITING")
        store.http.post(f"/v1/jobs/{job['id']}:abort")
    assert [(item["kind"], item["ref"]) for item in job["waiting_on"]] == [("ENVIRONMENT_IN_USE", "je.lck")]


def test_refusal_says_its_code_once(store: EnvironmentStore) -> None:
    (store.directory / "00000001.jdb").rename(store.directory / "00000008.jdb")
    answer = store.http.post(f"{store.url}/erasure-cycles?validate_only=true", json=AT_ONCE)
    body = problem(answer, 409, "LOG_HEADER_INVALID")
    assert body["detail"] == "00000008.jdb, offset 22: it says that it is 00000001.jdb"


def test_events_tell_times_as_all_answers_do(store: EnvironmentStore) -> None:
    job = ended(store, begun(store))
    events = store.http.get(f"/v1/jobs/{job['id']}/events?page_size=500").json()["items"]
    written = [event["data"]["first_write"] for event in events if event["data"].get("message") == "FILE"]
    assert written
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", at) for at in written)


def test_entry_of_a_file_that_is_not_there_says_so(store: EnvironmentStore) -> None:
    body = problem(store.http.get(f"{store.url}/log-entries/00000099.jdb/0"), 404, "LOG_ENTRY_NOT_FOUND")
    assert body["detail"] == "there is no 00000099.jdb"


def test_damaged_control_file_is_a_warning_and_made_anew(store: EnvironmentStore) -> None:
    """A cycle mends it, so a check that forbids the cycle would be wrong."""
    (store.directory / "lethe.control").write_bytes(b"x" * 8192)
    found = store.http.post(f"{store.url}:check").json()
    [finding] = [item for item in found["findings"] if item["code"] == "CONTROL_FILE_INVALID"]
    assert (finding["severity"], found["can"]) == ("WARNING", ["PLAN_ERASURE", "ERASE"])
    assert ended(store, begun(store))["state"] == "SUCCEEDED"
    assert store.record().epoch > 0


def test_lists_of_a_store_of_another_kind_are_refused(make_shop: Any, http: httpx.Client) -> None:
    shop = make_shop()
    for path in ("backup-sessions", "protections", "erasure-cycles"):
        problem(http.get(f"/v1/stores/{shop.id}/{path}"), 409, "STORE_KIND_WRONG")
