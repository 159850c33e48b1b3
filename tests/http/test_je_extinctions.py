"""Extinctions of JE environments over HTTP, from the call to the certificate of the erasure."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from lethe_client.certificates import verify_certificate

from app.cli.main import main
from lethe_samples.je_writer.environment import Environment
from spark.formats.je.extinct_scan import ExtinctScan
from tests.http.environments import EnvironmentStore, await_log, make_environment_store
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for

pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)
AT_ONCE = {"min_file_age": "PT0S", "duration": "PT0S"}
KEYS = [b"key%03d" % number for number in range(60)]
GONE = KEYS[10:40]
CONFIRMED = {"label": "users of 2024", "confirm_keys_never_reused": True, "reason": "retention"}
ATTEST = {"statement": "FILTER_INSTALLED", "reason": "release 4.2 runs on all nodes"}
CREATED_MS = 1_795_163_000_000
MakeToken = Callable[..., str]


def value(key: bytes) -> bytes:
    return b"secret-" + key * 8


def text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def written(directory: Path, *, scan: ExtinctScan | None = None) -> Path:
    """Some files with records of two databases, of which every slot still leads to its entry."""
    directory.mkdir()
    environment = Environment(directory, file_bytes_max=6_000, created_ms=CREATED_MS)
    users = environment.create("users")
    environment.create("others")
    for name in ("users", "others"):
        for key in KEYS:
            environment.put(None, name, key, value(key))
    environment.checkpoint()
    if scan is not None:
        txn = environment.begin()
        found = ExtinctScan((users.id,), scan.begin_key, scan.end_key, scan.filter, scan.label)
        environment.discard(txn, 1, found)
        environment.commit(txn)
    environment.checkpoint()
    for key in KEYS:
        environment.put(None, "others", b"later-" + key, b"x" * 100)
    environment.close()
    return directory


def registered(http: httpx.Client, roots: Path, sample: Path, mode: str = "INSTALLED") -> EnvironmentStore:
    return make_environment_store(http, roots, sample, extinction_filter=mode)


def discarded(store: EnvironmentStore) -> str:
    body = CONFIRMED | {"databases": ["users"], "start_key": text(GONE[0]), "end_key": text(KEYS[40])}
    answer = store.post("extinctions", body)
    assert answer.status_code == 202, answer.text
    ended = wait_for(store.http, answer.json()["id"], timeout_s=60)
    assert (ended["state"], ended["result"]["records"]) == ("SUCCEEDED", len(GONE))
    return str(answer.json()["subject"]["id"])


def erased(store: EnvironmentStore) -> dict[str, Any]:
    """One cycle to its end; its certificate, verified."""
    answer = store.post("erasure-cycles", AT_ONCE)
    assert answer.status_code == 202, answer.text
    job = wait_for(store.http, answer.json()["id"], timeout_s=60)
    assert job["state"] == "SUCCEEDED", job
    certificate = store.http.get(f"{store.url}/erasure-cycles/{job['subject']['id']}/certificate")
    return dict(verify_certificate(certificate.content).certificate)


def verified(store: EnvironmentStore) -> dict[str, Any]:
    answer = store.post("erasure-cycles/current:verify", {})
    job = wait_for(store.http, answer.json()["id"], timeout_s=60)
    assert job["state"] == "SUCCEEDED", job
    return dict(job["result"])


def copies(store: EnvironmentStore) -> list[int]:
    """How often each of the keys' values stands in the log."""
    log = b"".join((store.directory / name).read_bytes() for name in store.names)
    return [log.count(value(key)) for key in KEYS]


def by_reason(said: dict[str, Any]) -> int:
    found = said["totals"]["erased_and_proved_by_reason"].get("EXTINCT", [0, 0])
    return int(found[0])


def test_attested_extinction_is_erased_and_certified(
    sqlite_service: ServiceProcess, http: httpx.Client, roots: Path, tmp_path: Path
) -> None:
    store = registered(http, roots, written(tmp_path / "je"))
    name = discarded(store)
    before = erased(store)
    assert (by_reason(before), before["extinctions"]) == (0, [])
    assert before["plan"]["vetoed_count"] == len(GONE)
    assert {each["reason"] for each in before["plan"]["vetoed"]} == {"EXTINCT"}
    assert copies(store) == [2] * len(KEYS)
    attest = f"extinctions/{name}:attest"
    first = store.post(attest, ATTEST, key="once")
    assert first.status_code == 200, first.text
    assert first.json()["attested"]["reason"] == ATTEST["reason"]
    assert store.post(attest, ATTEST, key="once").json() == first.json()
    later = store.post(attest, ATTEST | {"reason": "again"})
    assert later.json()["attested"] == first.json()["attested"]
    said = erased(store)
    assert by_reason(said) == len(GONE)
    assert copies(store) == [1 if key in GONE else 2 for key in KEYS]
    [named] = said["extinctions"]
    expected = {"id": name, "databases": ["users"], "start_key": text(GONE[0]), "end_key": text(KEYS[40])}
    expected |= {"label": CONFIRMED["label"], "reason": "retention", "origin": "LOCAL", "filter": None}
    expected |= {"entries_erased_and_proved": len(GONE)}
    assert {each: named[each] for each in expected} == expected
    assert named["attested"]["reason"] == ATTEST["reason"]
    files = [each for each in said["files"] if each["extinctions"]]
    assert sum(each["extinctions"][name][0] for each in files) == len(GONE)
    assert sum(each["extinct_and_still_named_by_slots"] for each in files) == len(GONE)
    [stays] = [each for each in said["stays_readable"] if each["code"] == "EXTINCT_RECORDS"]
    assert stays["extinctions"] == [name]
    found = verified(store)
    assert found["faults"] == []
    assert {each["code"] for each in found["explained"]} == {"EXTINCT_IN_USE"}
    access = ["--url", sqlite_service.url, "--data-dir", str(sqlite_service.data_dir)]
    file = tmp_path / "certificate.json"
    assert main(["certificate", "get", store.id, said["cycle"]["id"], "-o", str(file), *access]) == 0
    check = ["certificate", "verify", str(file), "--directory", str(store.directory)]
    assert main([*check, "--fingerprint", http.get("/v1/signing-keys").json()["items"][0]["id"]]) == 0


def test_scan_of_the_log_is_shown_and_needs_no_attestation(
    http: httpx.Client, roots: Path, tmp_path: Path
) -> None:
    scan = ExtinctScan((), GONE[0], KEYS[40], None, "by the application")
    store = registered(http, roots, written(tmp_path / "je", scan=scan))
    said = erased(store)
    assert by_reason(said) == len(GONE)
    [shown] = http.get(f"{store.url}/extinctions").json()["items"]
    expected = {"origin": "LOG", "state": "DONE", "databases": ["users"], "label": scan.label}
    expected |= {"start_key": text(GONE[0]), "end_key": text(KEYS[40]), "java_filter": False}
    assert {each: shown[each] for each in expected} == expected
    assert [(each["id"], each["origin"]) for each in said["extinctions"]] == [(shown["id"], "LOG")]
    query = {"database": "users", "keys": [text(GONE[0]), text(KEYS[41])]}
    await_log(http, store.id)
    answer = http.post(f"{store.url}/extinction-status:query", json=query).json()
    assert answer["statuses"] == ["EXTINCT", "NOT_EXTINCT"]


def test_scan_with_a_java_filter_is_shown_erases_nothing_and_makes_keys_maybe(
    http: httpx.Client, roots: Path, tmp_path: Path
) -> None:
    scan = ExtinctScan((), GONE[0], KEYS[40], b"\xac\xed\x00\x05sr", "by the application")
    store = registered(http, roots, written(tmp_path / "je", scan=scan))
    assert by_reason(erased(store)) == 0
    [shown] = http.get(f"{store.url}/extinctions").json()["items"]
    assert (shown["origin"], shown["java_filter"]) == ("LOG", True)
    query = {"database": "users", "keys": [text(GONE[0]), text(KEYS[41])]}
    await_log(http, store.id)
    answer = http.post(f"{store.url}/extinction-status:query", json=query).json()
    assert answer["statuses"] == ["MAYBE_EXTINCT", "NOT_EXTINCT"]
    assert [each["code"] for each in answer["maybe_because"]] == ["JAVA_FILTER"]
    problem(store.post(f"extinctions/{shown['id']}:attest", ATTEST), 409, "FILTER_UNREADABLE")


def test_filter_that_always_says_maybe_keeps_all_and_says_so(
    http: httpx.Client, roots: Path, tmp_path: Path
) -> None:
    store = registered(http, roots, written(tmp_path / "je"), mode="ALWAYS_MAYBE")
    name = discarded(store)
    problem(store.post(f"extinctions/{name}:attest", ATTEST), 409, "FILTER_NOT_INSTALLED")
    said = erased(store)
    assert (by_reason(said), said["extinctions"]) == (0, [])
    [kept] = [each["entries"] for each in said["stays_readable"] if each["code"] == "KEPT"]
    assert kept["MAYBE_EXTINCT"][0] == len(GONE)
    assert copies(store) == [2] * len(KEYS)


def test_attestation_that_cannot_be_is_refused(
    http: httpx.Client, sqlite_service: ServiceProcess, make_token: MakeToken, roots: Path, tmp_path: Path
) -> None:
    store = registered(http, roots, written(tmp_path / "je"))
    name = discarded(store)
    attest = f"extinctions/{name}:attest"
    for body in ({}, {"statement": "FILTER_INSTALLED"}, ATTEST | {"statement": "YES"}, ATTEST | {"more": 1}):
        problem(store.post(attest, body), 422, "INVALID_REQUEST")
    problem(store.post(f"extinctions/ext_{'0' * 26}:attest", ATTEST), 404, "EXTINCTION_NOT_FOUND")
    writer = make_token("extinctions:write", "stores:read")
    headers = {"Authorization": f"Bearer {writer}"}
    answer = http.post(f"{store.url}/{attest}", json=ATTEST, headers=headers)
    problem(answer, 403, "SCOPE_MISSING")
    assert http.get(f"{store.url}/extinctions/{name}").json()["attested"] is None


def test_command_attests(
    http: httpx.Client,
    sqlite_service: ServiceProcess,
    roots: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = registered(http, roots, written(tmp_path / "je"))
    name = discarded(store)
    access = ["--url", sqlite_service.url, "--data-dir", str(sqlite_service.data_dir)]
    command = ["extinction", "attest", store.id, name, "--reason", "release 4.2", *access]
    assert main(command) == 64
    assert http.get(f"{store.url}/extinctions/{name}").json()["attested"] is None
    assert main([*command, "--filter-installed"]) == 0
    assert "attested by" in capsys.readouterr().out
    assert http.get(f"{store.url}/extinctions/{name}").json()["attested"]["reason"] == "release 4.2"
    shutil.rmtree(tmp_path / "je")
