"""Erasure cycles over HTTP, on environments that JE has written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.environments import EnvironmentStore, make_environment_store
from tests.http.problem import problem
from tests.http.shop import wait_for
from tests.je_data import packed_files, unpack

AT_ONCE = {"min_file_age": "PT0S", "duration": "PT0S"}
PATIENCE_S = 60.0
ON_SQLITE = pytest.mark.parametrize("service", ["sqlite"], indirect=True)
"""Where it makes no difference where the metadata lies."""
MakeStore = Callable[..., EnvironmentStore]


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("je")
    for name in ("closed", "crash", "replicated"):
        unpack(name, directory / name)
    return directory


@pytest.fixture
def make(http: httpx.Client, roots: Path, samples: Path) -> MakeStore:
    def make(name: str = "closed", **fields: Any) -> EnvironmentStore:
        return make_environment_store(http, roots, samples / name, **fields)

    return make


def expected_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(packed_files(name)["expected.json"])
    return found


def ended(store: EnvironmentStore, job_id: str, *states: str) -> dict[str, Any]:
    """Wait for the end of a job, or for one of the states."""
    return wait_for(store.http, job_id, *states, timeout_s=PATIENCE_S)


def begun(store: EnvironmentStore, **body: Any) -> str:
    answer = store.post("erasure-cycles", body or AT_ONCE)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def read(store: EnvironmentStore, path: str) -> dict[str, Any]:
    answer = store.http.get(f"{store.url}/{path}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@ON_SQLITE
def test_plan_counts_what_je_itself_has_erased(make: MakeStore) -> None:
    store, theirs = make(), expected_of("closed")["je_erased_offsets"]
    before = {name: (store.directory / name).read_bytes() for name in store.names}
    answer = store.http.post(
        f"{store.url}/erasure-cycles?validate_only=true", json=AT_ONCE, headers={"Prefer": "wait=60"}
    )
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    ours = {file["file"]: sum(amount["entries"] for amount in file["erase"]) for file in plan["files"]}
    last = store.names[-1]
    assert {name: ours[name] for name in store.names[:-1]} == {
        name: len(theirs[name]) for name in store.names[:-1]
    }
    assert ours[last] == 0
    assert [cause["cause"] for cause in plan["files"][-1]["causes"]] == ["TAIL_OF_LOG", "RECOVERY_INTERVAL"]
    assert plan["facts"]["vetoed_count"] == 0
    assert {name: (store.directory / name).read_bytes() for name in store.names} == before
    assert not (store.directory / "lethe.control").exists()


@ON_SQLITE
def test_plan_names_protected_files(make: MakeStore) -> None:
    store = make()
    session = store.begin(files=["00000001.jdb"])
    answer = store.http.post(
        f"{store.url}/erasure-cycles?validate_only=true", json=AT_ONCE, headers={"Prefer": "wait=60"}
    )
    causes = {file["file"]: [cause["cause"] for cause in file["causes"]] for file in answer.json()["files"]}
    assert causes["00000001.jdb"] == ["PROTECTED"]
    assert causes["00000000.jdb"] == []
    assert store.post(f"backup-sessions/{session['id']}:end").json()["valid"] is True


@ON_SQLITE
def test_a_reviewed_plan_is_erased_and_refused_where_too_much_of_it_is_gone(make: MakeStore) -> None:
    store = make()
    url = f"{store.url}/erasure-cycles?validate_only=true"
    plan = store.http.post(url, json=AT_ONCE, headers={"Prefer": "wait=60"}).json()
    asked = {"plan_id": plan["plan_id"], "max_drift": 0, "duration": "PT0S"}
    for fields, status, code in (
        ({"kinds": ["EXTINCT_RECORDS"]}, 422, "PLAN_DIFFERS"),
        ({"period": "P25D", "duration": None}, 422, "INVALID_REQUEST"),
        ({"plan_id": f"job_{'0' * 26}"}, 422, "PLAN_NOT_USABLE"),
    ):
        problem(store.post("erasure-cycles", asked | fields), status, code)
    moved = store.directory / "00000000.jdb"
    moved.rename(store.directory / "moved")
    told = problem(store.post("erasure-cycles", asked), 412, "PLAN_NO_LONGER_HOLDS")
    assert "and max_drift allows 0" in told["detail"]
    (store.directory / "moved").rename(moved)
    job = ended(store, begun(store, **asked))
    assert job["state"] == "SUCCEEDED", job
    planned = sum(amount["entries"] for amount in plan["erase"])
    assert job["result"]["planned"] == job["result"]["erased"] == {"entries": planned}
    assert (job["result"]["plan_id"], job["result"]["fewer_than_planned"]) == (plan["plan_id"], 0)


def test_unthrottled_cycle_erases_what_was_planned_and_nothing_else(make: MakeStore) -> None:
    store, expected = make(), expected_of("closed")
    job = ended(store, begun(store, **AT_ONCE, reason="test"))
    assert job["state"] == "SUCCEEDED", job
    assert job["result"]["files"] == {"ERASED": 3, "NOT_SELECTED": 1}
    files = read(store, "erasure-cycles/current/files")["items"]
    for file in files[:-1]:
        assert (file["proved"], file["entries_erased"]) == (True, file["entries_planned"])
        assert file["sha256_now"] == file["sha256_after"] == file["sha256_expected"]
        assert file["erasure_generation"] == 1
    content = {name: (store.directory / name).read_bytes() for name in store.names}
    for name, offsets in list(expected["je_erased_offsets"].items())[:-1]:
        assert all(content[name][offset + 4] == 43 for offset in offsets)
    cycle = read(store, "erasure-cycles/current")
    assert (cycle["state"], cycle["job_state"], cycle["mode"]) == ("COMPLETE", "SUCCEEDED", "CLOSED")
    assert read(store, "erasure-cycles")["items"][0] == cycle
    stats = read(store, "erasure-cycles/current/stats")
    assert stats["cycle"]["eraserFilesErased"] == stats["cumulative"]["eraserFilesErased"] == 3
    assert stats["cycle"]["eraserFSyncs"] == 9
    assert job["subject"]["id"] == cycle["id"]


@ON_SQLITE
def test_log_entry_tells_whether_it_is_erased(make: MakeStore) -> None:
    store = make()
    offset = expected_of("closed")["je_erased_offsets"]["00000000.jdb"][0]
    before = read(store, f"log-entries/00000000.jdb/{offset}")
    assert (before["erased"], before["all_zero"]) == (False, False)
    ended(store, begun(store))
    after = read(store, f"log-entries/00000000.jdb/{offset}")
    assert (after["type"], after["erased"], after["all_zero"]) == ("ERASED", True, True)
    assert after["item_bytes"] == before["item_bytes"]
    for path in (f"log-entries/00000000.jdb/{offset + 1}", "log-entries/00000077.jdb/0"):
        problem(store.http.get(f"{store.url}/{path}"), 404, "LOG_ENTRY_NOT_FOUND")


@ON_SQLITE
def test_replicated_environment_waits_for_the_truncation_of_its_index(make: MakeStore) -> None:
    store = make("replicated")
    before = {name: (store.directory / name).read_bytes() for name in store.names}
    job = ended(store, begun(store), "WAITING")
    assert [item["kind"] for item in job["waiting_on"]] == ["VLSN_TRUNCATION"]
    assert job["waiting_on"][0]["ref"].startswith("VLSN 8207")
    assert read(store, "erasure-cycles/current")["state"] == "RUNNING"
    store.http.post(f"/v1/jobs/{job['id']}:abort", json={"reason": "test"})
    assert ended(store, job["id"])["state"] == "ABORTED"
    assert read(store, "erasure-cycles/current")["state"] == "ABORTED"
    assert {name: (store.directory / name).read_bytes() for name in store.names} == before


def test_second_cycle_is_refused_while_one_runs(make: MakeStore) -> None:
    store = make()
    first = begun(store, min_file_age="PT0S", duration="P1D")
    found = problem(store.post("erasure-cycles", AT_ONCE), 409, "CYCLE_RUNNING")
    assert found["job_id"] == first
    store.http.post(f"/v1/jobs/{first}:abort", json={"reason": "test"})
    ended(store, first)
    assert ended(store, begun(store))["state"] == "SUCCEEDED"


def test_a_cycle_takes_the_bounds_that_it_keeps_and_no_other(make: MakeStore) -> None:
    """Rows per second were taken, shown as asked for, and never kept."""
    store = make()
    cycle = begun(store, min_file_age="PT0S", duration="P1D")
    url = f"/v1/jobs/{cycle}/throttle"
    refused = problem(store.http.patch(url, json={"rows_per_s": 5}), 409, "THROTTLE_NOT_TAKEN")
    assert "bytes_per_s and intensity" in refused["detail"]
    both = {"rows_per_s": 5, "intensity": 0.5}
    problem(store.http.patch(url, json=both), 409, "THROTTLE_NOT_TAKEN")
    taken = store.http.patch(url, json={"bytes_per_s": 5_000, "intensity": 0.5})
    assert taken.json()["throttle"]["requested"]["bytes_per_s"] == 5_000
    store.http.post(f"/v1/jobs/{cycle}:abort", json={"reason": "test"})
    assert ended(store, cycle)["state"] == "ABORTED"


def test_repeated_request_begins_one_cycle(make: MakeStore) -> None:
    store = make()
    answers = [store.post("erasure-cycles", AT_ONCE, key="once-and-again") for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    ended(store, answers[0].json()["id"])
    assert len(read(store, "erasure-cycles")["items"]) == 1


def test_protected_file_is_left_until_the_backup_has_ended(make: MakeStore) -> None:
    store = make()
    session = store.begin(files=["00000000.jdb"])
    before = (store.directory / "00000000.jdb").read_bytes()
    job = ended(store, begun(store), "WAITING")
    assert (job["waiting_on"][0]["kind"], job["waiting_on"][0]["ref"]) == ("BACKUP", session["id"])
    assert (store.directory / "00000000.jdb").read_bytes() == before
    assert store.post(f"backup-sessions/{session['id']}:end").json()["valid"] is True
    assert ended(store, job["id"])["state"] == "SUCCEEDED"
    assert (store.directory / "00000000.jdb").read_bytes() != before


def test_switched_on_store_begins_cycles_by_itself(make: MakeStore) -> None:
    store = make(parameters={"je.env.runEraser": True, "je.erase.period": "P3650D"})
    deadline = time.monotonic() + PATIENCE_S
    while not (items := read(store, "erasure-cycles")["items"]):
        assert time.monotonic() < deadline, "nothing began"
        time.sleep(0.1)
    assert (items[0]["origin"], items[0]["period"]) == ("PARAMETERS", "P3650D")
    job = ended(store, items[0]["job_id"])
    assert job["result"]["files"] == {"NOT_SELECTED": 4}  # younger than ten years


@ON_SQLITE
def test_check_tells_what_stands_in_the_way(make: MakeStore) -> None:
    store = make()
    (store.directory / "je.properties").write_text("je.env.runEraser=true\n")
    found = store.http.post(f"{store.url}:check").json()
    assert (found["ok"], found["server_version"], len(found["sizes"])) == (False, 26, 4)
    [error] = [each for each in found["findings"] if each["severity"] == "ERROR"]
    assert (error["code"], "set it to false" in error["detail"]) == ("OWN_ERASER", True)
    assert "je.properties" in found["conflicts"][0]
    assert not (store.directory / "je.lck").exists()
