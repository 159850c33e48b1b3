"""Clocks that are too far ahead are not followed, and a generator that was led astray comes back.

One acquire with a clock a day ahead left the consumer's CSNs a day ahead for ever: the offset that a peer
leaves in the generator never ends, every change made there carried it on, and `recover` took it from a claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.replication.csn_generator import next_csn
from spark.replication.errors import ReplicaNotOnline
from spark.replication.records import SessionMode
from spark.replication.replica.clock_repair import repair_clock
from spark.replication.replica.replica import mark_restored, snapshot
from spark.replication.session_errors import ClockSkewed, ConsumerAhead, DiscardNotGranted, SessionEnded
from tests.spark.replication.consumer_side import (
    OWN_RID,
    SESSION,
    ConsumerSide,
    change,
    consumer_side,
    target_of,
)
from tests.spark.replication.replica_tables import NOW_S, csn

BOUND_S = 300
DAY_S = 86_400


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsumerSide]:
    """A consumer that has nothing yet, of the supplier's generation."""
    with consumer_side(target_of(request, request.param, tmp_path)) as side:
        yield side


def _next(consumer: ConsumerSide) -> Csn:
    return next_csn(snapshot(consumer.conn).generator, now_s=consumer.now_s)[0]


@pytest.mark.parametrize("mode", list(SessionMode))
@pytest.mark.parametrize(
    "shown",
    [
        pytest.param({"csn_now": Csn.of(NOW_S + BOUND_S + 1, 0, 1)}, id="clock"),
        pytest.param({"csn_now": Csn.of(NOW_S + DAY_S, 0, 1)}, id="clock-a-day"),
        pytest.param({"ruv": {1: Csn.of(NOW_S + BOUND_S + 1, 0, 1)}}, id="its-own-element"),
        pytest.param({"ruv": {3: Csn.of(NOW_S + BOUND_S + 1, 0, 3)}}, id="a-third-one's-element"),
        pytest.param(
            {"ruv": {OWN_RID: Csn.of(NOW_S + BOUND_S + 1, 0, OWN_RID)}}, id="the-consumer's-own-element"
        ),
    ],
)
def test_a_supplier_ahead_of_the_bound_is_refused_and_not_followed(
    consumer: ConsumerSide, mode: SessionMode, shown: dict[str, object]
) -> None:
    with consumer.unchanged(), pytest.raises(ClockSkewed) as refused:
        consumer.acquire(mode=mode, **shown)  # type: ignore[arg-type]
    assert refused.value.facts["ahead_max_s"] == BOUND_S
    assert _next(consumer).timestamp == NOW_S


def test_a_supplier_within_the_bound_is_followed(consumer: ConsumerSide) -> None:
    shown = Csn.of(NOW_S + BOUND_S, 5, 1)
    consumer.acquire(csn_now=shown)
    assert _next(consumer) > shown


def test_what_the_consumer_holds_already_is_no_news(consumer: ConsumerSide) -> None:
    held = Csn.of(NOW_S + BOUND_S, 0, 1)
    epoch = consumer.acquire().epoch
    consumer.apply([change(held, None)], epoch=epoch, seq=1)
    consumer.now_s -= 10  # the clock was set back: the same change is beyond the bound now
    consumer.acquire(ruv={1: held})


def test_a_repair_brings_the_generator_back_to_the_clock(consumer: ConsumerSide) -> None:
    _lead_astray(consumer, DAY_S)
    assert _next(consumer).timestamp == NOW_S + DAY_S
    done = repair_clock(consumer.conn, known=[], now_s=NOW_S)
    assert (done.before.ahead_s, done.after.ahead_s) == (DAY_S, 0)
    assert _next(consumer).timestamp == NOW_S


@pytest.mark.parametrize("is_held", [True, False], ids=["in-the-ruv", "known-elsewhere"])
def test_a_repair_gives_no_csn_again(consumer: ConsumerSide, is_held: bool) -> None:
    """Above what was given it stands still, until the clock has come there."""
    given = Csn.of(NOW_S + 250, 7, OWN_RID)
    if is_held:
        epoch = consumer.acquire().epoch
        consumer.apply([change(Csn.of(NOW_S + 250, 7, 1), None)], epoch=epoch, seq=1)
    _lead_astray(consumer, DAY_S)
    done = repair_clock(consumer.conn, known=[] if is_held else [given], now_s=NOW_S)
    assert done.after.ahead_s == 250
    first = _next(consumer)
    assert (first.timestamp, first.sequence) == (NOW_S + 250, 8)
    consumer.now_s = NOW_S + 200
    assert _next(consumer) == first
    consumer.now_s = NOW_S + 251
    assert _next(consumer) > first
    consumer.now_s = NOW_S + 10_000
    assert _next(consumer).timestamp == NOW_S + 10_000


def test_a_repair_never_goes_ahead(consumer: ConsumerSide) -> None:
    before = _next(consumer)
    done = repair_clock(consumer.conn, known=[], now_s=NOW_S)
    assert done.before == done.after
    assert _next(consumer) >= before


def test_a_replica_that_lacks_own_changes_is_not_repaired(consumer: ConsumerSide) -> None:
    mark_restored(consumer.conn, upto=csn(9, OWN_RID))
    with pytest.raises(ReplicaNotOnline):
        repair_clock(consumer.conn, known=[], now_s=NOW_S)


def test_the_holder_of_a_lease_that_nobody_took_goes_on(consumer: ConsumerSide) -> None:
    """An expired lease was refused although the epoch fences it: 59 times in 5 minutes on a slow machine."""
    epoch = consumer.acquire(lease_s=0.0).epoch
    assert consumer.apply([change(csn(1, 1), None)], epoch=epoch, seq=1).applied == 1


def test_a_lease_that_another_took_is_lost(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire(lease_s=0.0).epoch
    consumer.acquire("rps_other", rid=3)
    with consumer.unchanged(), pytest.raises(SessionEnded):
        consumer.apply([change(csn(1, 1), None)], epoch=epoch, seq=1, session_id=SESSION)


def test_what_only_the_consumer_has_is_discarded_by_its_own_admin_s_word_alone(
    consumer: ConsumerSide,
) -> None:
    """A peer emptied a replica by a member of its request, which the docs called an admin's word."""
    epoch = consumer.acquire().epoch
    consumer.apply([change(csn(1, 1), None)], epoch=epoch, seq=1)
    consumer.release(epoch=epoch)
    with consumer.unchanged(), pytest.raises(DiscardNotGranted) as refused:
        consumer.acquire(mode=SessionMode.TOTAL, discard=True, granted=False)
    assert refused.value.facts == {"rids": [1], "supplier_rid": 1}
    with consumer.unchanged(), pytest.raises(ConsumerAhead):
        consumer.acquire(mode=SessionMode.TOTAL, discard=False, granted=True)
    consumer.acquire(mode=SessionMode.TOTAL, discard=True, granted=True)
    assert consumer.status() == ("INITIALIZING", None)


def _lead_astray(consumer: ConsumerSide, ahead_s: int) -> None:
    """What one acquire with such a clock did before there was a bound."""
    with consumer.conn.transaction():
        consumer.conn.execute(
            "update replica_generator set sampled_s = :now_s, local_offset_s = 0, sequence = 0,"
            " remote_offset_s = :ahead_s",
            {"now_s": NOW_S, "ahead_s": ahead_s},
        )
