"""`POST /v1/replication:decide`: the vectors of the decision table, and everything that is no vector."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.oracles.changelog_export import DATA
from tests.oracles.replication_recordings import SESSIONS, consumer_vector

PATH = "/v1/replication:decide"
VECTORS = json.loads((DATA / "decision-vectors.json").read_text())
ONE = "65000032000000010000"
TWO = "6500003c000000020000"
GENERATION = "6afffdfc000000010000"

Decide = Callable[..., Any]


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata: the core asks none."""
    return sqlite_service


@pytest.fixture
def decide(http: httpx.Client) -> Decide:
    """Ask, and give the answer's body."""

    def ask(body: dict[str, Any]) -> Any:
        answer = http.post(PATH, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


def _body(case: dict[str, Any], strategy: str) -> dict[str, Any]:
    consumer_generation = GENERATION if case["same_generation"] else "6affff57000000030000"
    return {
        "strategy": strategy,
        "supplier": {
            "ruv": case["supplier"],
            "min": case["supplier_min"],
            "purged": case["purged"],
            "generation": GENERATION,
        },
        "consumer": {"ruv": case["consumer"], "generation": consumer_generation},
    }


def _lines(case: dict[str, Any], strategy: str) -> dict[str, Any]:
    """The same question in 389's lines, the generation in them; None stays None."""
    body = _body(case, strategy)
    for side in (body["supplier"], body["consumer"]):
        if side["ruv"] is None:
            continue
        head = [f"{{replicageneration}} {side.pop('generation')}"]
        minima = case["supplier_min"] if side is body["supplier"] else {}
        side["ruv"] = head + [
            f"{{replica {rid} ldap://s{rid}:389}} {minima.get(rid, csn)} {csn}"
            for rid, csn in side["ruv"].items()
        ]
    del body["supplier"]["min"]
    body["supplier"]["purged"] = [f"{{replica {rid}}} {csn}" for rid, csn in case["purged"].items()]
    return body


@pytest.mark.parametrize("make", [_body, _lines])
@pytest.mark.parametrize("strategy", ["WINDOW", "CLASSIC"])
@pytest.mark.parametrize("case", VECTORS, ids=[case["id"] for case in VECTORS])
def test_vector_of_the_table_is_answered_as_it_says(
    decide: Decide, case: dict[str, Any], strategy: str, make: Callable[..., dict[str, Any]]
) -> None:
    expected = case["expect"]
    assert decide(make(case, strategy)) == {
        "outcome": expected["outcome"].upper(),
        "need": expected.get("need", []),
        "blocked_rids": expected.get("blocked_rids", []),
        "reason": expected["reason"] and expected["reason"].upper(),
        "anchor": expected.get("seed_anchor") if strategy == "CLASSIC" else None,
        "windows": expected.get("windows", {}),
    }


def test_window_is_the_strategy_of_who_names_none(decide: Decide) -> None:
    body = {"supplier": {"ruv": {"1": ONE}}, "consumer": {"ruv": {}}}
    assert decide(body) == {
        "outcome": "SEND",
        "need": [1],
        "blocked_rids": [],
        "reason": None,
        "anchor": None,
        "windows": {"1": [None, ONE]},
    }


def test_classic_with_an_unknown_first_change_starts_at_the_beginning(decide: Decide) -> None:
    body = {"strategy": "CLASSIC", "supplier": {"ruv": {"1": ONE}}, "consumer": {"ruv": {}}}
    assert decide(body)["anchor"] == {"csn": None, "inclusive": True}


def test_later_load_of_classic_goes_on_from_its_buffer(decide: Decide) -> None:
    body = {
        "strategy": "CLASSIC",
        "supplier": {"ruv": {"1": ONE, "2": TWO}},
        "consumer": {"ruv": {"1": ONE, "2": "65000014000000020000"}},
        "previous": {"ruv": {"2": TWO}, "csn_buffer": "65000028000000020000"},
    }
    assert decide(body)["anchor"] == {"csn": "65000028000000020000", "inclusive": False}
    assert decide(body | {"strategy": "WINDOW"})["windows"] == {"2": ["65000014000000020000", TWO]}


@pytest.mark.parametrize("number", [0, 30, 77])
def test_recorded_lines_of_a_session_are_taken_as_they_are(decide: Decide, number: int) -> None:
    session = SESSIONS[number]
    body = {"supplier": {"ruv": session["supplier_ruv"]}, "consumer": {"ruv": session["consumer_ruv"]}}
    answer = decide(body)
    seen = consumer_vector(session)
    assert answer["outcome"] in ("SEND", "UP_TO_DATE")
    assert {rid: window[0] for rid, window in answer["windows"].items()} == {
        str(rid): seen.get(rid) for rid in answer["need"]
    }


def test_generations_that_differ_or_stand_on_one_side_need_a_total_update(decide: Decide) -> None:
    for supplier, consumer in (({"generation": "a"}, {"generation": "b"}), ({"generation": "a"}, {})):
        body = {"supplier": {"ruv": {"1": ONE}} | supplier, "consumer": {"ruv": {"1": ONE}} | consumer}
        assert decide(body)["reason"] == "GENERATION_MISMATCH"


def refused(http: httpx.Client, body: Any) -> dict[str, str]:
    """The faults of a 422 by pointer."""
    answer = problem(http.post(PATH, json=body), 422, "INVALID_REQUEST")
    return {item["pointer"]: item["detail"] for item in answer["errors"]}


GOOD = {"supplier": {"ruv": {"1": ONE}}, "consumer": {"ruv": {"1": ONE}}}
LINE = f"{{replica 1 ldap://s1:389}} 65000001000000010000 {ONE}"


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({}, "/supplier", "Field required"),
        (GOOD | {"strategy": "window"}, "/strategy", "WINDOW"),
        (GOOD | {"strategies": "WINDOW"}, "/strategies", "Extra"),
        (GOOD | {"consumer": {}}, "/consumer/ruv", "Field required"),
        (GOOD | {"supplier": {"ruv": None}}, "/supplier/ruv", "neither"),
        (GOOD | {"supplier": {"ruv": "x"}}, "/supplier/ruv", "neither"),
        (GOOD | {"supplier": {"ruv": {"1": "6500003200000001000"}}}, "/supplier/ruv/1", "19 characters"),
        (GOOD | {"supplier": {"ruv": {"1": ONE.replace("5", "g")}}}, "/supplier/ruv/1", "hexadecimal"),
        (GOOD | {"supplier": {"ruv": {"1": TWO}}}, "/supplier/ruv/1", "of replica 2"),
        (GOOD | {"supplier": {"ruv": {"1": None}}}, "/supplier/ruv/1", "20 hexadecimal"),
        (GOOD | {"supplier": {"ruv": {"1": 65}}}, "/supplier/ruv/1", "20 hexadecimal"),
        (GOOD | {"supplier": {"ruv": {"0": ONE}}}, "/supplier/ruv/0", "no replica id"),
        (GOOD | {"supplier": {"ruv": {"65535": ONE}}}, "/supplier/ruv/65535", "no replica id"),
        (GOOD | {"supplier": {"ruv": {"01": ONE}}}, "/supplier/ruv/01", "no replica id"),
        (GOOD | {"supplier": {"ruv": {"a/~b": ONE}}}, "/supplier/ruv/a~1~0b", "no replica id"),
        (GOOD | {"supplier": {"ruv": {}, "min": {"1": "x"}}}, "/supplier/min/1", "hexadecimal"),
        (
            GOOD | {"supplier": {"ruv": {"1": ONE}, "min": {"1": "66000000000000010000"}}},
            "/supplier/min/1",
            "above",
        ),
        (GOOD | {"supplier": {"ruv": {}, "purged": [f"{LINE} x"]}}, "/supplier/purged/0", "hexadecimal"),
        (GOOD | {"supplier": {"ruv": {}, "generation": ""}}, "/supplier/generation", "at least 1"),
        (GOOD | {"supplier": {"ruv": {}, "generation": "x" * 65}}, "/supplier/generation", "at most 64"),
        (
            GOOD | {"supplier": {"ruv": [f"{{replicageneration}} {GENERATION}"], "generation": "a"}},
            "/supplier/generation",
            "2 are named",
        ),
        (GOOD | {"consumer": {"ruv": [LINE, 1]}}, "/consumer/ruv/1", "a text"),
        (GOOD | {"consumer": {"ruv": [LINE, LINE]}}, "/consumer/ruv/1", "stands twice"),
        (GOOD | {"consumer": {"ruv": ["{replica 1} " + ONE]}}, "/consumer/ruv/0", "both or none"),
        (GOOD | {"consumer": {"ruv": [LINE[:-1]]}}, "/consumer/ruv/0", "at character 66"),
        (GOOD | {"previous": {"ruv": {}}}, "/previous/csn_buffer", "Field required"),
        (GOOD | {"previous": {"ruv": {}, "csn_buffer": None}}, "/previous/csn_buffer", "20 hexadecimal"),
        (GOOD | {"previous": {"ruv": {"1": "x"}, "csn_buffer": ONE}}, "/previous/ruv/1", "hexadecimal"),
    ],
)
def test_body_that_is_wrong_is_refused_with_its_place(
    http: httpx.Client, body: Any, pointer: str, words: str
) -> None:
    faults = refused(http, body)
    assert words in faults[pointer]


def test_every_fault_is_told_up_to_a_hundred(http: httpx.Client) -> None:
    three = {"supplier": {"ruv": {"1": "x", "2": "y"}}, "consumer": {"ruv": {"3": "z"}}}
    assert set(refused(http, three)) == {"/supplier/ruv/1", "/supplier/ruv/2", "/consumer/ruv/3"}
    many = {"supplier": {"ruv": {str(rid): "x" for rid in range(1, 501)}}, "consumer": {"ruv": {}}}
    assert len(refused(http, many)) == 100


def test_more_lines_than_replicas_can_be_are_refused(http: httpx.Client) -> None:
    body = GOOD | {"consumer": {"ruv": ["x"] * 65_536}}
    assert refused(http, body) == {"/consumer/ruv/65535": "65536 lines where at most 65535 can be"}


def test_more_replicas_than_can_be_are_refused(http: httpx.Client) -> None:
    body = GOOD | {"consumer": {"ruv": {str(rid): "" for rid in range(65_535)}}}
    assert refused(http, body) == {"/consumer/ruv": "65535 replicas where at most 65534 can be"}


def test_body_above_the_services_limit_is_refused(http: httpx.Client) -> None:
    vector = {str(rid): ONE for rid in range(1, 40_000)}
    body = {"supplier": {"ruv": vector}, "consumer": {"ruv": {}}}
    problem(http.post(PATH, json=body), 413, "BODY_TOO_LARGE")


def test_twenty_thousand_replicas_are_decided(decide: Decide) -> None:
    ruv = {str(rid): f"65000032{1:04x}{rid:04x}0000" for rid in range(1, 20_001)}
    answer = decide({"supplier": {"ruv": ruv}, "consumer": {"ruv": {}}})
    assert answer["need"] == list(range(1, 20_001))
    assert answer["windows"]["20000"] == [None, ruv["20000"]]


def test_question_changes_nothing_and_leaves_no_audit_row(http: httpx.Client, metadata: MetadataRows) -> None:
    with metadata.unchanged():
        for _ in range(2):
            assert http.post(PATH, json=GOOD, headers={"Idempotency-Key": "same"}).status_code == 200
        other = GOOD | {"consumer": {"ruv": {}}}
        assert http.post(PATH, json=other, headers={"Idempotency-Key": "same"}).status_code == 200


def test_token_needs_a_scope_that_reads(service: ServiceProcess, make_token: Callable[..., str]) -> None:
    with service.http(make_token("jobs:read", stores=["elsewhere"])) as reader:
        assert reader.post(PATH, json=GOOD).status_code == 200
    with service.http(make_token("replication:peer")) as peer:
        problem(peer.post(PATH, json=GOOD), 403, "SCOPE_MISSING")
    with service.http("") as anonymous:
        problem(anonymous.post(PATH, json=GOOD), 401, "TOKEN_MISSING")


def test_other_method_is_refused(http: httpx.Client) -> None:
    problem(http.get(PATH), 405, "METHOD_NOT_ALLOWED")


def test_examples_of_the_description_are_good_questions(http: httpx.Client, decide: Decide) -> None:
    operation = http.get("/openapi.json").json()["paths"][PATH]["post"]
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    answers = {name: decide(example["value"]) for name, example in examples.items()}
    shown = operation["responses"]["200"]["content"]["application/json"]["example"]
    assert answers["window"] == shown
    assert answers["later-load"]["anchor"] == {"csn": "6500000a000000030000", "inclusive": True}
    assert answers["lines"]["reason"] == "GENERATION_MISMATCH"
