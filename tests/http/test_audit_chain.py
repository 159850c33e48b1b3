"""`lethe audit`: the rows of a running service, listed, exported, and checked with it and without it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess, run_to_end

TOKENS = 12


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service of this file, whose metadata is edited behind its back."""
    process = ServiceProcess(tmp_path_factory.mktemp("audited"), settings={"LETHE_SPARK__ENABLED": "false"})
    process.start()
    with process.http() as http:
        for number in range(TOKENS):
            body = {"name": f"reader {number % 2}", "role": "viewer"}
            assert http.post("/v1/tokens", json=body).status_code == 201
    yield process
    process.stop()


def _lethe(service: ServiceProcess, *words: str | Path) -> subprocess.CompletedProcess[str]:
    given = [*map(str, words), "--url", service.url, "--data-dir", str(service.data_dir)]
    return run_to_end(["audit", *given, "--json"])


def _document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return dict(json.loads(done.stdout))


def _codes(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 1, done.stderr
    return [each["code"] for each in _document(done)["problems"]]


def test_list_is_narrowed_by_each_filter(own_service: ServiceProcess) -> None:
    with own_service.http() as http:
        rows = http.get("/v1/audit-events").json()["items"]
        one = next(row for row in rows if row["action"] == "token.create")
        for query in (
            {"actor": one["actor"], "action": "token.create"},
            {"token_id": one["token_id"]},
            {"subject_id": one["subject_id"]},
            {"created_before": "2999-01-01T00:00:00Z", "created_after": "2020-01-01T00:00:00Z"},
        ):
            found = http.get("/v1/audit-events", params=query).json()["items"]
            assert one in found, query
        for query in (
            {"actor": "nobody"},
            {"token_id": "tok_other"},
            {"store": "none"},
            {"created_before": "2020-01-01T00:00:00Z"},
        ):
            assert http.get("/v1/audit-events", params=query).json()["items"] == [], query
    listed = _document(_lethe(own_service, "list", "--action", "token.create", "--limit", "3"))
    assert [row["action"] for row in listed["items"]] == ["token.create"] * 3


def test_the_chain_is_of_all_stores(own_service: ServiceProcess) -> None:
    with own_service.http() as http:
        body = {"name": "limited", "role": "admin", "stores": ["shop"]}
        token = http.post("/v1/tokens", json=body).json()["token"]
    with own_service.http(token) as limited:
        for path in ("", "/rows", "/verification"):
            problem(limited.get(f"/v1/audit-chain{path}"), 403, "TOKEN_LIMITED_TO_STORES")


def test_half_a_link_is_refused(own_service: ServiceProcess) -> None:
    with own_service.http() as http:
        problem(http.get("/v1/audit-chain/verification", params={"after_seq": 3}), 422, "INVALID_REQUEST")


def test_export_is_checked_without_a_service(own_service: ServiceProcess, tmp_path: Path) -> None:
    file = tmp_path / "audit.ndjson"
    done = _lethe(own_service, "export", file)
    assert done.returncode == 0, done.stderr
    assert _document(done)["rows"] >= TOKENS
    lines = file.read_bytes().splitlines(keepends=True)
    key_id = json.loads(lines[-1])["signature"]["key_id"]
    alone = ["audit", "verify", "--file", str(file), "--json"]
    assert _document(run_to_end([*alone, "--key", key_id]))["ok"]
    assert _codes(run_to_end([*alone, "--key", "ed25519:" + "0" * 64])) == ["KEY_NOT_TRUSTED"]
    assert _lethe(own_service, "export", file).returncode == 1  # none is written over

    forged = {
        "ROW_CHANGED": [*lines[:3], lines[3].replace(b"token.create", b"token.revoke"), *lines[4:]],
        "ROWS_REMOVED": [*lines[:3], *lines[4:]],
        "ROW_INSERTED": [*lines[:4], lines[3], *lines[4:]],
        "FILE_CUT": lines[:-1],
        "SIGNATURE_INVALID": [*lines[:-1], lines[-1].replace(b'"instance": "', b'"instance": "x')],
    }
    for code, found in forged.items():
        file.write_bytes(b"".join(found))
        assert code in _codes(run_to_end(alone)), code
    for content in (b"", b"{}\n", b"no json\n", b"".join([*lines, lines[1]])):
        file.write_bytes(content)
        done = run_to_end(alone)
        assert (done.returncode, _document(done)["code"]) == (1, "FILE_INVALID")


def test_edit_behind_the_back_of_the_service_is_found(own_service: ServiceProcess, tmp_path: Path) -> None:
    file = tmp_path / "before.ndjson"
    assert _lethe(own_service, "export", file).returncode == 0
    assert _document(_lethe(own_service, "verify", "--since", file))["ok"]

    with closing(sqlite3.connect(own_service.data_dir / "lethe.db", timeout=30)) as database:
        [actor] = database.execute("select actor from audit_events where seq = 5").fetchone()
        with database:
            database.execute("update audit_events set actor = 'forged' where seq = 5")
        assert _codes(_lethe(own_service, "verify")) == ["ROW_CHANGED"]
        with database:
            database.execute("update audit_events set actor = ? where seq = 5", (actor,))
    assert _document(_lethe(own_service, "verify"))["ok"]


def test_metadata_that_was_put_back_is_told(tmp_path: Path) -> None:
    settings = {"LETHE_SPARK__ENABLED": "false"}
    service = ServiceProcess(tmp_path / "service", settings=settings)
    service.start()
    backup, export = tmp_path / "backup", tmp_path / "before.ndjson"
    try:
        with service.http() as http:
            http.post("/v1/tokens", json={"name": "kept", "role": "viewer"})
            done = run_to_end(
                ["metadata", "backup", str(backup), "--data-dir", str(service.data_dir), "--json"]
            )
            assert done.returncode == 0, done.stderr
            for _ in range(3):
                http.post("/v1/tokens", json={"name": "lost", "role": "viewer"})
        assert _lethe(service, "export", export).returncode == 0
    finally:
        service.stop()
    again = ServiceProcess(tmp_path / "again", settings=settings)
    done = run_to_end(["metadata", "restore", str(backup), "--data-dir", str(again.data_dir), "--json"])
    assert done.returncode == 0, done.stderr
    again.start()
    try:
        with again.http() as http:
            [row] = http.get("/v1/audit-events", params={"action": "metadata.restore"}).json()["items"]
            assert row["detail"]["backup_made_at"]
        assert "EXPORT_DIFFERS" in _codes(_lethe(again, "verify", "--since", export))
        assert _document(_lethe(again, "verify"))["ok"]  # by itself it is whole
    finally:
        again.stop()
