"""Questions to the decision core: what is sent, and what comes back."""

import httpx
import pytest
from lethe_client import Anchor, Decision, Lethe, RequestInvalid

from tests.client.conftest import Script

QUESTION = {"supplier": {"ruv": {"1": "65000032000000010000"}}, "consumer": {"ruv": None}}
ANSWER = {
    "outcome": "SEND",
    "need": [1, 3],
    "blocked_rids": [],
    "reason": None,
    "anchor": {"csn": None, "inclusive": True},
    "windows": {"1": ["65000028000000010000", "65000032000000010000"], "3": [None, "6500001e000000030000"]},
}


def test_question_is_sent_as_it_stands_and_answered_as_a_value(lethe: Lethe, script: Script) -> None:
    script.replies = [httpx.Response(200, json=ANSWER)]
    decision = lethe.replication.decide(QUESTION)
    assert script.requests[0].url.path == "/v1/replication:decide"
    assert script.bodies() == [QUESTION]
    assert script.headers("idempotency-key") == [None]
    assert decision == Decision(
        outcome="SEND", need=(1, 3), anchor=Anchor(inclusive=True), windows=ANSWER["windows"]
    )
    assert decision.raw == ANSWER


def test_question_is_asked_again_where_no_answer_came(lethe: Lethe, script: Script) -> None:
    script.replies = [httpx.ReadError("gone"), httpx.Response(200, json=ANSWER)]
    assert lethe.replication.decide(QUESTION).outcome == "SEND"


def test_fault_of_a_vector_is_raised_with_its_place(lethe: Lethe, script: Script) -> None:
    errors = [{"pointer": "/consumer/ruv/1", "detail": "19 characters"}]
    script.replies = [httpx.Response(422, json={"code": "INVALID_REQUEST", "errors": errors})]
    with pytest.raises(RequestInvalid) as caught:
        lethe.replication.decide(QUESTION)
    assert list(caught.value.errors) == errors
