"""The decision core against the decision table: every vector, every case of a later load, any input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.formats.csn import Csn
from spark.replication.supplier.decide import (
    Anchor,
    Consumer,
    Decision,
    Outcome,
    Previous,
    Reason,
    Strategy,
    Supplier,
    Vector,
    Window,
    decide,
)
from tests.oracles.changelog_export import DATA
from tests.oracles.decision_notation import at, classic, vector

VECTORS = json.loads((DATA / "decision-vectors.json").read_text())


def _csns(vectors: dict[str, str]) -> Vector:
    return {int(rid): Csn(text) for rid, text in vectors.items()}


def _decide(case: dict[str, Any], strategy: Strategy) -> Decision:
    supplier = Supplier(_csns(case["supplier"]), _csns(case["supplier_min"]), _csns(case["purged"]), "one")
    ruv = None if case["consumer"] is None else _csns(case["consumer"])
    consumer = Consumer(ruv, "one" if case["same_generation"] else "another")
    return decide(supplier, consumer, strategy=strategy)


def _windows(expected: dict[str, list[str | None]]) -> dict[int, Window]:
    return {
        int(rid): Window(None if after is None else Csn(after), Csn(str(upto)))
        for rid, (after, upto) in expected.items()
    }


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("case", VECTORS, ids=[case["id"] for case in VECTORS])
def test_vector_of_the_table_is_decided_as_it_says(case: dict[str, Any], strategy: Strategy) -> None:
    decision, expected = _decide(case, strategy), case["expect"]
    reason = expected["reason"]
    assert decision.outcome == expected["outcome"].upper()
    assert decision.reason == (reason.upper() if reason else None)
    assert decision.need == tuple(expected.get("need", ()))
    assert decision.blocked_rids == tuple(expected.get("blocked_rids", ()))
    assert decision.windows == _windows(expected.get("windows", {}))
    anchor = expected.get("seed_anchor") if strategy is Strategy.CLASSIC else None
    assert decision.anchor == (anchor and Anchor(Csn(anchor["csn"]), anchor["inclusive"]))


def later(*, p: int | None, s: int, c: int | None, m: int | None = None, rid: int = 3) -> Decision:
    """One replica at a later load, in the table's letters; B is 70 of another replica."""
    return classic(
        s={rid: s},
        c={} if c is None else {rid: c},
        m={} if m is None else {rid: m},
        p={} if p is None else {rid: p},
        buffer=at(70, 8),
    )


BUFFER = Anchor(at(70, 8), inclusive=False)


@pytest.mark.parametrize(
    ("case", "decision", "anchor"),
    [
        ("B1", later(p=50, s=50, c=40), BUFFER),
        ("B2", later(p=80, s=90, c=65), BUFFER),
        ("B2e", later(p=70, s=75, c=70, rid=8), BUFFER),
        ("B2e to the letter", later(p=70, s=75, c=65, rid=8), BUFFER),
        ("B3", later(p=None, s=30, m=10, c=None), Anchor(at(10, 3), inclusive=True)),
        ("B4", later(p=None, s=30, c=20), Anchor(at(20, 3), inclusive=False)),
        ("B5", later(p=None, s=30, c=35), None),
        ("B6", later(p=50, s=55, c=50), Anchor(at(50, 3), inclusive=False)),
        ("B7", later(p=50, s=55, c=60), None),
        ("B8", later(p=50, s=55, c=None, m=5), Anchor(at(5, 3), inclusive=True)),
        ("B9", later(p=50, s=50, c=50), None),
    ],
)
def test_case_of_a_later_load_is_decided_as_the_table_says(
    case: str, decision: Decision, anchor: Anchor | None
) -> None:
    assert decision.anchor == anchor
    assert decision.outcome == (Outcome.UP_TO_DATE if anchor is None else Outcome.SEND)


def test_anchor_may_go_back_behind_the_first_one() -> None:
    # B10: a new replica with old changes; the real server ends the session instead (issue 4492).
    supplier = Supplier(vector({1: 90, 2: 5}), vector({1: 1, 2: 5}))
    consumer = Consumer(vector({1: 70}))
    previous = Previous(vector({1: 90}), at(70, 1))
    decision = decide(supplier, consumer, strategy=Strategy.CLASSIC, previous=previous)
    assert decision.anchor == Anchor(at(5, 2), inclusive=True)


def test_tie_of_two_anchors_prefers_the_inclusive_one() -> None:
    # K8: the first change of a new replica is the last record of the buffer.
    supplier = Supplier(vector({1: 90, 2: 70}), vector({1: 1, 2: 70}))
    previous = Previous(vector({1: 90}), at(70, 2))
    decision = decide(supplier, Consumer(vector({1: 60})), strategy=Strategy.CLASSIC, previous=previous)
    assert decision.anchor == Anchor(at(70, 2), inclusive=True)


def test_unknown_first_change_starts_at_the_beginning_of_the_changelog() -> None:
    decision = decide(Supplier(vector({1: 50, 3: 30})), Consumer(vector({1: 40})), strategy=Strategy.CLASSIC)
    assert decision.anchor == Anchor(None, inclusive=True)
    assert decision.windows[3] == Window(None, at(30, 3))


@pytest.mark.parametrize("given", [("a", None), (None, "a"), ("a", "b"), ("a", "A")])
def test_generation_that_only_one_side_has_is_another(given: tuple[str | None, str | None]) -> None:
    same = vector({1: 50})
    for strategy in Strategy:
        decision = decide(Supplier(same, generation=given[0]), Consumer(same, given[1]), strategy=strategy)
        assert decision == Decision(Outcome.NEEDS_TOTAL, reason=Reason.GENERATION_MISMATCH)


def test_consumer_without_a_ruv_is_told_so_whatever_its_generation() -> None:
    decision = decide(
        Supplier(vector({1: 50}), generation="a"), Consumer(None, "b"), strategy=Strategy.WINDOW
    )
    assert decision == Decision(Outcome.NEEDS_TOTAL, reason=Reason.NO_RUV)


def test_consumer_with_an_empty_ruv_is_sent_everything() -> None:
    decision = decide(Supplier(vector({1: 50, 2: 60})), Consumer({}), strategy=Strategy.WINDOW)
    assert decision.windows == {1: Window(None, at(50, 1)), 2: Window(None, at(60, 2))}


def test_supplier_without_changes_has_nothing_to_send() -> None:
    for strategy in Strategy:
        decision = decide(Supplier({}), Consumer(vector({1: 5})), strategy=strategy)
        assert decision == Decision(Outcome.UP_TO_DATE)


VECTOR_ANY = st.dictionaries(st.integers(1, 5), st.integers(0, 6), max_size=5).map(vector)
GENERATIONS = st.sampled_from([None, "a", "b"])


@given(
    st.builds(Supplier, VECTOR_ANY, VECTOR_ANY, VECTOR_ANY, GENERATIONS),
    st.builds(Consumer, st.none() | VECTOR_ANY, GENERATIONS),
    st.none() | st.builds(Previous, VECTOR_ANY, st.builds(at, st.integers(0, 7), st.integers(1, 6))),
)
@settings(max_examples=500)
def test_any_vectors_have_an_answer_that_holds_together(
    supplier: Supplier, consumer: Consumer, previous: Previous | None
) -> None:
    window = decide(supplier, consumer, strategy=Strategy.WINDOW, previous=previous)
    classic = decide(supplier, consumer, strategy=Strategy.CLASSIC, previous=previous)
    assert window == decide(supplier, consumer, strategy=Strategy.WINDOW)  # previous is CLASSIC's alone
    assert window.anchor is None
    for name in ("outcome", "need", "blocked_rids", "reason", "windows"):
        assert getattr(window, name) == getattr(classic, name)
    assert (classic.anchor is not None) == bool(classic.need)
    assert set(window.blocked_rids) <= set(window.need)
    assert (window.outcome is Outcome.NEEDS_TOTAL) == (window.reason is not None)
    assert tuple(sorted(window.windows)) == (window.need if window.outcome is Outcome.SEND else ())


@given(st.builds(Supplier, VECTOR_ANY, VECTOR_ANY), VECTOR_ANY)
def test_consumer_that_got_its_windows_is_up_to_date(supplier: Supplier, seen: Vector) -> None:
    first = decide(supplier, Consumer(seen), strategy=Strategy.WINDOW)
    after = {**seen, **{rid: window.upto for rid, window in first.windows.items()}}
    assert decide(supplier, Consumer(after), strategy=Strategy.WINDOW) == Decision(Outcome.UP_TO_DATE)
