"""What is found at replicas: of recorded answers of real servers, and of what is changed in them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from spark.formats.csn import Csn
from spark.formats.ruv import Ruv, RuvElement
from spark.replication.ds389.judge import Sight, judge
from spark.replication.ds389.reading import ReplicaNotShown, ReplicaUnreadable, read_replica
from spark.replication.ds389.records import Generator, HealthFinding, Limits, Reading, Role, Severity
from spark.replication.ds389.topology import Places, edges_of, rid_lags
from tests.ds389_answers import DATA, Recorded, recorded
from tests.ds389_servers import SUFFIX

LIMITS = Limits(lag_warning_s=600, lag_critical_s=1800, clock_s=60)
Readings = dict[str, Reading]


@pytest.fixture
def healthy() -> tuple[Readings, Places]:
    return recorded("healthy")


def found_in(readings: Readings, places: Places, sight: Sight | None = None) -> list[HealthFinding]:
    limits = dict.fromkeys(readings, LIMITS)
    return judge(readings, edges_of(readings, places), limits, sight or Sight())


def codes(found: list[HealthFinding]) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.code, each.servers) for each in found]


def with_max(reading: Reading, rid: int, csn: Csn | None) -> Reading:
    """The same with another maximum of one replica; None: it is not known."""
    kept = [each for each in reading.ruv.elements if each.rid != rid]
    if csn is not None:
        kept.append(RuvElement(rid, "", csn, csn))
    return replace(reading, ruv=Ruv(reading.ruv.generation, tuple(kept)))


def aged(readings: Readings, seconds: float) -> Readings:
    """As if they had been read later."""
    later = timedelta(seconds=seconds)
    return {
        store: replace(one, at=one.at + later, clock=None if one.clock is None else one.clock + later)
        for store, one in readings.items()
    }


def test_a_healthy_ring_has_no_finding_and_every_agreement_has_its_consumer(
    healthy: tuple[Readings, Places],
) -> None:
    readings, places = healthy
    assert found_in(readings, places) == []
    assert [one.rid for one in readings.values()] == [1, 2, 3]
    assert {one.role for one in readings.values()} == {Role.SUPPLIER}
    pairs = {(each.supplier, each.consumer) for each in edges_of(readings, places)}
    assert pairs == {(a, b) for a in readings for b in readings if a != b}
    assert rid_lags(readings) == {"s1": [], "s2": [], "s3": []}
    assert all(abs(one.clock - one.at) < timedelta(seconds=2) for one in readings.values() if one.clock)
    assert all(one.clock is not None and one.generator is not None for one in readings.values())


def test_a_stopped_server_is_seen_by_the_agreements_that_lead_to_it() -> None:
    readings, places = recorded("stopped")
    found = found_in(readings, places, Sight(known_rids=frozenset({3}), answered=False))
    assert codes(found) == [("AGREEMENT_FAILED", ("s1", "s3")), ("AGREEMENT_FAILED", ("s2", "s3"))]
    assert all("LDAP" in each.detail for each in found)


def test_a_server_that_was_put_back_is_named_and_disabled_agreements_are(
    healthy: tuple[Readings, Places],
) -> None:
    readings, places = recorded("restored")
    found = found_in(readings, places)
    assert codes(found) == [
        ("AGREEMENT_MISSING", ("s3",)),
        ("SERVER_RESTORED", ("s3", "s1")),
        ("AGREEMENT_OFF", ("s1", "s3")),
        ("AGREEMENT_OFF", ("s2", "s3")),
    ]
    [restored] = [each for each in found if each.code == "SERVER_RESTORED"]
    assert (restored.severity, restored.rid) == (Severity.CRITICAL, 3)
    # Written anew before its own came back: the RUV says nothing any more, and so does the health.
    newest = max(one.ruv.maxima[3] for one in readings.values())
    after = Csn.of(newest.timestamp + 1, 0, 3)
    assert "SERVER_RESTORED" not in dict(
        codes(found_in({**readings, "s3": with_max(readings["s3"], 3, after)}, places))
    )


def test_a_rid_without_a_server_dangles_unless_a_server_could_not_tell(
    healthy: tuple[Readings, Places],
) -> None:
    readings, places = healthy
    left = {store: one for store, one in readings.items() if store != "s3"}
    there = {store: one for store, one in places.items() if store != "s3"}
    found = [each for each in found_in(left, there) if each.code == "RID_DANGLING"]
    assert [(each.rid, each.servers) for each in found] == [(3, ("s1", "s2"))]
    assert [each.code for each in found_in(left, there)].count("AGREEMENT_UNKNOWN") == 2
    for sight in (Sight(is_whole=False), Sight(known_rids=frozenset({3}))):
        assert "RID_DANGLING" not in dict(codes(found_in(left, there, sight)))


@pytest.mark.parametrize("ahead_s", [61, 3_600, 50_000])
def test_changes_of_the_future_name_the_server_that_made_them(
    healthy: tuple[Readings, Places], ahead_s: int
) -> None:
    readings, places = healthy
    future = Csn.of(int(readings["s2"].at.timestamp()) + ahead_s + 1, 0, 2)
    found = found_in({store: with_max(one, 2, future) for store, one in readings.items()}, places)
    assert codes(found) == [("CSN_AHEAD", ("s2",))]
    assert found[0].severity is (Severity.CRITICAL if ahead_s > 43_200 else Severity.WARNING)


def test_a_wrong_clock_and_an_offset_are_found(healthy: tuple[Readings, Places]) -> None:
    readings, places = healthy
    one = readings["s1"]
    assert one.clock is not None
    for apart in (-120, 120):
        wrong = {**readings, "s1": replace(one, clock=one.clock + timedelta(seconds=apart))}
        assert codes(found_in(wrong, places)) == [("SERVER_CLOCK_WRONG", ("s1",))]
    pulled = Generator(rid=1, sampled_s=1_795_636_307, local_offset_s=0, remote_offset_s=3_600)
    [found] = found_in({**readings, "s1": replace(one, generator=pulled)}, places)
    assert (found.code, found.servers) == ("CSN_OFFSET", ("s1",))
    # Seen at real servers: one whose own offset wears off takes it over again from those that follow it.
    assert "does not wear off" in found.advice


def test_lag_counts_from_what_is_there_unless_the_server_moves(healthy: tuple[Readings, Places]) -> None:
    readings, places = healthy
    behind = Csn.of(readings["s1"].ruv.maxima[2].timestamp - 1_000, 0, 2)
    lagging = {**readings, "s3": with_max(readings["s3"], 2, behind)}
    [lag] = rid_lags(lagging)["s3"]
    assert lag.at_most_s is not None
    assert (lag.rid, lag.consumer_csn) == (2, behind)
    assert 1_000 <= lag.at_most_s < 1_020
    [found] = found_in(lagging, places)
    assert (found.code, found.servers, found.rid, found.severity) == (
        "RID_LAGS",
        ("s3",),
        2,
        Severity.WARNING,
    )
    assert found_in(lagging, places, Sight(moving=frozenset({("s3", 2)}))) == []
    [found] = found_in(aged(lagging, 2_000), places)
    assert found.severity is Severity.CRITICAL
    # The newest change that is missing is old by itself: moving or not.
    [found] = found_in(aged(lagging, 2_000), places, Sight(moving=frozenset({("s3", 2)})))
    assert found.severity is Severity.CRITICAL


def test_lag_is_seen_where_changes_are_ahead_of_the_clock(healthy: tuple[Readings, Places]) -> None:
    """Nobody lagged before the clock was there: for half a day, behind a clock that was so far ahead."""
    readings, places = healthy
    newest = Csn.of(int(readings["s1"].at.timestamp()) + 40_000, 0, 2)
    ahead = {store: with_max(one, 2, newest) for store, one in readings.items()}
    behind = Csn.of(newest.timestamp - 2_000, 0, 2)
    lagging = {**ahead, "s3": with_max(ahead["s3"], 2, behind)}
    [lag] = rid_lags(lagging)["s3"]
    assert (lag.at_least_s, lag.at_most_s) == (0.0, 2_000.0)
    assert ("RID_LAGS", ("s3",)) in codes(found_in(lagging, places))
    # The first change of a clock that is wrong from now on makes nobody late.
    fresh = {**ahead, "s3": readings["s3"]}
    [lag] = rid_lags(fresh)["s3"]
    assert lag.at_most_s is not None
    assert lag.at_most_s < 60
    assert ("RID_LAGS", ("s3",)) not in codes(found_in(fresh, places))


def test_no_agreement_to_a_server_is_missing_even_where_it_gets_there_in_one_way(
    healthy: tuple[Readings, Places],
) -> None:
    readings, places = healthy
    line = {
        "s1": replace(readings["s1"], agreements=readings["s1"].agreements[:1]),
        "s2": replace(readings["s2"], agreements=readings["s2"].agreements[1:]),
        "s3": replace(readings["s3"], agreements=()),
    }
    found = found_in(line, places)
    assert codes(found) == [("AGREEMENT_MISSING", ("s1",)), ("AGREEMENT_MISSING", ("s2",))]
    assert found_in(line, places, Sight(answered=False)) == []


def test_generations_and_rids_that_are_two(healthy: tuple[Readings, Places]) -> None:
    readings, places = healthy
    other = Ruv(Csn.of(1, 0, 3), readings["s3"].ruv.elements)
    assert codes(found_in({**readings, "s3": replace(readings["s3"], ruv=other)}, places)) == [
        ("GENERATIONS_DIFFER", ("s3",))
    ]
    twice = {**readings, "s3": replace(readings["s3"], rid=1)}
    assert ("RID_TWICE", ("s1", "s3")) in codes(found_in(twice, places, Sight(is_whole=False)))


def test_a_transient_warning_of_a_consumer_that_lacks_something_is_a_trimmed_changelog(
    healthy: tuple[Readings, Places],
) -> None:
    # [run p6]: 389 tells a missing anchor as Error (18), amber, for ever.
    readings, places = healthy
    one = readings["s1"]
    agreements = tuple(
        replace(each, state="amber", repl_rc=18, status="Error (18) transient") for each in one.agreements
    )
    stuck = {**readings, "s1": replace(one, agreements=agreements)}
    assert {code for code, _ in codes(found_in(stuck, places))} == {"AGREEMENT_WAITS"}
    behind = Csn.of(one.ruv.maxima[1].timestamp - 60, 0, 1)
    found = found_in({**stuck, "s2": with_max(stuck["s2"], 1, behind)}, places)
    assert codes(found)[0] == ("CHANGELOG_TRIMMED", ("s1", "s2"))


def test_a_busy_consumer_is_no_finding_and_a_failed_total_update_is(healthy: tuple[Readings, Places]) -> None:
    readings, places = healthy
    one = readings["s1"]
    assert {each.repl_rc for each in one.agreements} == {0, 1}, "the recording has a busy one"
    failed = replace(one.agreements[0], init_state="red", init_status="Error (-1)")
    agreements = (failed, *one.agreements[1:])
    found = found_in({**readings, "s1": replace(one, agreements=agreements)}, places)
    assert codes(found) == [("INIT_FAILED", ("s1", "s2"))]


def test_what_cannot_be_read_is_refused() -> None:
    class Empty(Recorded):
        def __init__(self, ruv: list[bytes] | None) -> None:
            self.ruv = ruv

        def search(self, base: str, condition: str, attributes: object, *, is_base: bool = False):  # type: ignore[no-untyped-def, override]
            if self.ruv is None or "nsds5replica)" not in condition:
                return []
            return [("cn=replica", {"nsds5replicaid": [b"1"], "nsds50ruv": self.ruv})]

    clock = recorded("healthy")[0]["s1"].at
    with pytest.raises(ReplicaNotShown):
        read_replica(Empty(None), SUFFIX, now=lambda: clock)
    with pytest.raises(ReplicaUnreadable):
        read_replica(Empty([b"{replica 1} what"]), SUFFIX, now=lambda: clock)
    told = read_replica(Empty([]), SUFFIX, now=lambda: clock)
    assert (told.ruv.generation, told.clock, told.agreements) == (None, None, ())


def test_the_password_of_an_agreement_is_never_asked_for() -> None:
    asked: list[str] = []

    class Listening(Recorded):
        def search(self, base, condition, attributes, *, is_base=False):  # type: ignore[no-untyped-def]
            asked.extend(attributes)
            return super().search(base, condition, attributes, is_base=is_base)

    kept = json.loads(gzip.decompress(DATA.read_bytes()))["healthy"]["s1"]["answers"]
    read_replica(Listening(kept), SUFFIX, now=lambda: recorded("healthy")[0]["s1"].at)
    assert asked
    assert "*" not in asked
    assert not [name for name in asked if "credential" in name.lower() or "password" in name.lower()]
    assert b"AES-" not in gzip.decompress(DATA.read_bytes())
