"""Sending again: where it is safe, under the same key, and never for ever."""

import httpx
import pytest
from lethe_client import (
    Conflict,
    Lethe,
    PreconditionFailed,
    PurgeRequest,
    ServiceUnavailable,
    Store,
    TransportFailed,
)

JOB = {"id": "job_1", "kind": "PURGE", "state": "QUEUED"}
BUSY = {"code": "METADATA_BUSY", "detail": "busy", "retryable": True}


def test_connection_lost_twice_then_answered_sends_same_key_and_request_id(lethe, script) -> None:
    script.replies = [httpx.ReadError("reset"), httpx.ConnectError("refused"), httpx.Response(202, json=JOB)]
    assert lethe.purges.create("shop", PurgeRequest(reason="test")).id == "job_1"
    keys, ids = script.headers("idempotency-key"), script.headers("x-request-id")
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert keys[0]
    assert len(set(ids)) == 1


def test_two_calls_have_two_keys(lethe, script) -> None:
    script.replies = [httpx.Response(202, json=JOB), httpx.Response(202, json=JOB)]
    for _ in range(2):
        lethe.purges.create("shop", PurgeRequest(reason="test"))
    assert len(set(script.headers("idempotency-key"))) == 2


def test_key_given_by_the_caller_is_the_one_sent(lethe, script) -> None:
    script.replies = [httpx.Response(202, json=JOB)]
    lethe.purges.create("shop", PurgeRequest(reason="test"), idempotency_key="mine")
    assert script.headers("idempotency-key") == ["mine"]


def test_retry_after_is_a_floor_under_the_jitter(lethe, script, clock) -> None:
    script.replies = [
        httpx.Response(503, json=BUSY, headers={"Retry-After": "7"}),
        httpx.Response(429, json=BUSY),
        httpx.Response(200, json=JOB),
    ]
    lethe.jobs.get("job_1")
    assert clock.slept == [7.2, 0.4]


def test_key_in_flight_is_waited_for(lethe, script) -> None:
    flight = {"code": "IDEMPOTENCY_KEY_IN_FLIGHT", "detail": "in flight", "retryable": True}
    script.replies = [
        httpx.Response(409, json=flight, headers={"Retry-After": "1"}),
        httpx.Response(202, json=JOB),
    ]
    assert lethe.jobs.pause("job_1").id == "job_1"
    assert len(set(script.headers("idempotency-key"))) == 1


def test_conflict_without_retry_after_is_raised_at_once(lethe, script) -> None:
    script.replies = [
        httpx.Response(409, json={"code": "CONFLICTING_JOB", "detail": "job_2", "job_id": "job_2"})
    ]
    with pytest.raises(Conflict) as raised:
        lethe.purges.create("shop", PurgeRequest(reason="test"))
    assert raised.value.code == "CONFLICTING_JOB"
    assert raised.value.document["job_id"] == "job_2"


def test_delete_whose_answer_was_lost_is_not_repeated(lethe, script) -> None:
    script.replies = [httpx.ReadError("reset")]
    with pytest.raises(TransportFailed) as raised:
        lethe.stores.delete(Store(id="shop", kind="SYMMETRICDS", etag='"1"'))
    assert raised.value.maybe_done
    assert len(script.requests) == 1


def test_delete_that_never_left_is_repeated(lethe, script) -> None:
    script.replies = [httpx.ConnectError("refused"), httpx.Response(204)]
    lethe.stores.delete(Store(id="shop", kind="SYMMETRICDS", etag='"1"'))
    assert script.headers("if-match") == ['"1"', '"1"']


def test_service_that_stays_away_ends_after_the_policys_attempts(lethe, script, clock) -> None:
    script.replies = [httpx.ConnectError("refused")] * 6
    with pytest.raises(TransportFailed) as raised:
        lethe.jobs.get("job_1")
    assert not raised.value.maybe_done
    assert clock.slept == [0.2, 0.4, 0.8, 1.6, 3.2]


def test_retry_after_beyond_the_budget_is_raised_at_once(lethe, script, clock) -> None:
    script.replies = [httpx.Response(503, json=BUSY, headers={"Retry-After": "3600"})]
    with pytest.raises(ServiceUnavailable):
        lethe.jobs.get("job_1")
    assert clock.slept == []


def test_unavailable_that_says_not_retryable_is_raised_at_once(lethe, script) -> None:
    script.replies = [httpx.Response(503, json={"code": "TARGET_READ_ONLY", "retryable": False})]
    with pytest.raises(ServiceUnavailable):
        lethe.jobs.get("job_1")


@pytest.mark.parametrize("status", [502, 504])
def test_proxys_doubt_is_repeated_only_under_a_key(lethe, script, status) -> None:
    script.replies = [httpx.Response(status, text="<html>"), httpx.Response(202, json=JOB)]
    lethe.jobs.resume("job_1")
    script.replies = [httpx.Response(status, text="<html>")]
    with pytest.raises(Exception, match="HTTP_50"):
        lethe.stores.update(Store(id="shop", kind="SYMMETRICDS", etag='"1"'), {"labels": {}})


def test_stale_etag_is_raised_and_not_repeated(lethe: Lethe, script) -> None:
    script.replies = [httpx.Response(412, json={"code": "ETAG_MISMATCH", "detail": "changed"})]
    with pytest.raises(PreconditionFailed):
        lethe.stores.update(Store(id="shop", kind="SYMMETRICDS", etag='"1"'), {"labels": {}})
    assert script.headers("if-match") == ['"1"']
