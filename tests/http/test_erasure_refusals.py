"""Bad environments and bad requests: a refusal with its code, naming file and offset; nothing is written."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.environments import EnvironmentStore, make_environment_store
from tests.http.problem import problem
from tests.http.test_erasure import AT_ONCE, begun, ended, samples

__all__ = ["samples"]
# What is refused does not depend on where the metadata lies.
pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)


@pytest.fixture
def store(http: httpx.Client, roots: Path, samples: Path) -> EnvironmentStore:
    return make_environment_store(http, roots, samples / "closed")


def logs(store: EnvironmentStore) -> dict[str, Any]:
    """Bytes and times of the log files: neither may change."""
    return {
        name: (path.stat().st_mtime_ns, path.read_bytes())
        for name in store.names
        if (path := store.directory / name).is_file() and os.access(path, os.R_OK)
    }


def change(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@contextmanager
def held_by_je(directory: Path) -> Iterator[None]:
    """JE's own lock: a POSIX lock of byte 0, as a process with the environment open holds it."""
    with (directory / "je.lck").open("w+b") as lock:
        record = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, record)  # as another process would hold it
        yield


def test_truncated_file_is_refused(store: EnvironmentStore) -> None:
    os.truncate(store.directory / "00000001.jdb", 500_000)
    before = logs(store)
    job = ended(store, begun(store))
    assert job["state"] == "FAILED"
    assert job["error"]["code"] == "LOG_ENTRY_TORN"
    assert "00000001.jdb, offset " in job["error"]["detail"]
    assert logs(store) == before
    assert not (store.directory / "lethe.control").exists()


@pytest.mark.parametrize(
    ("offset", "data", "code"),
    [
        (22, (7).to_bytes(4, "little"), "LOG_HEADER_INVALID"),  # says that it is another file
        (34, (27).to_bytes(4, "little"), "LOG_VERSION_UNSUPPORTED"),
        (34, (14).to_bytes(4, "little"), "LOG_VERSION_UNSUPPORTED"),
    ],
)
def test_header_of_a_file_is_refused(store: EnvironmentStore, offset: int, data: bytes, code: str) -> None:
    change(store.directory / "00000001.jdb", offset, data)
    before = logs(store)
    job = ended(store, begun(store))
    assert (job["state"], job["error"]["code"]) == ("FAILED", code)
    assert "00000001.jdb, offset " in job["error"]["detail"]
    assert logs(store) == before


def test_symbolic_link_is_not_followed(store: EnvironmentStore, roots: Path) -> None:
    path = store.directory / "00000001.jdb"
    path.rename(roots / f"{store.id}-elsewhere.jdb")
    path.symlink_to(roots / f"{store.id}-elsewhere.jdb")
    job = ended(store, begun(store))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "LOG_FILE_NOT_REGULAR")


def test_hard_linked_file_is_set_aside(store: EnvironmentStore, roots: Path) -> None:
    os.link(store.directory / "00000001.jdb", roots / f"{store.id}-snapshot.jdb")
    before = logs(store)["00000001.jdb"]
    job = ended(store, begun(store))
    assert job["result"]["files"] == {"ERASED": 2, "KEPT": 1, "NOT_SELECTED": 1}
    assert "KEPT" in [warning["code"] for warning in job["result"]["warnings"]]
    assert logs(store)["00000001.jdb"] == before


def test_environment_in_use_is_waited_for(store: EnvironmentStore) -> None:
    before = logs(store)
    with held_by_je(store.directory):
        job = ended(store, begun(store), "WAITING")
        assert job["waiting_on"][0]["kind"] == "ENVIRONMENT_IN_USE"
        assert logs(store) == before
    assert ended(store, job["id"])["state"] == "SUCCEEDED"


def test_directory_without_a_log_is_refused_at_once(http: httpx.Client, roots: Path) -> None:
    directory = roots / "no-environment"
    directory.mkdir(exist_ok=True)
    name = f"empty-{os.urandom(4).hex()}"
    http.post("/v1/stores", json={"id": name, "kind": "JE", "path": str(directory)})
    for query in ("", "?validate_only=true"):
        answer = http.post(f"/v1/stores/{name}/erasure-cycles{query}", json=AT_ONCE)
        problem(answer, 409, "NOT_AN_ENVIRONMENT")
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("bits", [0o000, 0o444, 0o555])
def test_directory_that_its_owner_may_not_write_to_is_left_alone(store: EnvironmentStore, bits: int) -> None:
    """Also by root: what its owner has made read-only is not to be erased."""
    before = logs(store)
    store.directory.chmod(bits)
    try:
        found = store.http.post(f"{store.url}:check").json()
        answer = store.post("erasure-cycles", AT_ONCE)
        job = ended(store, answer.json()["id"]) if answer.status_code == 202 else None
    finally:
        store.directory.chmod(0o755)
    assert found["ok"] is False
    assert {each["code"] for each in found["findings"]} & {"PERMISSION", "ENVIRONMENT_UNREADABLE"}
    if job is None:
        assert answer.status_code == 409, answer.text
    else:
        assert job["state"] == "FAILED"
        assert job["error"]["code"] in ("PERMISSION", "ENVIRONMENT_UNREADABLE")
    assert logs(store) == before


def test_file_without_permission_is_refused(store: EnvironmentStore) -> None:
    (store.directory / "00000001.jdb").chmod(0o000)
    assert store.http.post(f"{store.url}:check").json()["ok"] is False
    job = ended(store, begun(store))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "ENVIRONMENT_UNREADABLE")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"period": "PT0S"},
        {"period": 25},
        {"period": "25 days"},
        {"period": "P1D", "duration": "PT0S"},
        {"min_file_age": "P1D"},
        {"min_file_age": "PT0S", "duration": "PT0S", "kinds": []},
        {"min_file_age": "PT0S", "duration": "PT0S", "kinds": ["EVERYTHING"]},
        {"min_file_age": "PT0S", "duration": "PT0S", "throttle": {"rows_per_s": 5}},
        {"min_file_age": "PT0S", "duration": "PT0S", "surplus": 1},
        {"min_file_age": "P99999999D", "duration": "PT0S"},
    ],
)
def test_malformed_request_is_refused(store: EnvironmentStore, body: dict[str, Any]) -> None:
    answer = store.post("erasure-cycles", body)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_other_kinds_of_store_have_no_cycles(make_shop: Any, http: httpx.Client) -> None:
    shop = make_shop()
    answer = http.post(f"/v1/stores/{shop.id}/erasure-cycles", json=AT_ONCE)
    problem(answer, 409, "STORE_KIND_WRONG")
    problem(http.get(f"/v1/stores/{shop.id}/erasure-cycles"), 409, "STORE_KIND_WRONG")


def test_token_without_the_scope_begins_nothing(store: EnvironmentStore, make_token: Any) -> None:
    token = make_token("stores:read", "jobs:read")
    headers = {"Authorization": f"Bearer {token}"}
    answer = store.http.post(f"{store.url}/erasure-cycles", json=AT_ONCE, headers=headers)
    problem(answer, 403, "SCOPE_MISSING")
    assert store.http.get(f"{store.url}/erasure-cycles", headers=headers).status_code == 200


def test_unknown_cycle_is_not_found(store: EnvironmentStore) -> None:
    unknown = "cyc_" + "0" * 26
    for path in (unknown, f"{unknown}/files", "current", "current/files"):
        problem(store.http.get(f"{store.url}/erasure-cycles/{path}"), 404, "CYCLE_NOT_FOUND")
