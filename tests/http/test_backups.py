"""Backup sessions over HTTP: what a 201 promises, and how honestly a session ends."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.environments import (
    EnvironmentStore,
    engine_at_work,
    make_environment_store,
    round_at_work,
)
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop


@pytest.fixture
def env(http: httpx.Client, roots: Path) -> EnvironmentStore:
    return make_environment_store(http, roots)


def test_session_from_begin_to_end(env: EnvironmentStore) -> None:
    answer = env.post("backup-sessions", {"tool": "restic", "label": "nightly", "lease": "PT2M"})
    assert answer.status_code == 201, answer.text
    begun = answer.json()
    assert answer.headers["location"] == f"{env.url}/backup-sessions/{begun['id']}"
    assert (begun["state"], begun["mode"], begun["tool"], begun["lease"]) == (
        "ACTIVE",
        "BACKUP",
        "restic",
        "PT2M",
    )
    assert begun["erasure_aborted"] is False
    assert begun["abort_latency_ms"] >= 0
    assert begun["valid"] is None
    sizes = {path.name: path.stat() for path in env.directory.glob("*.jdb")}
    assert [file["name"] for file in begun["files"]] == env.names
    for file in begun["files"]:
        status = sizes[file["name"]]
        assert (file["size"], file["device"], file["inode"]) == (
            status.st_size,
            status.st_dev,
            status.st_ino,
        )
        assert file["path"] == str(env.directory / file["name"])
        assert (file["growing"], file["digest"], file["erasure_generation"]) == (False, None, 0)
    assert begun["file_count"] == len(sizes)
    assert begun["total_bytes"] == sum(status.st_size for status in sizes.values())
    assert env.ranges() == [(begun["protection_id"], 0, len(sizes) - 1)]
    url = f"{env.url}/backup-sessions/{begun['id']}"
    assert env.http.get(url).json() == {name: value for name, value in begun.items() if name != "files"}
    assert env.http.get(f"{env.url}/backup-sessions?state=ACTIVE").json()["items"][0]["id"] == begun["id"]
    answers = [env.http.post(f"{url}:end") for _ in range(3)]
    assert [each.status_code for each in answers] == [200] * 3
    assert [each.json() for each in answers] == [answers[0].json()] * 3
    ended = answers[0].json()
    assert (ended["valid"], ended["state"], ended["changed"]) == (True, "ENDED", [])
    assert env.ranges() == []
    problem(env.http.post(f"{url}:renew"), 409, "BACKUP_SESSION_ENDED")


def test_files_come_in_pages_in_the_order_to_copy_them(env: EnvironmentStore) -> None:
    with engine_at_work(env.directory):
        begun = env.begin()
    assert [file["growing"] for file in begun["files"]] == [False] * (len(env.names) - 1) + [True]
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        path = f"{env.url}/backup-sessions/{begun['id']}/files?page_size=2&page_token={token}"
        page = env.http.get(path).json()
        found += page["items"]
        token = page["next_page_token"]
        if not token:
            break
    assert found == begun["files"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda path: path.unlink(), "VANISHED"),
        (lambda path: os.utime(path, ns=(1, 1)), "TOUCHED"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "RESIZED"),
        (lambda path: (path.rename(path.with_suffix(".x")), path.write_bytes(b"")), "REPLACED"),
    ],
)
def test_changed_file_makes_the_session_invalid_and_is_named(
    env: EnvironmentStore, change: Callable[[Path], Any], fault: str
) -> None:
    begun = env.begin()
    change(env.directory / env.names[1])
    name = begun["files"][1]["name"]
    url = f"backup-sessions/{begun['id']}"
    ended = env.post(f"{url}:end").json()
    assert (ended["valid"], ended["state"]) == (False, "INVALID")
    assert ended["changed"] == [{"name": name, "fault": fault}]
    assert env.post(f"{url}:end").json() == ended
    assert env.ranges() == []


def test_growing_file_may_grow_and_new_files_are_no_fault(env: EnvironmentStore) -> None:
    last = env.directory / env.names[-1]
    with engine_at_work(env.directory):
        begun = env.begin()
        with last.open("ab") as log:
            log.write(b"more")
        (env.directory / "00000fff.jdb").write_bytes(b"new")
        assert env.post(f"backup-sessions/{begun['id']}:end").json()["valid"] is True


def test_growing_file_may_not_shrink(env: EnvironmentStore) -> None:
    last = env.directory / env.names[-1]
    with engine_at_work(env.directory):
        begun = env.begin()
        os.truncate(last, last.stat().st_size - 1)
        ended = env.post(f"backup-sessions/{begun['id']}:end").json()
    assert ended["changed"] == [{"name": last.name, "fault": "RESIZED"}]


def test_released_files_are_judged_when_they_are_given_back(env: EnvironmentStore) -> None:
    begun = env.begin(files=env.names[:3])
    url = f"backup-sessions/{begun['id']}"
    released = env.post(f"{url}:release-files", {"files": [env.names[0]]})
    assert released.status_code == 200
    assert env.ranges() == [(begun["protection_id"], 1, 2)]
    os.utime(env.directory / env.names[0], ns=(1, 1))  # as an eraser may now
    assert env.post(f"{url}:release-files", {"files": [env.names[0]]}).status_code == 200
    os.utime(env.directory / env.names[1], ns=(1, 1))
    env.post(f"{url}:release-files", {"files": [env.names[1]]})
    ended = env.post(f"{url}:end").json()
    assert ended["changed"] == [{"name": env.names[1], "fault": "TOUCHED"}]
    problem(env.post(f"{url}:release-files", {"files": [env.names[2]]}), 409, "BACKUP_SESSION_ENDED")


def test_files_of_others_cannot_be_released(env: EnvironmentStore) -> None:
    begun = env.begin(files=env.names[:1])
    answer = env.post(f"backup-sessions/{begun['id']}:release-files", {"files": [env.names[1]]})
    assert env.names[1] in problem(answer, 422, "NOT_PART_OF_SESSION")["detail"]


def test_lease_is_renewed_and_runs_out(env: EnvironmentStore, metadata: MetadataRows) -> None:
    begun = env.begin(lease="PT30S")
    url = f"backup-sessions/{begun['id']}"
    renewed = env.post(f"{url}:renew").json()
    assert renewed["lease_expires_at"] > begun["lease_expires_at"]
    for table, row_id in (("backup_sessions", begun["id"]), ("protections", begun["protection_id"])):
        metadata.execute(
            f"update {table} set lease_expires_at = '2026-01-01 00:00:00.000000' where id = '{row_id}'"
        )
    for verb in ("end", "end", "renew"):
        body = problem(env.post(f"{url}:{verb}"), 410, "BACKUP_SESSION_EXPIRED")
        assert body["valid"] is False
    shown = env.http.get(f"{env.url}/{url}").json()
    assert (shown["state"], shown["valid"]) == ("EXPIRED", False)
    protection = env.http.get(f"{env.url}/protections/{begun['protection_id']}").json()
    assert protection["state"] == "EXPIRED"


def test_round_in_work_is_waited_for(env: EnvironmentStore) -> None:
    found: list[httpx.Response] = []
    with round_at_work(env.directory, 1) as writer:
        stop = writer.stop_counter()
        waiting = threading.Thread(target=lambda: found.append(env.post("backup-sessions", {})))
        waiting.start()
        deadline = time.monotonic() + 10
        while writer.stop_counter() == stop and time.monotonic() < deadline:
            time.sleep(0.002)
        assert writer.read().covering(1), "protected before the round has ended"
        assert not found
        writer.unlock_file(1)
        waiting.join(10)
    begun = found[0].json()
    assert (found[0].status_code, begun["state"], begun["erasure_aborted"]) == (201, "ACTIVE", True)


def test_eraser_that_does_not_stop_in_time_promises_nothing(env: EnvironmentStore) -> None:
    with round_at_work(env.directory, 1):
        answer = env.post("backup-sessions", {"erase_abort_timeout": "PT1S"}, key="k")
        problem(answer, 503, "ERASE_ABORT_TIMEOUT")
        assert env.ranges() == []
    replayed = env.post("backup-sessions", {"erase_abort_timeout": "PT1S"}, key="k")
    assert replayed.headers["idempotency-replayed"] == "true"
    problem(replayed, 503, "ERASE_ABORT_TIMEOUT")
    [session] = env.http.get(f"{env.url}/backup-sessions").json()["items"]
    assert (session["state"], session["valid"]) == ("FAILED", False)
    body = problem(env.post(f"backup-sessions/{session['id']}:end"), 410, "BACKUP_SESSION_FAILED")
    assert body["valid"] is False
    [protection] = env.http.get(f"{env.url}/protections").json()["items"]
    assert protection["state"] == "ENDED"
    assert env.begin()["state"] == "ACTIVE"


def test_timeout_of_the_store_is_the_default(env: EnvironmentStore) -> None:
    name = "je.erase.abortTimeout"
    path = f"{env.url}/parameters/{name}"
    tag = env.http.get(path).headers["etag"]
    assert env.http.put(path, json={"value": "PT2S"}, headers={"If-Match": tag}).status_code == 200
    assert env.begin()["erase_abort_timeout"] == "PT2S"
    assert env.begin(erase_abort_timeout="PT3S")["erase_abort_timeout"] == "PT3S"


def test_same_key_begins_one_session(env: EnvironmentStore) -> None:
    first = env.post("backup-sessions", {"tool": "borg"}, key="k")
    again = env.post("backup-sessions", {"tool": "borg"}, key="k")
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    assert len(env.http.get(f"{env.url}/backup-sessions").json()["items"]) == 1


def test_same_key_in_flight_is_told_to_come_back(env: EnvironmentStore) -> None:
    found: list[httpx.Response] = []
    with round_at_work(env.directory, 0) as writer:
        stop = writer.stop_counter()
        waiting = threading.Thread(target=lambda: found.append(env.post("backup-sessions", {}, key="k")))
        waiting.start()
        deadline = time.monotonic() + 10
        while writer.stop_counter() == stop and time.monotonic() < deadline:
            time.sleep(0.002)
        problem(env.post("backup-sessions", {}, key="k"), 409, "IDEMPOTENCY_KEY_IN_FLIGHT")
        writer.unlock_file(0)
        waiting.join(10)
    assert found[0].status_code == 201


def test_protection_of_a_session_goes_by_its_session(env: EnvironmentStore) -> None:
    begun = env.begin()
    for verb in ("renew", "end"):
        answer = env.post(f"protections/{begun['protection_id']}:{verb}")
        assert problem(answer, 409, "PROTECTION_OF_SESSION")["backup_session_id"] == begun["id"]


def test_store_with_a_session_keeps_its_path(env: EnvironmentStore) -> None:
    begun = env.begin()
    tag = {"If-Match": env.http.get(env.url).headers["etag"]}
    problem(env.http.patch(env.url, json={"path": "/srv/other"}, headers=tag), 409, "STORE_IN_USE")
    problem(env.http.delete(env.url, headers=tag), 409, "STORE_IN_USE")
    env.post(f"backup-sessions/{begun['id']}:end")
    assert env.http.delete(env.url, headers=tag).status_code == 204


def test_suspended_store_is_backed_up_all_the_same(env: EnvironmentStore) -> None:
    assert env.http.post(f"{env.url}:suspend", json={"reason": "upgrade"}).status_code == 200
    assert env.begin()["state"] == "ACTIVE"


def test_directory_that_went_away_is_no_verdict(env: EnvironmentStore) -> None:
    begun = env.begin()
    away = env.directory.with_suffix(".away")
    env.directory.rename(away)
    problem(env.post(f"backup-sessions/{begun['id']}:end"), 409, "ENVIRONMENT_NOT_HERE")
    away.rename(env.directory)
    assert env.post(f"backup-sessions/{begun['id']}:end").json()["valid"] is True


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"lease": "PT29S"}, "/lease"),
        ({"erase_abort_timeout": "PT0.5S"}, "/erase_abort_timeout"),
        ({"mode": "SCAN"}, "/mode"),
        ({"files": ["x"]}, "/files/0"),
        ({"tool": "a\x00b"}, "/tool"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_wrong_request_names_its_field(env: EnvironmentStore, body: dict[str, Any], pointer: str) -> None:
    assert pointers(problem(env.post("backup-sessions", body), 422, "INVALID_REQUEST")) == {pointer}


def test_stores_without_files_here_say_so(env: EnvironmentStore, shop: Shop, http: httpx.Client) -> None:
    problem(http.post(f"/v1/stores/{shop.id}/backup-sessions", json={}), 409, "STORE_KIND_WRONG")
    problem(env.post("backup-sessions", {"files": ["00ffffff.jdb"]}), 422, "LOG_FILE_MISSING")
    missing = f"backup-sessions/bks_{'0' * 26}"
    problem(env.post(f"{missing}:end"), 404, "BACKUP_SESSION_NOT_FOUND")
    problem(env.http.get(f"{env.url}/{missing}"), 404, "BACKUP_SESSION_NOT_FOUND")


def test_backup_role_can_do_all_of_it_and_nothing_else(
    env: EnvironmentStore, service: ServiceProcess
) -> None:
    made = env.http.post("/v1/tokens", json={"name": "backup", "role": "backup", "stores": [env.id]})
    with service.http(made.json()["token"]) as backup:
        begun = backup.post(f"{env.url}/backup-sessions", json={}).json()
        url = f"{env.url}/backup-sessions/{begun['id']}"
        assert backup.get(f"{url}/files").status_code == 200
        assert backup.post(f"{url}:renew").status_code == 200
        assert backup.post(f"{url}:end").json()["valid"] is True
        problem(backup.delete(env.url, headers={"If-Match": "*"}), 403, "SCOPE_MISSING")


def test_waiting_sessions_hold_neither_thread_nor_connection(
    env: EnvironmentStore, service: ServiceProcess
) -> None:
    found: list[httpx.Response] = []
    with round_at_work(env.directory, 0) as writer:
        before = service.thread_count()
        waiting = [
            threading.Thread(target=lambda: found.append(env.post("backup-sessions", {}))) for _ in range(30)
        ]
        for thread in waiting:
            thread.start()
        deadline = time.monotonic() + 20
        while len(env.ranges()) < 30 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(env.ranges()) == 30
        assert env.http.get(env.url).elapsed.total_seconds() < 2
        assert service.thread_count() - before < 30
        writer.unlock_file(0)
        for thread in waiting:
            thread.join(30)
    assert [each.status_code for each in found] == [201] * 30


def test_key_that_another_instance_works_on_is_in_flight_until_its_time_is_over(
    env: EnvironmentStore, metadata: MetadataRows
) -> None:
    key = f"key-{env.id}"
    begun = env.post("backup-sessions", {}, key=key).json()
    left = {"subject_id": begun["id"], "until": "2099-01-01T00:00:00+00:00", "owner": "ins_other"}
    unanswered = f"update idempotency_keys set status = 0, body = '%s' where key = '{key}'"
    metadata.execute(unanswered % json.dumps(left))
    problem(env.post("backup-sessions", {}, key=key), 409, "IDEMPOTENCY_KEY_IN_FLIGHT")
    problem(env.post("backup-sessions", {"tool": "x"}, key=key), 422, "IDEMPOTENCY_KEY_REUSED")
    metadata.execute(unanswered % json.dumps(left | {"until": "2026-01-01T00:00:00+00:00"}))
    metadata.execute(
        "update backup_sessions set state = 'FAILED', "
        """failure = '{"code": "ERASE_ABORT_TIMEOUT", "detail": "too late"}' """
        f"where id = '{begun['id']}'"
    )
    body = problem(env.post("backup-sessions", {}, key=key), 503, "ERASE_ABORT_TIMEOUT")
    assert body["detail"] == "too late"
    again = env.post("backup-sessions", {}, key=key)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (503, "true")
