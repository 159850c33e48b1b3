"""`lethe replication decide`: a question from a file or a pipe, an answer for people or for programs."""

import io
import json
from pathlib import Path

import pytest

DECIDE = "POST /v1/replication:decide"
QUESTION = {"strategy": "WINDOW", "supplier": {"ruv": {}}, "consumer": {"ruv": None}, "unknown": 1}
ANSWER = {
    "outcome": "SEND",
    "need": [1, 3],
    "blocked_rids": [],
    "reason": None,
    "anchor": {"csn": "6500000a000000030000", "inclusive": True},
    "windows": {"1": ["65000028000000010000", "65000032000000010000"], "3": [None, "6500001e000000030000"]},
}
PURGED = {
    "outcome": "NEEDS_TOTAL",
    "need": [1, 2],
    "blocked_rids": [1, 2],
    "reason": "PURGED",
    "anchor": {"csn": "65000028000000010000", "inclusive": False},
    "windows": {},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "question.json"
    path.write_text(json.dumps(QUESTION))
    return path


def test_question_of_a_file_is_sent_whole_and_shown_for_people(service, lethe, file: Path) -> None:
    service.on(DECIDE, (200, ANSWER))
    run = lethe("replication", "decide", str(file))
    assert run.code == 0
    assert service.bodies(DECIDE) == [QUESTION]
    words = run.out.split()
    assert "SEND" in words
    assert "at 6500000a000000030000" in run.out
    assert [words[i + 1 : i + 3] for i in range(len(words)) if words[i] == "1"] == [ANSWER["windows"]["1"]]
    assert "(the first)" in run.out


def test_json_is_the_answer_of_the_service(service, lethe, file: Path) -> None:
    service.on(DECIDE, (200, PURGED))
    run = lethe("replication", "decide", str(file), "--json")
    assert (run.code, run.json()) == (0, PURGED)


def test_replicas_that_were_purged_are_named(service, lethe, file: Path) -> None:
    service.on(DECIDE, (200, PURGED))
    run = lethe("replication", "decide", str(file))
    assert run.code == 0
    assert "PURGED" in run.out
    assert "1, 2" in run.out
    assert "anchor" not in run.out


def test_strategy_of_the_option_wins_over_the_files(service, lethe, file: Path) -> None:
    service.on(DECIDE, (200, ANSWER))
    lethe("replication", "decide", str(file), "--strategy", "classic")
    assert service.bodies(DECIDE) == [QUESTION | {"strategy": "CLASSIC"}]


def test_question_comes_from_standard_input(service, lethe, monkeypatch) -> None:
    service.on(DECIDE, (200, ANSWER))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(QUESTION).encode())))
    assert lethe("replication", "decide", "-").code == 0
    assert service.bodies(DECIDE) == [QUESTION]


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b'"x"', b"[" * 100_000])
def test_file_that_is_no_question_is_a_usage_error(service, lethe, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(content)
    run = lethe("replication", "decide", str(path))
    assert run.code == 64
    assert "JSON" in run.err
    assert service.asked == []


def test_file_that_is_not_there_is_a_usage_error(service, lethe, tmp_path: Path) -> None:
    run = lethe("replication", "decide", str(tmp_path / "none.json"), "--json")
    assert (run.code, run.json()["code"]) == (64, "USAGE")
    assert "cannot be read" in run.err


def test_fault_of_the_service_is_shown_with_its_place(service, lethe, file: Path) -> None:
    errors = [{"pointer": "/supplier/ruv/1", "detail": "19 characters where a CSN has 20"}]
    document = {"code": "INVALID_REQUEST", "detail": "1 field(s) are not valid", "errors": errors}
    service.on(DECIDE, (422, document))
    run = lethe("replication", "decide", str(file))
    assert run.code == 64
    assert "/supplier/ruv/1: 19 characters" in run.err
