"""Stores of kind REPLICA: registered, changed, looked at; put back from a backup, and recovered."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.conftest import SharedServer
from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.writers import WrittenStore, check_chain, make_written

IDLE_S = 1.0
"""A file that nobody writes to is closed by then, and has no log beside it."""


def register(http: httpx.Client, **fields: Any) -> httpx.Response:
    body = {"id": "bad-replica", "kind": "REPLICA", "rid": 1, "url": "sqlite:////tmp/r.db"} | fields
    return http.post("/v1/stores", json={name: value for name, value in body.items() if value != ...})


@pytest.mark.parametrize(
    "fields",
    [
        {"rid": ...},
        {"rid": None},
        {"rid": 0},
        {"rid": 65_535},
        {"rid": "1"},
        {"rid": 1.5},
        {"rid": True},
        {"generation": "6AFFFDFC000000010000"},
        {"generation": "6afffdfc00000001000"},
        {"url": ...},
        {"url": "mysql+pymysql://u@db.example/r"},
        {"path": "/tmp/je"},
        {"mode": "CLOSED"},
        {"kind": "SYMMETRICDS"},
        {"kind": "JE", "url": ..., "path": "/tmp/je"},
    ],
)
def test_what_makes_no_replica_is_refused(http: httpx.Client, metadata: MetadataRows, fields: Any) -> None:
    with metadata.unchanged():
        problem(register(http, **fields), 422, "INVALID_REQUEST")


def test_a_place_outside_of_what_is_allowed_is_refused(http: httpx.Client, metadata: MetadataRows) -> None:
    with metadata.unchanged():
        problem(register(http, url="sqlite:////etc/r.db"), 422, "PATH_NOT_ALLOWED")
        elsewhere = "postgresql+psycopg://u@db.example/r"
        problem(register(http, url=elsewhere), 422, "HOST_NOT_ALLOWED")


def test_a_replica_is_shown_with_its_id_and_keeps_it(http: httpx.Client, roots: Path) -> None:
    generation = "6afffdfc000000010000"
    store = make_written(http, folder=roots, rid=7, generation=generation)
    shown = http.get(f"/v1/stores/{store.id}")
    body = shown.json()
    assert (body["rid"], body["generation"], body["table_prefix"]) == (7, generation, "replica_")
    assert body["path"] is None
    match = {"If-Match": shown.headers["etag"]}
    for change in ({"rid": 8}, {"generation": None}, {"path": "/tmp/x"}, {"backups": "VIA_LETHE"}):
        problem(http.patch(f"/v1/stores/{store.id}", json=change, headers=match), 422, "INVALID_REQUEST")
    away = {"url": "mysql+pymysql://u@127.0.0.1/r"}
    problem(http.patch(f"/v1/stores/{store.id}", json=away, headers=match), 422, "TARGET_URL_INVALID")
    labelled = http.patch(f"/v1/stores/{store.id}", json={"labels": {"a": "b"}}, headers=match)
    assert (labelled.status_code, labelled.json()["rid"]) == (200, 7)


def test_the_file_is_made_for_its_owner_alone(http: httpx.Client, roots: Path) -> None:
    store = make_written(http, folder=roots)
    assert store.path is not None
    assert store.put(b"k", b"v").status_code == 200
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_a_target_of_another_replica_is_refused(http: httpx.Client, roots: Path) -> None:
    first = make_written(http, folder=roots, rid=1)
    first.put(b"k", b"v")
    second = make_written(http, url=f"sqlite:///{first.path}", rid=2)
    problem(second.put(b"k", b"w"), 409, "RID_DIFFERS")
    assert [item["payload"] for item in first.records()] == ["dg=="]


def test_tables_that_are_not_ours_are_refused(http: httpx.Client, roots: Path) -> None:
    path = roots / f"foreign-{uuid.uuid4().hex}.db"
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("create table replica_replica (something text)")
    store = make_written(http, url=f"sqlite:///{path}")
    problem(store.put(b"k", b"v"), 409, "LAYOUT_UNKNOWN")
    check = http.post(f"/v1/stores/{store.id}:check").json()
    assert (check["ok"], [item["code"] for item in check["findings"]]) == (False, ["LAYOUT_UNKNOWN"])


def findings(http: httpx.Client, store: WrittenStore) -> dict[str, str]:
    answer = http.post(f"/v1/stores/{store.id}:check")
    assert answer.status_code == 200, answer.text
    return {item["code"]: item["severity"] for item in answer.json()["findings"]}


def test_a_check_makes_nothing_and_then_tells_what_is_there(http: httpx.Client, roots: Path) -> None:
    store = make_written(http, folder=roots)
    assert store.path is not None
    assert findings(http, store) == {"REPLICA_MISSING": "INFO"}
    assert not store.path.exists()
    store.put(b"k", b"v")
    check = http.post(f"/v1/stores/{store.id}:check").json()
    assert (check["ok"], check["reachable"], check["findings"]) == (True, True, [])
    assert check["layout"] == "replica layout 2"
    sizes = {item["table"]: item["rows_estimate"] for item in check["sizes"]}
    assert (sizes["replica_changelog"], sizes["replica_entries"]) == (1, 1)
    assert "WRITE_CHANGES" in check["can"]
    shown = http.get(f"/v1/stores/{store.id}").json()
    assert shown["target_identity"] == check["identity"]


@pytest.mark.postgresql
def test_a_check_on_postgresql_tells_missing_rights(
    http: httpx.Client, postgresql_server: SharedServer, postgresql_url: str
) -> None:
    store = make_written(http, url=postgresql_url)
    store.put(b"k", b"v")
    assert findings(http, store) == {}
    role = "lethe_reader_of_replicas"
    url = make_url(postgresql_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"drop role if exists {role}")
        db.execute(f"create role {role} login")
        db.execute(f"grant select on all tables in schema public to {role}")
        reader = make_url(postgresql_url).set(username=role, password=None)
        limited = make_written(http, url=reader.render_as_string(), rid=1)
        found = findings(http, limited)
        assert found.get("TARGET_READ_ONLY") == "ERROR"
        assert found.get("SAME_REPLICA") == "ERROR"  # another URL, the same database
        assert findings(http, store).get("SAME_REPLICA") == "ERROR"
        problem(limited.put(b"k", b"w"), 409, "TARGET_READ_ONLY")
        db.execute(f"drop owned by {role}")
        db.execute(f"drop role {role}")


def test_a_check_finds_the_same_replica_under_two_names(http: httpx.Client, roots: Path) -> None:
    first = make_written(http, folder=roots)
    first.put(b"k", b"v")
    second = make_written(http, url=f"sqlite:///{first.path}")
    third = make_written(http, url=f"sqlite:///{first.path}", table_prefix="other_")
    for store, others in ((first, (second, third)), (second, (first, third))):
        check = http.post(f"/v1/stores/{store.id}:check").json()
        assert not check["ok"]
        assert {conflict.split()[1] for conflict in check["conflicts"]} == {other.id for other in others}


def test_a_limited_token_reads_no_name_of_another_store_in_a_check(
    service: ServiceProcess, http: httpx.Client, roots: Path, make_token: Callable[..., str]
) -> None:
    first = make_written(http, folder=roots)
    first.put(b"k", b"v")
    second = make_written(http, url=f"sqlite:///{first.path}")
    with service.http(make_token("stores:read", "jobs:read", stores=[second.id])) as limited:
        check = limited.post(f"/v1/stores/{second.id}:check").json()
        kept = limited.get("/v1/overview", params={"store": second.id})
    expected = "store (not shown to this token) is the same replica under another name"
    assert check["conflicts"] == [expected]
    assert expected in [each["detail"] for each in check["findings"]]
    assert expected in kept.text
    assert f"{first.id} is" not in kept.text + str(check)
    shown = http.get("/v1/overview", params={"store": second.id}).text
    assert f"store {first.id} is the same replica" in shown


def wait_closed(path: Path) -> None:
    """Wait until the service has closed the file: its log is gone then."""
    log = path.with_name(path.name + "-wal")
    deadline = time.monotonic() + 10
    while log.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not log.exists()


@pytest.mark.parametrize("put_back", [shutil.copyfile, shutil.move], ids=["overwritten", "replaced"])
def test_a_file_that_was_put_back_takes_no_more_writes(
    service: ServiceProcess, http: httpx.Client, roots: Path, put_back: Callable[[Path, Path], object]
) -> None:
    """The first silent loss of the facts (restore, then a local write): here it ends as a refusal."""
    store = make_written(http, folder=roots)
    assert store.path is not None
    kept = [store.put(b"old", b"%d" % number).json()["last_csn"] for number in range(3)]
    wait_closed(store.path)
    copy = store.path.with_suffix(".copy")
    shutil.copyfile(store.path, copy)
    lost = [store.put(b"new", b"%d" % number).json()["last_csn"] for number in range(3)]
    wait_closed(store.path)
    put_back(copy, store.path)

    for _ in range(2):
        found = problem(store.put(b"after", b"x"), 409, "REPLICA_RESTORED")
        assert found["restored_upto"] == lost[-1]
    problem(store.put_bulk({b"after": b"x"}), 409, "REPLICA_RESTORED")
    assert [item["csn"] for item in store.records()] == kept
    assert store.entries() == {b"old": b"2"}  # it is read-only, and readable
    assert findings(http, store) == {"REPLICA_RESTORED": "ERROR"}

    recovered = http.post(f"/v1/stores/{store.id}:recover").json()
    assert recovered["given_up"] == {"rid": 1, "after": kept[-1], "upto": lost[-1]}
    after = store.put(b"after", b"x").json()["last_csn"]
    assert after > lost[-1]  # a CSN that others know is given to no other change
    check_chain(store.records())
    assert findings(http, store) == {}
    assert http.post(f"/v1/stores/{store.id}:recover").json()["given_up"] is None


def test_a_file_that_vanished_is_a_loss_too(http: httpx.Client, roots: Path) -> None:
    store = make_written(http, folder=roots)
    assert store.path is not None
    lost = store.put(b"k", b"v").json()["last_csn"]
    wait_closed(store.path)
    store.path.unlink()
    found = problem(store.put(b"k", b"w"), 409, "REPLICA_RESTORED")
    assert found["restored_upto"] == lost
    assert store.records() == []
    assert http.post(f"/v1/stores/{store.id}:recover").json()["given_up"]["after"] is None
    assert store.put(b"k", b"w").json()["last_csn"] > lost


@pytest.mark.postgresql
def test_a_database_that_was_put_back_takes_no_more_writes(
    postgresql_service: ServiceProcess,
    second_service: ServiceProcess,
    postgresql_server: SharedServer,
    postgresql_url: str,
) -> None:
    """The instance that has not seen the last changes refuses as well: what others saw is in the metadata."""
    name = make_url(postgresql_url).database
    with postgresql_service.http() as http, second_service.http(postgresql_service.token) as second:
        store = make_written(http, url=postgresql_url)
        other = WrittenStore(second, store.id)
        store.put(b"old", b"1")
        kept = other.put(b"old", b"2").json()["last_csn"]
        _end_sessions(postgresql_server, str(name))
        postgresql_server.execute(f"create database {name}_copy template {name}")
        lost = store.put(b"new", b"1").json()["last_csn"]
        _end_sessions(postgresql_server, str(name))
        postgresql_server.execute(f"drop database {name} with (force)")
        postgresql_server.execute(f"alter database {name}_copy rename to {name}")
        found = problem(_until_answered(lambda: other.put(b"after", b"x")), 409, "REPLICA_RESTORED")
        assert found["restored_upto"] == lost > kept
        problem(_until_answered(lambda: store.put(b"after", b"x")), 409, "REPLICA_RESTORED")
        assert store.entries() == {b"old": b"2"}


def _end_sessions(server: SharedServer, database: str) -> None:
    server.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'")


def _until_answered(send: Callable[[], httpx.Response]) -> httpx.Response:
    """A connection that the server has ended may cost one 503 with Retry-After."""
    answer = send()
    if answer.status_code == 503:
        problem(answer, 503, "TARGET_UNREACHABLE")
        answer = send()
    return answer


def test_a_removed_store_is_forgotten_with_what_was_told(
    service: ServiceProcess, http: httpx.Client, metadata: MetadataRows, roots: Path
) -> None:
    store = make_written(http, folder=roots)
    store.put(b"k", b"v")
    shown = http.get(f"/v1/stores/{store.id}")
    removed = http.delete(f"/v1/stores/{store.id}", headers={"If-Match": shown.headers["etag"]})
    assert removed.status_code == 204
    assert metadata.query(f"select * from replicas where store = '{store.id}'") == []
    problem(store.put(b"k", b"v"), 404, "STORE_NOT_FOUND")
