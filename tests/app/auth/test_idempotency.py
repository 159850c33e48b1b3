"""api.md, Idempotency: key, effect, audit row and answer share one transaction."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from fastapi import Request
from pydantic import BaseModel
from sqlalchemy import text
from sqlmodel import select

import app.auth.mutation as mutation
from app.auth.fingerprint import Fingerprint
from app.auth.rows import AuditEvent, IdempotencyKey
from app.db import Database
from app.jobs.rows import Counter
from tests.app.auth.requests import PATH, Gate, Http, MakeHttp, make_token
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import in_threads


def tally(database: Database) -> int:
    with database.reading() as db:
        row = db.get(Counter, "tally")
        return 0 if row is None else row.value


def kept(database: Database) -> tuple[int, int]:
    """How many keys and how many audit rows of the toy change there are."""
    with database.reading() as db:
        audits = db.exec(select(AuditEvent).where(AuditEvent.action == "tally.add")).all()
        return len(db.exec(select(IdempotencyKey)).all()), len(audits)


def test_repeated_request_gets_the_same_answer_and_changes_once(http: Http, database: Database) -> None:
    first = http.add(5, key="k1")
    again = http.add(5, key="k1")
    assert (first.status_code, first.json()) == (201, {"value": 5})
    assert "idempotency-replayed" not in first.headers
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.headers["etag"], again.headers["location"]) == ('"5"', PATH)
    assert (tally(database), kept(database)) == (5, (1, 1))


def test_without_a_key_each_request_counts(http: Http, database: Database) -> None:
    assert [http.add(1).json()["value"] for _ in range(3)] == [1, 2, 3]
    assert kept(database) == (0, 3)


def test_key_of_another_body_is_refused(http: Http, database: Database) -> None:
    http.add(5, key="k1")
    other = http.add(6, key="k1")
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert (tally(database), kept(database)) == (5, (1, 1))


def test_key_of_another_query_is_refused(http: Http, database: Database) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = http("POST", PATH, json={"amount": 5}, headers=headers)
    other = http("POST", f"{PATH}?validate_only=true", json={"amount": 5}, headers=headers)
    assert (first.status_code, other.status_code) == (201, 422)
    assert tally(database) == 5


def test_same_body_written_otherwise_is_the_same_request(http: Http, database: Database) -> None:
    headers = {"Idempotency-Key": "k1"}
    http("POST", PATH, json={}, headers=headers)
    again = http(
        "POST", PATH, content=b'{ "amount" : 1 }', headers=headers | {"Content-Type": "application/json"}
    )
    assert again.headers.get("idempotency-replayed") == "true"
    assert tally(database) == 1


class Before(BaseModel):
    """A request as one version takes it."""

    name: str
    dry_run: bool = False
    zone: str | None = None


class After(Before):
    """The same of the next version, which takes one thing more."""

    engine: str | None = None


def fingerprint(model: type[Before], method: str = "POST", **sent: Any) -> Fingerprint:
    request = Request({"type": "http", "method": method, "query_string": b"", "headers": []})
    return Fingerprint.of(request, model.model_validate(sent))


def test_field_that_a_later_version_adds_changes_no_request() -> None:
    """A key of the day before an upgrade got 422 of the day after it."""
    assert fingerprint(Before, name="a", zone="UTC").sent == fingerprint(After, name="a", zone="UTC").sent
    assert fingerprint(After, name="a", engine="SPARK").sent != fingerprint(After, name="a").sent


def test_key_that_a_former_version_has_kept_is_known(http: Http, database: Database) -> None:
    """It has the digest of all fields with their defaults, and compares no other while it works beside us."""
    http.add(5, key="k1")
    content = {"query": [], "body": {"amount": 5}}
    with database.transaction() as db:
        row = db.exec(select(IdempotencyKey)).one()
        assert row.request_sha256 == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        row.sent_sha256 = None
        db.add(row)
    assert http.add(5, key="k1").headers["idempotency-replayed"] == "true"
    assert http.add(6, key="k1").json()["code"] == "IDEMPOTENCY_KEY_REUSED"


def test_null_is_a_request_of_its_own_where_it_takes_a_value_away() -> None:
    """Of two changes with one key the second was answered as if it had been made."""
    assert (
        fingerprint(Before, "PATCH", name="a", zone=None).sent != fingerprint(Before, "PATCH", name="a").sent
    )
    assert fingerprint(Before, name="a", zone=None).sent == fingerprint(Before, name="a").sent


def test_keys_of_two_tokens_are_two_keys(http: Http, database: Database, clock: FakeClock) -> None:
    bob = make_token(database, clock, name="bob")
    assert http.add(5, key="k1").json() == {"value": 5}
    assert http.add(6, key="k1", token=bob).json() == {"value": 11}


@pytest.mark.parametrize("key", ["", "a" * 256, "two words", "tab\t"])
def test_malformed_key_is_refused_before_anything_happens(http: Http, database: Database, key: str) -> None:
    answer = http.add(5, key=key)
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_HEADER")
    assert (tally(database), kept(database)) == (0, (0, 0))


def test_effect_that_is_refused_leaves_the_key_free(http: Http, database: Database) -> None:
    refused = http.add(13, key="k1")
    assert (refused.status_code, refused.json()["code"]) == (409, "UNLUCKY")
    assert (tally(database), kept(database)) == (0, (0, 0))
    assert http.add(5, key="k1").json() == {"value": 5}


def test_effect_that_breaks_leaves_the_key_free(make_http: MakeHttp, database: Database) -> None:
    gate = Gate(error=ZeroDivisionError("secret"))
    gate.open.set()
    http = make_http(gate)
    broken = http.add(5, key="k1")
    assert (broken.status_code, broken.json()["code"]) == (500, "INTERNAL")
    assert "secret" not in broken.text
    assert (tally(database), kept(database)) == (0, (0, 0))
    gate.error = None
    assert http.add(5, key="k1").json() == {"value": 5}


def test_request_in_flight_is_409_and_then_replayed(make_http: MakeHttp, database: Database) -> None:
    gate = Gate()
    http = make_http(gate)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(http.add, 5, key="k1")
        assert gate.entered.wait(10)
        meanwhile = http.add(5, key="k1")
        gate.open.set()
        assert first.result(20).status_code == 201
    body = meanwhile.json()
    assert (meanwhile.status_code, body["code"], body["retryable"]) == (
        409,
        "IDEMPOTENCY_KEY_IN_FLIGHT",
        True,
    )
    assert meanwhile.headers["retry-after"] == "1"
    assert http.add(5, key="k1").headers["idempotency-replayed"] == "true"
    assert tally(database) == 5


class NoMemory:
    """What a process knows of the requests of another one."""

    def hold(self, _key: tuple[str, ...]) -> nullcontext[None]:
        return nullcontext()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_request_in_flight_at_another_instance_is_409(
    make_http: MakeHttp, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "_keys_in_flight", NoMemory())
    gate = Gate()
    one, other = make_http(gate), make_http()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.add, 5, key="k1")
        assert gate.entered.wait(10)
        meanwhile = other.add(5, key="k1")
        gate.open.set()
        assert first.result(20).status_code == 201
    assert (meanwhile.status_code, meanwhile.json()["code"]) == (409, "IDEMPOTENCY_KEY_IN_FLIGHT")
    assert other.add(5, key="k1").headers["idempotency-replayed"] == "true"


def test_many_at_once_with_one_key_change_once(http: Http, database: Database) -> None:
    answers = in_threads(8, lambda _: http.add(5, key="k1"))
    codes = sorted(answer.status_code for answer in answers)
    assert set(codes) <= {201, 409}
    assert 201 in codes
    assert (tally(database), kept(database)) == (5, (1, 1))


def test_secret_of_a_token_is_not_replayed(http: Http) -> None:
    body = {"name": "nightly", "role": "operator"}
    first = http("POST", "/v1/tokens", json=body, headers={"Idempotency-Key": "k1"})
    again = http("POST", "/v1/tokens", json=body, headers={"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["token"].startswith("lethe_")
    assert again.json() == first.json() | {"token": None}


def test_audit_row_stands_beside_the_change(http: Http, database: Database, clock: FakeClock) -> None:
    answer = http("POST", PATH, json={"amount": 5}, headers={"X-Request-ID": "req-7"})
    assert answer.status_code == 201
    with database.reading() as db:
        row = db.exec(select(AuditEvent).where(AuditEvent.action == "tally.add")).one()
    assert (row.actor, row.subject_type, row.subject_id, row.request_id) == ("ann", "tally", "1", "req-7")
    assert (row.detail, row.at) == ({"by": 5}, clock.now())


def test_audit_row_that_cannot_be_written_undoes_the_change(http: Http, database: Database) -> None:
    # The audit row shares the transaction: nothing happens without it.
    with database.transaction() as db:
        db.execute(text("alter table audit_events rename to audit_events_away"))
    try:
        answer = http.add(5, key="k1")
        assert answer.status_code in (500, 503)
        assert tally(database) == 0
    finally:
        with database.transaction() as db:
            db.execute(text("alter table audit_events_away rename to audit_events"))


def test_replay_leaves_no_second_audit_row(http: Http, database: Database) -> None:
    for _ in range(3):
        http.add(5, key="k1")
    assert kept(database) == (1, 1)
