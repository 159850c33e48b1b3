"""What real servers decided and sent, reproduced: 558 anchors and 131 sessions."""

from __future__ import annotations

from functools import cache

import pytest

from spark.formats.csn import Csn
from spark.replication.supplier.decide import Consumer, Outcome, Reason, Strategy, Supplier, decide
from tests.oracles.changelog_export import read_export
from tests.oracles.replication_recordings import (
    DECISIONS,
    RESTORED_SESSION,
    SESSIONS,
    consumer_vector,
    decide_recorded,
    every_csn,
    sent_by_classic,
    sent_by_window,
    vector,
)

changelog = cache(every_csn)


def test_every_recorded_anchor_is_what_classic_takes() -> None:
    wrong = []
    for number, load in enumerate(DECISIONS):
        anchor = decide_recorded(load, is_later=load["kind"] == "adjust")
        if load["anchor"] != (anchor and anchor.csn):
            wrong.append((number, load["anchor"], anchor))
    assert wrong == []
    assert len(DECISIONS) == 558


def test_anchor_of_a_replica_that_the_consumer_did_not_know_is_inclusive() -> None:
    unknown = [load for load in DECISIONS if any(each["consumer_max"] is None for each in load["rids"])]
    anchors = [decide_recorded(load, is_later=False) for load in unknown]
    assert [(anchor.csn, anchor.inclusive) for anchor in anchors if anchor] == [
        ("6afffea6000100040000", True)
    ]


def test_decisions_that_end_a_session_are_those_in_which_nothing_is_needed() -> None:
    # Taken literally (cases before `c >= s`), the document goes on from B here for ever.
    ended = [load for load in DECISIONS if load["kind"] == "adjust" and load["anchor"] is None]
    assert len(ended) == 72
    assert [decide_recorded(load, is_later=True) for load in ended] == [None] * 72


@pytest.mark.parametrize("number", [n for n in range(len(SESSIONS)) if n != RESTORED_SESSION])
def test_recorded_session_sends_the_same_changes(number: int) -> None:
    session = SESSIONS[number]
    assert sent_by_classic(session, changelog()) == session["sent"]
    by_window = sent_by_window(session, changelog())
    assert sorted(by_window) == sorted(session["sent"])
    assert len(set(by_window)) == len(by_window)


def test_hole_of_a_restored_supplier_cannot_be_seen_in_ruvs() -> None:
    # D15, K6. Session 74 had given s4 thirteen changes of RID 1; then s1 was restored from an older backup
    # and wrote anew. Its RUV covers them, its changelog has them no more: s2 never got them, all was green.
    session = SESSIONS[RESTORED_SESSION]
    lost = set(sent_by_window(session, changelog())) - {Csn(text) for text in session["sent"]}
    assert len(lost) == 13
    assert lost <= {Csn(text) for text in SESSIONS[74]["sent"]}
    assert lost == set(sent_by_classic(session, changelog())) - set(session["sent"])
    as_it_was = [csn for csn in changelog() if csn not in lost]
    assert sent_by_classic(session, as_it_was) == session["sent"]
    assert sorted(sent_by_window(session, as_it_was)) == sorted(session["sent"])


def _after_trimming(number: int) -> Reason | None:
    """The verdict on a session of s1 over the trimmed changelog."""
    load = SESSIONS[number]["loads"][0]
    purged = read_export("s1-changelog-trimmed.ldif").purged.maxima
    supplier = Supplier(vector(load, "max"), purged=purged)
    return decide(supplier, Consumer(vector(load, "consumer_max")), strategy=Strategy.WINDOW).reason


def test_sessions_whose_anchor_was_gone_need_a_total_update() -> None:
    missing = [
        number
        for number, session in enumerate(SESSIONS)
        if any(load.get("located") is False for load in session["loads"])
    ]
    assert len(missing) == 30
    assert all(SESSIONS[number]["sent"] == [] for number in missing)
    of_s1 = [number for number in missing if SESSIONS[number]["supplier"] == "s1"]
    assert len(of_s1) == 19  # the others are s2's, whose purge vector nobody exported
    assert {_after_trimming(number) for number in of_s1} == {Reason.PURGED}


def test_sessions_before_the_trimming_are_decided_alike_with_an_empty_purge_vector() -> None:
    purged = read_export("s1-changelog-full.ldif.gz").purged.maxima
    for session in SESSIONS[:45]:
        load = session["loads"][0]
        supplier = Supplier(vector(load, "max"), purged=purged)
        decision = decide(supplier, Consumer(consumer_vector(session)), strategy=Strategy.WINDOW)
        assert decision.outcome in (Outcome.SEND, Outcome.UP_TO_DATE)
