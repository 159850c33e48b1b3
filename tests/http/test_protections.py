"""Protected sets over HTTP: made, listed, renewed, shrunk, ended, and what stops the eraser."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.environments import EnvironmentStore, make_environment_store, round_at_work
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop


@pytest.fixture
def env(http: httpx.Client, roots: Path) -> EnvironmentStore:
    return make_environment_store(http, roots)


def protect(env: EnvironmentStore, **fields: Any) -> dict[str, Any]:
    body = {"kind": "SCAN", "name": "count"} | fields
    answer = env.post("protections", body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"{env.url}/protections/{made['id']}"
    return made


def test_protection_stands_in_the_control_file_until_it_ends(env: EnvironmentStore) -> None:
    made = protect(env, files=env.names[:2], lease="PT5M")
    assert (made["state"], made["lease"], made["files"]) == ("ACTIVE", "PT5M", env.names[:2])
    assert made["ranges"] == [{"first": env.names[0], "last": env.names[1]}]
    assert env.ranges() == [(made["id"], 0, 1)]
    for _ in range(2):
        ended = env.post(f"protections/{made['id']}:end")
        assert ended.status_code == 200
        assert ended.json()["state"] == "ENDED"
    assert env.ranges() == []
    problem(env.post(f"protections/{made['id']}:renew"), 409, "PROTECTION_ENDED")


def test_range_without_an_end_covers_files_to_come(env: EnvironmentStore) -> None:
    made = protect(env, kind="FEEDER", ranges=[{"first": "00000002.jdb"}])
    assert made["files"] is None
    assert env.ranges() == [(made["id"], 2, None)]


def test_set_only_shrinks(env: EnvironmentStore) -> None:
    made = protect(env, files=env.names[:3])
    released = env.post(f"protections/{made['id']}:release-files", {"files": [env.names[1]]})
    assert released.json()["files"] == [env.names[0], env.names[2]]
    assert sorted(env.ranges()) == [(made["id"], 0, 0), (made["id"], 2, 2)]


def test_renewed_lease_runs_from_now_and_a_list_shows_it(env: EnvironmentStore) -> None:
    made = protect(env, files=env.names[:1], lease="PT30S")
    renewed = env.post(f"protections/{made['id']}:renew", {"lease": "PT1H"}).json()
    assert renewed["lease_expires_at"] > made["lease_expires_at"]
    shown = env.http.get(f"{env.url}/protections/{made['id']}")
    assert shown.json() == renewed
    tag = {"If-None-Match": shown.headers["etag"]}
    assert env.http.get(f"{env.url}/protections/{made['id']}", headers=tag).status_code == 304
    listed = env.http.get(f"{env.url}/protections?state=ACTIVE&kind=SCAN").json()
    assert listed == {"items": [renewed], "next_page_token": ""}
    assert env.http.get(f"{env.url}/protections?state=ENDED").json()["items"] == []


def test_same_key_makes_one_protection(env: EnvironmentStore) -> None:
    body = {"kind": "SCAN", "name": "count", "files": env.names[:1]}
    first = env.post("protections", body, key="k1")
    again = env.post("protections", body, key="k1")
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    problem(env.post("protections", body | {"name": "other"}, key="k1"), 422, "IDEMPOTENCY_KEY_REUSED")
    assert len(env.ranges()) == 1


def test_request_taken_up_after_its_lease_promises_nothing(
    env: EnvironmentStore, metadata: MetadataRows
) -> None:
    """A request died with its process; its client asked again by the same key after the lease, and was told
    201 by a row that kept nothing any more.
    """
    body, key = {"kind": "SCAN", "name": "count", "files": env.names[:1]}, f"key-{env.id}"
    made = env.post("protections", body, key=key).json()
    left = {"subject_id": made["id"], "until": "2026-01-01T00:00:00+00:00", "owner": "ins_dead"}
    metadata.execute(
        f"update idempotency_keys set status = 0, body = '{json.dumps(left)}' where key = '{key}'"
    )
    assert env.post(f"protections/{made['id']}:end").status_code == 200
    problem(env.post("protections", body, key=key), 409, "PROTECTION_ENDED")
    assert env.ranges() == []


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"files": []}, "/files"),
        ({"files": ["../etc/passwd"]}, "/files/0"),
        ({"files": ["7FFFFFFF.jdb"]}, "/files/0"),
        ({"files": ["00000000.jdb"], "lease": "PT29S"}, "/lease"),
        ({"files": ["00000000.jdb"], "lease": "PT25H"}, "/lease"),
        ({"files": ["00000000.jdb"], "lease": 600}, "/lease"),
        ({"files": ["00000000.jdb"], "lease": "P" + "9" * 300 + "D"}, "/lease"),
        ({"ranges": [{"first": "00000002.jdb", "last": "00000001.jdb"}]}, "/ranges/0"),
        ({"files": ["00000000.jdb"], "ranges": [{"first": "00000000.jdb"}]}, "/"),
        ({}, "/"),
    ],
)
def test_wrong_request_names_its_field(env: EnvironmentStore, fields: dict[str, Any], pointer: str) -> None:
    answer = env.post("protections", {"kind": "SCAN", "name": "count"} | fields)
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {pointer}


def test_file_that_is_not_there_is_refused(env: EnvironmentStore) -> None:
    answer = env.post("protections", {"kind": "SCAN", "name": "x", "files": ["00ffffff.jdb"]})
    assert "00ffffff.jdb" in problem(answer, 422, "LOG_FILE_MISSING")["detail"]
    assert env.http.get(f"{env.url}/protections").json()["items"] == []


def test_stores_that_have_no_files_here_say_so(
    env: EnvironmentStore, shop: Shop, http: httpx.Client, roots: Path
) -> None:
    body = {"kind": "SCAN", "name": "x", "files": ["00000000.jdb"]}
    problem(http.post(f"/v1/stores/{shop.id}/protections", json=body), 409, "STORE_KIND_WRONG")
    problem(http.post("/v1/stores/no-such/protections", json=body), 404, "STORE_NOT_FOUND")
    elsewhere = make_environment_store(http, roots, runs_on=["zone-b"])
    problem(elsewhere.post("protections", body), 409, "ENVIRONMENT_NOT_HERE")
    env.directory.rename(env.directory.with_suffix(".away"))
    problem(env.post("protections", body), 409, "ENVIRONMENT_NOT_HERE")
    env.directory.mkdir()
    problem(env.post("protections", body), 409, "NOT_AN_ENVIRONMENT")


def test_scopes_of_protections(
    env: EnvironmentStore, service: ServiceProcess, make_token: Callable[..., str]
) -> None:
    scan = {"kind": "SCAN", "name": "x", "files": env.names[:1]}
    backup = scan | {"kind": "BACKUP"}
    with service.http(make_token("stores:read")) as reader:
        problem(reader.post(f"{env.url}/protections", json=scan), 403, "SCOPE_MISSING")
        assert reader.get(f"{env.url}/protections").status_code == 200
    with service.http(make_token("erasure:write")) as eraser:
        assert eraser.post(f"{env.url}/protections", json=scan).status_code == 201
        problem(eraser.post(f"{env.url}/protections", json=backup), 403, "SCOPE_MISSING")
        made = protect(env, **backup)
        problem(eraser.post(f"{env.url}/protections/{made['id']}:end"), 403, "SCOPE_MISSING")
    with service.http(make_token("backups:write", stores=["other"])) as limited:
        problem(limited.post(f"{env.url}/protections", json=backup), 403, "STORE_FORBIDDEN")


def test_abort_is_answered_once_the_round_in_work_has_ended(env: EnvironmentStore) -> None:
    made = protect(env, files=env.names[:2])
    with round_at_work(env.directory, 1) as writer:
        stop = writer.stop_counter()
        found: list[httpx.Response] = []
        waiting = threading.Thread(
            target=lambda: found.append(env.post("erasure:abort", {"protection_id": made["id"]}))
        )
        waiting.start()
        deadline = time.monotonic() + 10
        while writer.stop_counter() == stop and time.monotonic() < deadline:
            time.sleep(0.005)
        assert writer.stop_counter() > stop
        assert waiting.is_alive()
        writer.unlock_file(1)
    waiting.join(10)
    body = found[0].json()
    assert (body["protection_id"], body["files"], body["erasure_aborted"]) == (made["id"], 2, True)
    assert body["abort_latency_ms"] > 0


def test_abort_that_cannot_be_had_promises_nothing_and_keeps_the_protection(env: EnvironmentStore) -> None:
    made = protect(env, files=env.names[:2])
    body = {"protection_id": made["id"], "timeout": "PT1S"}
    with round_at_work(env.directory, 1):
        problem(env.post("erasure:abort", body, key="k"), 503, "ERASE_ABORT_TIMEOUT")
        assert env.post("erasure:abort", body | {"files": env.names[:1]}).status_code == 200
    assert env.ranges() == [(made["id"], 0, 1)]
    replayed = env.post("erasure:abort", body, key="k")
    problem(replayed, 503, "ERASE_ABORT_TIMEOUT")
    assert replayed.headers["idempotency-replayed"] == "true"
    assert env.post("erasure:abort", body, key="other").json()["erasure_aborted"] is False


def test_abort_needs_the_set_to_be_protected(env: EnvironmentStore) -> None:
    made = protect(env, files=env.names[:2])
    body = {"protection_id": made["id"]}
    detail = problem(env.post("erasure:abort", body | {"files": env.names[1:4]}), 409, "NOT_PROTECTED")[
        "detail"
    ]
    assert env.names[2] in detail
    env.post(f"protections/{made['id']}:end")
    problem(env.post("erasure:abort", body), 409, "NOT_PROTECTED")
    problem(env.post("erasure:abort", {"protection_id": "prt_" + "0" * 26}), 404, "PROTECTION_NOT_FOUND")
