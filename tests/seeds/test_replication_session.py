"""The document "replication session and changelog", as far as the decision core and the skip rules go.

Sending, locking and the consumer's side are proved where they are built. "Ours" marks where the document is
silent or contradicts itself, and the decision table (facts) says how it is made safe.
"""

from __future__ import annotations

import pytest

from spark.replication.supplier.decide import (
    Anchor,
    Consumer,
    Decision,
    Outcome,
    Previous,
    Reason,
    Strategy,
    Supplier,
    Window,
    decide,
)
from spark.replication.supplier.skip import SkipRules, Verdict
from tests.oracles.changelog_export import read_export
from tests.oracles.decision_notation import at, classic, vector, window
from tests.oracles.replication_recordings import is_read

NOTHING = Decision(Outcome.UP_TO_DATE)


def after(time: int, rid: int) -> Anchor:
    """The table's `>time.rid`."""
    return Anchor(at(time, rid), inclusive=False)


def from_(time: int, rid: int) -> Anchor:
    """The table's `>=time.rid`."""
    return Anchor(at(time, rid), inclusive=True)


def both(**vectors: dict[int, int]) -> tuple[Decision, Decision]:
    """The answers of both strategies."""
    return classic(**vectors), window(**vectors)


def test_changelog_is_ordered_by_csns() -> None:
    """The document: "The channeglog is ordered by csns and the replication protocol guarantees that for a
    specific replica ID only chnages newer than th ecsn in the localRUV will be received"
    """
    csns = read_export("s1-changelog-full.ldif.gz").csns
    assert csns == sorted(csns)
    assert len(set(csns)) == len(csns)


def test_one_log_holds_all_replicas_in_one_order() -> None:
    """The document: "the chnagelog contains all csns for all RID in one sorted order" """
    rids = [csn.rid for csn in read_export("s1-changelog-full.ldif.gz").csns]
    assert set(rids) == {1, 2, 3, 4}
    assert rids != sorted(rids)


@pytest.mark.parametrize("c", [{1: 50, 2: 60}, {1: 55, 2: 60}, {1: 55, 2: 65}])
def test_consumer_that_has_all_is_sent_nothing(c: dict[int, int]) -> None:
    """The document: "1] for each RID the consumerCSN(rid) >= supplierCSN(rid) ==> nothing to send" """
    assert both(s={1: 50, 2: 60}, c=c) == (NOTHING, NOTHING)


def test_consumer_that_is_behind_in_one_replica_is_sent_changes() -> None:
    """The document: "2] there exists one (ore more) RID, where consumerCSN(rid) < supplierCSN(rid) ==>
    changes have to be sent"
    """
    by_anchor, by_window = both(s={1: 50, 2: 60}, c={1: 40, 2: 60})
    assert by_anchor.anchor == after(40, 1)
    assert by_window.windows == {1: Window(at(40, 1), at(50, 1))}


def test_replica_that_the_supplier_does_not_know_is_no_reason_to_send() -> None:
    """The document: "If the supplier doesn't konw the RID it has no changes in its changelog for this RID
    and nothing to send."
    """
    assert both(s={1: 50}, c={1: 50, 2: 70}) == (NOTHING, NOTHING)


def test_replica_that_the_supplier_does_not_know_moves_no_starting_point() -> None:
    """The document: "The RID has to be ignored in calculating the starting point." """
    by_anchor, by_window = both(s={1: 50}, c={1: 40, 2: 5})
    assert by_anchor.anchor == after(40, 1)
    assert list(by_window.windows) == [1]


def test_replica_that_the_consumer_does_not_know_starts_at_its_first_change() -> None:
    """The document: "The supplier has changes for this RID, changes have to be sent. The potential starting
    point for this RID is the smallest csn(RID) contained in the chnagelog."
    """
    by_anchor, by_window = both(s={1: 50, 3: 30}, c={1: 50}, m={3: 10})
    assert by_anchor.anchor == from_(10, 3)
    assert by_window.windows == {3: Window(None, at(30, 3))}


def test_smallest_csn_left_is_no_starting_point_where_older_ones_were_purged() -> None:
    """Ours (K3): "the smallest csn(RID) contained in the chnagelog" would silently drop what was trimmed."""
    decision = window(s={1: 50, 3: 30}, c={1: 50}, m={3: 10}, purged={3: 12})
    assert (decision.outcome, decision.reason) == (Outcome.NEEDS_TOTAL, Reason.PURGED)
    assert (decision.blocked_rids, decision.windows) == ((3,), {})


def test_consumers_own_replica_is_sent_back_after_a_restore() -> None:
    """The document: "if the consumer has been restored from an older backup the latest csn for its own RID
    might be older than changes available on other servers." Ours (K5): its RID is a RID like any other.
    """
    by_anchor, by_window = both(s={1: 50, 9: 60}, c={1: 50, 9: 40})
    assert by_anchor.anchor == after(40, 9)
    assert by_window.windows == {9: Window(at(40, 9), at(60, 9))}


def test_consumers_own_replica_normally_needs_nothing() -> None:
    """The document: "Normally a supplier has the latest changes applied to itself, so there would be no need
    to check and send updates for its RID."
    """
    assert both(s={1: 50, 9: 40}, c={1: 50, 9: 45}) == (NOTHING, NOTHING)


@pytest.mark.parametrize(
    ("first_of_3", "anchor"), [(10, from_(10, 3)), (19, from_(19, 3)), (20, after(20, 2)), (25, after(20, 2))]
)
def test_older_of_both_anchors_is_taken(first_of_3: int, anchor: Anchor) -> None:
    """The document: "anchor1 = min(csnMax) anchor2 = min(csnMin) if anchor2 < anchor1 anchorCSN = anchor2
    else anchorCSN = NEXT(anchor1) # anchor1 is already known by the consumed"
    """
    decision = classic(s={1: 50, 2: 60, 3: 30}, c={1: 50, 2: 20, 4: 99}, m={3: first_of_3})
    assert decision.anchor == anchor


def test_anchor_is_the_least_of_all_that_are_behind() -> None:
    """The document: "csnMax := {consumerCSN(i): consumerCSN(i) < supplierCSN(i)}" """
    assert classic(s={1: 50, 2: 60, 5: 70}, c={1: 40, 2: 20, 5: 70}).anchor == after(20, 2)


def test_minimum_over_nothing_is_the_end() -> None:
    """Ours (K1): the document takes "min(csnMax)" and "min(csnMin)" also where these are empty."""
    assert classic(s={1: 50, 3: 30}, c={1: 50}, m={3: 10}).anchor == from_(10, 3)
    assert classic(s={1: 50}, c={1: 40}).anchor == after(40, 1)
    assert classic(s={1: 50}, c={1: 50}) == NOTHING


def test_csn_of_the_ruv_copy_stops_the_sending() -> None:
    """The document: "Therfore the current maxCSN in the localRUV is used to stop sending updates for this
    RID."
    """
    rules = SkipRules(snapshot=vector({1: 50, 2: 60}), seen=vector({1: 40, 2: 40}))
    verdicts = [rules.judge(csn) for csn in (at(45, 1), at(55, 1), at(56, 1), at(57, 2))]
    assert verdicts == [Verdict.SENT, Verdict.BEYOND_SNAPSHOT, Verdict.BEYOND_SNAPSHOT, Verdict.SENT]


def test_changes_that_came_while_the_buffer_was_loaded_wait_for_the_next() -> None:
    """The document: "While calculating the anchorcsn, storing the localRUV and positioning at the anchorcsn
    new changes can have been inserted into the cangelog." Ours: the snapshot comes first, so they are beyond
    it.
    """
    changelog = [at(15, 1), at(25, 2), at(30, 1)]  # 15.1 and 30.1 came after the snapshot {1:10, 2:25}
    first = classic(s={1: 10, 2: 25}, c={1: 10, 2: 20})
    assert first.anchor == after(20, 2)
    rules = SkipRules(snapshot=vector({1: 10, 2: 25}), seen=vector({1: 10, 2: 20}))
    sent = [csn for csn in changelog if is_read(csn, after(20, 2)) and rules.judge(csn) is Verdict.SENT]
    assert sent == [at(25, 2)]
    following = classic(s={1: 30, 2: 25}, c={1: 10, 2: 25}, p={1: 10, 2: 25}, buffer=at(30, 1))
    assert following.anchor == after(10, 1)


@pytest.mark.parametrize(
    ("time", "verdict"), [(18, Verdict.COVERED), (20, Verdict.COVERED), (21, Verdict.SENT)]
)
def test_change_that_the_consumer_has_is_skipped(time: int, verdict: Verdict) -> None:
    """The document: "Skip changes for csn with csn(i) <= consumerRUV(i)" """
    rules = SkipRules(snapshot=vector({1: 50}), seen=vector({1: 20}))
    assert rules.judge(at(time, 1)) is verdict


def test_change_of_a_replica_that_appeared_while_loading_is_not_sent() -> None:
    """The document: "the clcache could contain chnages for RIDs which weren not yet present in the initial
    phase of buffer loading. Do not sen these changes"
    """
    rules = SkipRules(snapshot=vector({1: 50}), seen=vector({1: 20}))
    assert rules.judge(at(10, 7)) is Verdict.NEW_RID
    assert rules.judge(at(30, 1)) is Verdict.SENT
    assert rules.seen == vector({1: 30})


def test_changes_that_were_sent_move_the_consumers_vector() -> None:
    """The document: "the current consumer state is determined by the original consumerRUV and the changes
    sent to the consumer, an updated coonsumerRUV can be maintained."
    """
    rules = SkipRules(snapshot=vector({1: 50, 3: 30}), seen=vector({1: 20}))
    for csn in (at(10, 3), at(30, 1), at(30, 3), at(50, 1)):
        assert rules.judge(csn) is Verdict.SENT
    assert rules.seen == vector({1: 50, 3: 30})
    assert window(s={1: 50, 3: 30}, c={1: 50, 3: 30}) == NOTHING


def test_change_that_was_sent_is_not_sent_again() -> None:
    """The document: "processes the local replication changelog, determins which updates to send" once."""
    rules = SkipRules(snapshot=vector({1: 50}), seen={})
    assert [rules.judge(at(10, 1)) for _ in range(2)] == [Verdict.SENT, Verdict.COVERED]


def test_initial_calculation_alone_would_go_round_for_ever() -> None:
    """The document: "QUESTION: wouldn't it be easier just to do the inital calculation again based on the
    new localRUV and updated consumerRUV" -- with a buffer full of covered records the anchor stays (K2,
    B11).
    """
    s, c = {1: 19, 2: 30}, {1: 19, 2: 5}
    buffer = [at(time, 1) for time in range(6, 10)]
    rules = SkipRules(snapshot=vector(s), seen=vector(c))
    assert {rules.judge(csn) for csn in buffer} == {Verdict.COVERED}
    again = decide(Supplier(vector(s)), Consumer(rules.seen), strategy=Strategy.CLASSIC)
    assert again.anchor == after(5, 2)
    previous = Previous(vector(s), buffer[-1])
    going_on = decide(Supplier(vector(s)), Consumer(rules.seen), strategy=Strategy.CLASSIC, previous=previous)
    assert going_on.anchor == after(9, 1)


def later(*, p: int | None, s: int, c: int | None, m: int | None = None) -> Anchor | None:
    """csnStart of replica 3 at a later load whose csnBuffer is 70.8."""
    known = {name: {} if value is None else {3: value} for name, value in (("p", p), ("c", c), ("m", m))}
    return classic(s={3: s}, buffer=at(70, 8), **known).anchor


BUFFER = after(70, 8)


@pytest.mark.parametrize("c", [70, 75])
def test_replica_that_needs_nothing_is_left_out_first(c: int) -> None:
    """The document: "For each replica X : if csnConsumer(X) >= csnMaxSup(X) continue" """
    assert later(p=60, s=70, c=c) is None


def test_replica_that_the_consumer_never_saw_starts_at_the_minimum() -> None:
    """The document: "else if csnConsumer(X) == NULL csnStart(X) = csnMinSup(X), add csnStart(X) to
    startCSNs"
    """
    assert later(p=None, s=30, c=None, m=10) == from_(10, 3)


def test_case_1_without_new_changes_goes_on_from_the_buffer() -> None:
    """The document: "1] csnPrevMaxSup(X) == csnMaxSup(X) ==> no new changes for X [...] ==> csnStart(X) =
    csnBuffer"
    """
    assert later(p=90, s=90, c=40) == BUFFER


@pytest.mark.parametrize("p", [71, 80])
def test_case_2_with_the_former_end_ahead_goes_on_from_the_buffer(p: int) -> None:
    """The document: "2] csnPrevMax(SupX) >= csnBuffer ==> we have not yet reached previous max csn for X
    [...] ==> csnStart(X) = csnBuffer"
    """
    assert later(p=p, s=90, c=65) == BUFFER


def test_case_31_of_a_new_replica_that_the_consumer_does_not_know_starts_at_its_minimum() -> None:
    """The document: "3.1] csnPrevMaxSup(X) == NULL [...] ==> if csnConsumer(X) == NULL csnStart(X) =
    csnMinSup(X)"
    """
    assert later(p=None, s=30, c=None, m=10) == from_(10, 3)


def test_case_31_of_a_new_replica_that_the_consumer_knows_starts_after_its_csn() -> None:
    """The document: "else if csnMaxSup(X) > csnConsumer(X) csnStart(X) = csnConsumer(X)" """
    assert later(p=None, s=30, c=20) == after(20, 3)


def test_case_31_of_a_new_replica_that_the_consumer_leads_is_ignored() -> None:
    """The document: "else ignore X (csnStart(X) = csnBuffer" """
    assert later(p=None, s=30, c=35) is None


def test_case_32_of_changes_behind_the_buffer_goes_back_to_the_consumers_csn() -> None:
    """The document: "3.2] csnPrevMaxSup(X) > 0 (and < csnBuffer) [...] ==> csnStart(X) = csnConsumer(X)" """
    assert later(p=50, s=55, c=50) == after(50, 3)


def test_case_32_asks_whether_anything_is_needed() -> None:
    """Ours (K9): "there could be the case that X was ignored because csnConsumer(X) > csnPrevMaxSup()":
    reading again from there would be for nothing.
    """
    assert later(p=50, s=55, c=60) is None


def test_next_anchor_is_the_least_start_of_all() -> None:
    """The document: "csnAnchor = min ({startCSNS(X)}" """
    p, s, c = {3: 50, 8: 90}, {3: 55, 8: 95}, {3: 50, 8: 70}
    assert classic(s=s, c=c, p=p, buffer=at(70, 8)).anchor == after(50, 3)


def test_tie_of_starts_reads_the_record_itself() -> None:
    """Ours (K8): "csnStart(X) = csnMinSup(X)" and "csnStart(X) = csnBuffer" may be one CSN; it was not sent
    yet.
    """
    decision = classic(s={3: 70, 8: 95}, c={8: 60}, m={3: 70}, p={8: 95}, buffer=at(70, 3))
    assert decision.anchor == from_(70, 3)


def test_end_comes_when_nobody_needs_anything() -> None:
    """Ours (K10): the document names no end; "the end of the changelog is reached" is one of the log, not of
    the session.
    """
    assert classic(s={3: 70, 8: 95}, c={3: 70, 8: 95}, p={3: 70, 8: 95}, buffer=at(95, 8)) == NOTHING
