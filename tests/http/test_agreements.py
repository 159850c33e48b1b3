"""Agreements over HTTP: an admin's word on where changes go; never a secret, never another host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.problem import pointers, problem
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, wait_for
from tests.http.supplying import SECRETS, agree, make_pair, registered, write

MakeToken = Callable[..., str]
ZEROS = "0" * 26


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata: the rows are the same on both."""
    return sqlite_service


@pytest.fixture
def replica(http: httpx.Client, roots: Path) -> ConsumerStore:
    return make_replica(http, rid=1, folder=roots)


@pytest.fixture
def token(roots: Path) -> str:
    path = roots / SECRETS / "some.token"
    path.write_text("lethe_secret")
    path.chmod(0o600)
    return f"file:{path}"


def _path(replica: ConsumerStore, agreement: dict[str, Any]) -> str:
    return f"/v1/stores/{replica.id}/agreements/{agreement['id']}"


def test_an_agreement_is_shown_without_its_token(
    http: httpx.Client, replica: ConsumerStore, token: str
) -> None:
    answer = agree(http, replica.id, "there", url="http://127.0.0.1:1/", token=token, interval="PT1H")
    assert answer.status_code == 201
    made = answer.json()
    assert made["consumer"] == {
        "url": "http://127.0.0.1:1",
        "store": "there",
        "ca_file": None,
        "rid": None,
    }
    assert (made["state"], made["strategy"], made["interval"]) == ("REGISTERED", "WINDOW", "PT1H")
    assert (made["batch_rows"], made["batch_bytes"], made["in_flight"]) == (10_000, 4_194_304, 4)
    assert answer.headers["location"] == _path(replica, made)
    one, listed = http.get(_path(replica, made)), http.get(f"/v1/stores/{replica.id}/agreements")
    assert [each["id"] for each in listed.json()["items"]] == [made["id"]]
    for shown in (answer, one, listed):
        assert "some.token" not in shown.text
        assert "secret" not in shown.text


def test_the_target_knows_an_agreement_from_its_answer_on(
    http: httpx.Client, replica: ConsumerStore, token: str
) -> None:
    import sqlite3
    from contextlib import closing

    made = agree(http, replica.id, "there", url="http://127.0.0.1:1", token=token).json()
    assert replica.path is not None
    with closing(sqlite3.connect(replica.path)) as connection:
        rows = connection.execute("select id, removed_at_s from replica_agreements").fetchall()
        assert rows == [(made["id"], None)]
        etag = http.get(_path(replica, made)).headers["etag"]
        assert http.delete(_path(replica, made), headers={"If-Match": etag}).status_code == 204
        [(removed,)] = connection.execute("select removed_at_s from replica_agreements").fetchall()
        assert removed is not None, "its floor stays for a while"
    problem(http.get(_path(replica, made)), 404, "AGREEMENT_NOT_FOUND")
    assert http.get(f"/v1/stores/{replica.id}/agreements").json()["items"] == []


def test_an_agreement_of_a_target_that_is_away_is_made_and_registered_later(
    http: httpx.Client, roots: Path, token: str
) -> None:
    replica = make_replica(http, rid=1, url=f"sqlite:///{roots}/not-yet/replica.db")
    made = agree(http, replica.id, "there", url="http://127.0.0.1:1", token=token).json()
    assert made["state"] == "REGISTERING"
    status = http.get(_path(replica, made)).json()["status"]
    assert (status["lag_changes"], status["target_code"]) == (None, "TARGET_DATABASE_MISSING")
    (roots / "not-yet").mkdir()
    for _ in range(200):
        if http.get(_path(replica, made)).json()["state"] == "REGISTERED":
            return
        import time

        time.sleep(0.05)
    pytest.fail("the service has not registered it")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1",
        "http://",
        "http://ann:secret@127.0.0.1:1",
        "http://ann@127.0.0.1:1",
        "http://127.0.0.1:1/?a=b",
        "http://127.0.0.1:1/#here",
        "http://127.0.0.1:1/../v1",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://127.0.0.1 :1",
        "file:///etc/passwd",
        "//127.0.0.1",
    ],
)
def test_an_address_that_cannot_be_called_as_it_stands_is_refused(
    http: httpx.Client, replica: ConsumerStore, token: str, metadata: MetadataRows, url: str
) -> None:
    token = registered(http, token, store=replica.id)
    with metadata.unchanged():
        found = problem(agree(http, replica.id, "there", url=url, token=token), 422, "INVALID_REQUEST")
    assert pointers(found) == {"/consumer/url"}
    assert "secret" not in str(found)


def test_only_allowed_hosts_and_roots_are_named(
    http: httpx.Client, replica: ConsumerStore, token: str, metadata: MetadataRows
) -> None:
    narrow = registered(http, token, store=replica.id, hosts=["127.0.0.1:2"])
    others = registered(http, token, store=f"{replica.id}-other")
    token = registered(http, token, store=replica.id)
    with metadata.unchanged():
        problem(
            agree(http, replica.id, "there", url="http://example.org", token=token), 422, "HOST_NOT_ALLOWED"
        )
        for wrong in (narrow, others, "secret:nobody-registered-it"):
            answer = agree(http, replica.id, "there", url="http://127.0.0.1:1", token=wrong)
            problem(answer, 422, "SECRET_NOT_ALLOWED")
        body = {"url": "http://127.0.0.1:1", "store": "there", "token": "file:/etc/hostname"}
        answer = http.post(f"/v1/stores/{replica.id}/agreements", json={"consumer": body})
        found = problem(answer, 422, "INVALID_REQUEST")
        assert pointers(found) == {"/consumer/token"}
        assert "lethe secret add" in str(found)
    made = agree(http, replica.id, "there", url="http://127.0.0.1:1", token=token).json()
    etag = {"If-Match": http.get(_path(replica, made)).headers["etag"]}
    with metadata.unchanged():
        changed = {"consumer": {"url": "http://example.org"}}
        problem(http.patch(_path(replica, made), json=changed, headers=etag), 422, "HOST_NOT_ALLOWED")


def test_one_agreement_for_each_consumer(http: httpx.Client, replica: ConsumerStore, token: str) -> None:
    made = agree(http, replica.id, "there", url="http://127.0.0.1:1", token=token).json()
    again = agree(http, replica.id, "there", url="http://127.0.0.1:1/", token=token)
    assert problem(again, 409, "AGREEMENT_EXISTS")["agreement_id"] == made["id"]
    assert agree(http, replica.id, "elsewhere", url="http://127.0.0.1:1", token=token).status_code == 201


def test_only_an_admin_makes_changes_and_removes_agreements(
    http: httpx.Client, service: ServiceProcess, replica: ConsumerStore, token: str, make_token: MakeToken
) -> None:
    token = registered(http, token, store=replica.id)
    made = agree(http, replica.id, "there", url="http://127.0.0.1:1", token=token).json()
    with service.http(make_token("replication:write", "stores:read")) as operator:
        asked = agree(operator, replica.id, "other", url="http://127.0.0.1:1", token=token)
        problem(asked, 403, "SCOPE_MISSING")
        path = _path(replica, made)
        problem(
            operator.patch(path, json={"interval": None}, headers={"If-Match": "*"}), 403, "SCOPE_MISSING"
        )
        problem(operator.delete(path, headers={"If-Match": "*"}), 403, "SCOPE_MISSING")
        assert operator.get(path).status_code == 200


def test_a_change_wants_the_version_that_was_read(
    http: httpx.Client, replica: ConsumerStore, token: str
) -> None:
    made = agree(http, replica.id, "there", url="http://127.0.0.1:1", token=token).json()
    path = _path(replica, made)
    problem(http.patch(path, json={"max_changes": 5}), 428, "PRECONDITION_MISSING")
    problem(http.delete(path), 428, "PRECONDITION_MISSING")
    first = http.get(path).headers["etag"]
    changed = http.patch(path, json={"max_changes": 5, "interval": "PT10S"}, headers={"If-Match": first})
    assert (changed.json()["max_changes"], changed.json()["interval"]) == (5, "PT10S")
    problem(http.patch(path, json={"max_changes": 6}, headers={"If-Match": first}), 412, "ETAG_MISMATCH")
    problem(http.delete(path, headers={"If-Match": first}), 412, "ETAG_MISMATCH")
    cleared = http.patch(path, json={"interval": None}, headers={"If-Match": changed.headers["etag"]})
    assert cleared.json()["interval"] is None
    wrong = http.patch(path, json={"batch_rows": None}, headers={"If-Match": "*"})
    problem(wrong, 422, "INVALID_REQUEST")


def test_the_same_key_makes_one_agreement(http: httpx.Client, replica: ConsumerStore, token: str) -> None:
    named = registered(http, token, store=replica.id)
    body = {"consumer": {"url": "http://127.0.0.1:1", "store": "there", "token": named}}
    path = f"/v1/stores/{replica.id}/agreements"
    first = http.post(path, json=body, headers={"Idempotency-Key": "one"})
    second = http.post(path, json=body, headers={"Idempotency-Key": "one"})
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    other = http.post(path, json=body | {"strategy": "CLASSIC"}, headers={"Idempotency-Key": "one"})
    problem(other, 422, "IDEMPOTENCY_KEY_REUSED")


def test_stores_of_other_kinds_have_none(http: httpx.Client, shop: Shop, token: str) -> None:
    problem(agree(http, shop.id, "there", url="http://127.0.0.1:1", token=token), 409, "STORE_KIND_WRONG")
    problem(http.get(f"/v1/stores/{shop.id}/agreements"), 409, "STORE_KIND_WRONG")
    problem(http.get(f"/v1/stores/{shop.id}/replication-sessions"), 409, "STORE_KIND_WRONG")
    unknown = http.get(f"/v1/stores/none/agreements/agr_{ZEROS}")
    problem(unknown, 404, "STORE_NOT_FOUND")


def test_a_session_names_an_agreement_and_never_an_address(
    http: httpx.Client, replica: ConsumerStore, metadata: MetadataRows
) -> None:
    path = f"/v1/stores/{replica.id}/replication-sessions"
    with metadata.unchanged():
        body = {"agreement_id": f"agr_{ZEROS}", "url": "http://example.org"}
        assert pointers(problem(http.post(path, json=body), 422, "INVALID_REQUEST")) == {"/url"}
        problem(http.post(path, json={"agreement_id": f"agr_{ZEROS}"}), 404, "AGREEMENT_NOT_FOUND")
        wrong = {"agreement_id": f"agr_{ZEROS}", "discard_consumer_changes": True}
        problem(http.post(path, json=wrong), 422, "INVALID_REQUEST")


def test_giving_up_the_consumers_changes_is_an_admins_word(
    http: httpx.Client, service: ServiceProcess, replica: ConsumerStore, make_token: MakeToken
) -> None:
    body = {"agreement_id": f"agr_{ZEROS}", "mode": "TOTAL", "discard_consumer_changes": True}
    with service.http(make_token("replication:write", "stores:read")) as operator:
        answer = operator.post(f"/v1/stores/{replica.id}/replication-sessions", json=body)
        problem(answer, 403, "SCOPE_MISSING")


def test_a_token_that_is_not_there_ends_a_session_and_its_name_is_all_that_is_told(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots)
    write(pair.supplier, 1)
    path = f"{pair.store}/agreements/{pair.agreement['id']}"
    store = pair.supplier.id
    lost = {"consumer": {"token": registered(http, "env:LETHE_SECRET_NOBODY_HAS_SET", store=store)}}
    assert http.patch(path, json=lost, headers={"If-Match": "*"}).status_code == 200
    job = pair.run("FAILED")
    assert job["error"]["code"] == "SECRET_UNAVAILABLE"
    wrong = {"consumer": {"token": registered(http, "env:LETHE_SECRET_SHOP", store=store)}}
    assert http.patch(path, json=wrong, headers={"If-Match": "*"}).status_code == 200
    job = pair.run("FAILED")
    assert job["error"]["code"] == "TOKEN_UNKNOWN"
    status = pair.status()["last_update_status_json"]
    assert (status["state"], status["repl_rc"]) == ("red", "3")


def test_an_agreement_that_only_the_target_knows_can_be_taken_away(
    http: httpx.Client, replica: ConsumerStore, token: str
) -> None:
    """The metadata was restored, or the store registered anew: else nothing would ever be trimmed."""
    made = agree(http, replica.id, "there", url="http://127.0.0.1:1", token=token).json()
    again = make_replica(http, rid=1, url=f"sqlite:///{replica.path}")
    assert http.get(f"/v1/stores/{again.id}/agreements").json()["items"] == []
    path = f"/v1/stores/{again.id}/agreements/{made['id']}"
    assert http.delete(path, headers={"If-Match": "*"}).status_code == 204
    problem(http.delete(path, headers={"If-Match": "*"}), 404, "AGREEMENT_NOT_FOUND")


def test_a_session_that_is_tried_again_is_another_session(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots, rids=(1, 1))
    write(pair.supplier, 1)
    failed = pair.run("FAILED")
    again = http.post(f"/v1/jobs/{failed['id']}:retry", json={}).json()
    job = wait_for(http, again["id"], "FAILED")
    assert job["retried_from"] == failed["id"]
    assert pair.session_of(job)["id"] != failed["subject"]["id"]
    assert pair.session_of(job)["job_id"] == job["id"]
