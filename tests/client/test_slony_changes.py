"""The changes of a node: whole units, answers that were cut off, and going on from the last SYNC."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from lethe_client import Conflict, Lethe, SlonyChange, TransportFailed, UnexpectedAnswer

from tests.client.conftest import Script

START = {"kind": "START", "origin": 1, "seqno": 5, "snapshot": "10:10:"}
ROW = {
    "seqno": 6,
    "kind": "UPDATE",
    "actionseq": 71,
    "txid": 10,
    "set": 1,
    "table_id": 2,
    "schema": "public",
    "table": "t",
    "key": {"id": "1"},
    "values": {"a": None},
}
SYNC = {"seqno": 6, "kind": "SYNC", "detail": {"snapshot": "11:11:", "records": 1}}
PATH = "/v1/stores/lab-1/slony-changes"
NEEDS_TOTAL = {"status": 409, "code": "NEEDS_TOTAL", "title": "t", "detail": "gone", "retryable": False}


def answer(*records: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, text="".join(json.dumps(record) + "\n" for record in records))


def kinds(records: list[SlonyChange]) -> list[str]:
    return [record.kind for record in records]


def test_a_page_is_asked_for_from_a_position(lethe: Lethe, script: Script) -> None:
    script.replies = [answer(START, ROW, SYNC)]
    found = list(
        lethe.slony_changes.page(
            "lab-1", after=5, snapshot="10:10:", copied="10:12:11", sets=[1, 2], limit=3, rows=9
        )
    )
    assert kinds(found) == ["START", "UPDATE", "SYNC"]
    assert (found[1].key, found[1].values, found[1].set, found[1].raw) == ({"id": "1"}, {"a": None}, 1, ROW)
    [request] = script.requests
    assert request.url.path == PATH
    asked = request.url.params
    assert asked.multi_items() == [
        ("after", "5"),
        ("snapshot", "10:10:"),
        ("copied", "10:12:11"),
        ("set", "1"),
        ("set", "2"),
        ("limit", "3"),
        ("rows", "9"),
    ]


@pytest.mark.parametrize(
    "records", [(START, ROW), (), (START, ROW, {"kind": "ERROR", "code": "X", "detail": "cut"})]
)
def test_an_answer_that_does_not_end_with_a_sync_is_no_success(
    lethe: Lethe, script: Script, records: tuple[dict[str, Any], ...]
) -> None:
    script.replies = [answer(*records)]
    with pytest.raises(TransportFailed):
        list(lethe.slony_changes.page("lab-1", after=5))


def test_a_copy_without_its_end_is_no_success(lethe: Lethe, script: Script) -> None:
    row = {"kind": "COPY", "seqno": 5, "schema": "public", "table": "t", "values": {"id": "1"}}
    end = {"kind": "END", "seqno": 5, "detail": {"records": 1}}
    script.replies = [answer(START, row, end), answer(START, row)]
    assert kinds(list(lethe.slony_changes.copy("lab-1", sets=[1]))) == ["START", "COPY", "END"]
    with pytest.raises(TransportFailed, match="before its end"):
        list(lethe.slony_changes.copy("lab-1", sets=[1]))


def test_what_is_no_record_is_refused(lethe: Lethe, script: Script) -> None:
    for text in ("[]\n", "x\n", '{"seqno": 1}\n'):
        script.replies = [httpx.Response(200, text=text)]
        with pytest.raises(UnexpectedAnswer):
            list(lethe.slony_changes.page("lab-1"))


def test_following_goes_on_from_the_last_sync_and_says_what_comes_again(lethe: Lethe, script: Script) -> None:
    later = {"kind": "START", "origin": 1, "seqno": 6, "snapshot": "11:11:"}
    next_row = ROW | {"seqno": 7}
    next_sync = {"seqno": 7, "kind": "SYNC", "detail": {"snapshot": "12:12:", "records": 1}}
    script.replies = [
        answer(START, ROW, SYNC),
        answer(later),  # nothing new
        answer(later, next_row),  # cut off within a unit
        httpx.ConnectError("away"),
        answer(later, next_row, next_sync),
        httpx.Response(409, json=NEEDS_TOTAL),
    ]
    found: list[SlonyChange] = []
    with pytest.raises(Conflict) as refused:
        found.extend(lethe.slony_changes.follow("lab-1", after=5, copied="10:10:"))
    assert refused.value.code == "NEEDS_TOTAL"
    assert kinds(found) == ["START", "UPDATE", "SYNC", "UPDATE", "START", "UPDATE", "SYNC"]
    assert found[4].seqno == 6
    asked = [dict(request.url.params) for request in script.requests]
    assert asked[0] == {"after": "5", "copied": "10:10:"}
    assert asked[1:5] == [{"after": "6", "snapshot": "11:11:"}] * 4
    assert asked[5] == {"after": "7", "snapshot": "12:12:"}
