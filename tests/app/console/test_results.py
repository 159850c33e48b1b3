"""What a job has reached is told in sentences, for every verb there is."""

from __future__ import annotations

from typing import Any

import pytest

from app.console.results.nodes import SWITCHED
from app.console.results.replicas import ENDED, NOT_COMPARED
from app.console.results.table import TELLS, tell
from app.events.cleanup.results import LogSwitchResult
from app.replication.audits.models import NotCompared
from app.replication.rows import SessionOutcome
from app.verbs.table import CARRIERS, VERBS


def job(of: str, result: dict[str, Any], /, **params: Any) -> dict[str, Any]:
    return {"kind": of, "params": params, "result": result}


def test_every_verb_has_sentences() -> None:
    models = {verb.result.__name__ for verb in VERBS} | {model.__name__ for model in CARRIERS["BATCH"].result}
    assert set(TELLS) == models


def test_every_outcome_has_words() -> None:
    assert set(ENDED) == set(SessionOutcome)
    assert set(NOT_COMPARED) == set(NotCompared)
    described = LogSwitchResult.model_fields["outcome"].description or ""
    assert set(SWITCHED) == {
        word for word in described.replace(",", " ").replace(".", " ").split() if "_" in word
    } | {
        "STARTED",
        "FINISHED",
    }


PAIR = {"origin": 1, "seqno": 140, "receiver": 3, "confirmed_seqno": 113, "behind": 27, "why": "BEHIND"}
FEED = {"origin": 1, "seqno": 90, "newest_seqno": 90, "at": None, "rows_copied": 60, "syncs": 0, "records": 0}
SYNC = {"origin": 1, "seqno": None, "last_seqno": 63, "last_age": "PT2S", "interval": "PT10M"}
WAIT = {"awaited": [{"origin": 1, "seqno": 140, "known_by": 1}], "pairs": 2, "outstanding_total": 1}


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        (
            job("EVENT_SYNC", SYNC | {"outcome": "MADE", "seqno": 64}),
            ["Node 1 has made SYNC 64.", "One is due where"],
        ),
        (job("EVENT_SYNC", SYNC | {"outcome": "NOT_DUE"}), ["No SYNC was due: 63 of node 1 was 2 s old."]),
        (
            job("EVENT_SYNC", SYNC | {"outcome": "NOT_DUE", "has_own_slon": False}),
            ["No SYNC was due", "One is due", "The node's own slon is not connected"],
        ),
        (
            job("EVENT_WAIT", WAIT | {"is_satisfied": True}),
            ["All 2 pairs of origin and receiver have confirmed event"],
        ),
        (
            job("EVENT_WAIT", WAIT | {"is_satisfied": False, "outstanding": [PAIR]}),
            ["1 of 2 pairs", "Node 3 is 27 events behind of node 1 (behind)."],
        ),
        (
            job("SLONY_FEED", FEED | {"copied": True, "scripts": 0}),
            [
                "A first copy was made: 60 records.",
                "Applied: 0 records of 0 SYNCs of node 1.",
                "It stands at SYNC 90,",
            ],
        ),
        (
            job("LOG_SWITCH", {"outcome": "TIMED_OUT", "active": "sl_log_2", "emptied": None}),
            ["The switch could not be finished in time: sl_log_2 is written."],
        ),
        (
            job(
                "PURGE", {"removed": {"entries": 0}, "held_by": ["agr_1"], "rows_left": 4}, kind="TOMBSTONES"
            ),
            ["No tombstones went.", "Left: 4 tombstones.", "Held back by agr_1."],
        ),
        (
            job("PURGE", {"removed": {"data": 9, "gap": 0}, "counts": "AT_LEAST"}, kind="CHANNELS"),
            ["At least 9 rows went: 9 of data."],
        ),
        (
            job("ERASURE", {"erased": {"entries": 0}, "remaining_by_cause": {"vlsn_index": ["a.jdb"]}}),
            ["Erased: 0 entries.", "Left: 1 file (a.jdb): replication of the environment"],
        ),
        (
            job("BATCH", {"stores": {"a": {"state": "SUCCEEDED"}, "b": {"state": "REFUSED"}}}),
            ["2 stores: 1 succeeded, 1 refused."],
        ),
    ],
)
def test_result_is_told(of: dict[str, Any], wanted: list[str]) -> None:
    told = tell(of)
    for text in wanted:
        assert any(text in each for each in told), (text, told)


@pytest.mark.parametrize(
    "of",
    [
        job("PURGE", {}),
        job("PURGE", {"x": 1}, kind="NEW"),
        job("OTHER", {"x": 1}),
        job("REPLICA_EXPORT", {"x": 1}),
    ],
)
def test_result_that_is_not_known_here_is_told_in_no_words(of: dict[str, Any]) -> None:
    assert tell(of) == []
