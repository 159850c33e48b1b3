"""The lease of a consumer: who gets it, in which order it is refused, and what is left of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark.formats.csn import Csn
from spark.replication.csn_generator import next_csn
from spark.replication.records import SessionMode
from spark.replication.replica.replica import snapshot
from spark.replication.session_errors import (
    BatchGap,
    ClockSkewed,
    ConsumerAhead,
    DuplicateRid,
    GenerationMismatch,
    ReplicaBusy,
    SessionEnded,
    SessionNotFound,
    SessionRefused,
    StaleEpoch,
)
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import renew
from tests.spark.replication.consumer_side import (
    GENERATION,
    OTHER,
    OWN_RID,
    SESSION,
    ConsumerSide,
    chain,
    consumer_side,
    target_of,
)
from tests.spark.replication.replica_tables import NOW_S, csn

BOUND_S = 300
THIRD = "rps_00000000000000000000000003"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsumerSide]:
    """A consumer that has nothing yet, of the supplier's generation."""
    with consumer_side(target_of(request, request.param, tmp_path)) as side:
        yield side


def test_a_lease_is_granted_with_what_the_consumer_has(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    consumer.apply(chain(1, [1, 2]), epoch=epoch, seq=1)
    consumer.release(epoch=epoch)
    granted = consumer.acquire(OTHER, lease_s=30)
    assert (granted.epoch, granted.generation, granted.ruv) == (epoch + 1, GENERATION, {1: csn(2, 1)})
    assert 25 < (granted.expires_at - datetime.now(UTC)).total_seconds() <= 30


@pytest.mark.parametrize("session_id", [OTHER, SESSION])
def test_a_second_supplier_is_told_who_holds_the_lease_and_how_long(
    consumer: ConsumerSide, session_id: str
) -> None:
    """But not in which session, in which it could send batches; nor has it the lease by knowing its name."""
    granted = consumer.acquire()
    with consumer.unchanged(), pytest.raises(ReplicaBusy) as refused:
        consumer.acquire(session_id, rid=2)
    assert SESSION not in refused.value.detail
    assert refused.value.facts == {
        "supplier_rid": 1,
        "supplier_store": "supplier-1",
        "expires_at": granted.expires_at.isoformat().replace("+00:00", "Z"),
    }
    assert 50 < refused.value.expires_in_s <= 60
    with consumer.unchanged(), pytest.raises(ReplicaBusy) as again:
        consumer.acquire(OTHER, rid=1)  # another session of its own: it may be one that has ended
    assert again.value.facts == {"holder": SESSION} | refused.value.facts


def test_the_same_session_gets_the_lease_again_in_a_new_epoch_and_counts_from_one(
    consumer: ConsumerSide,
) -> None:
    first = consumer.acquire().epoch
    consumer.apply(chain(1, [1]), epoch=first, seq=1)
    second = consumer.acquire().epoch
    assert second == first + 1
    with consumer.unchanged(), pytest.raises(StaleEpoch) as refused:
        consumer.apply(chain(1, [2], after=csn(1, 1)), epoch=first, seq=2)
    assert refused.value.facts == {"epoch": second}
    with pytest.raises(BatchGap):
        consumer.apply(chain(1, [2], after=csn(1, 1)), epoch=second, seq=2)
    consumer.apply(chain(1, [2], after=csn(1, 1)), epoch=second, seq=1)


def test_an_epoch_that_was_never_given_is_stale_too(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    with consumer.unchanged(), pytest.raises(StaleEpoch):
        consumer.apply(chain(1, [1]), epoch=epoch + 1, seq=1)


def test_an_expired_lease_ends_its_session_and_may_be_had_by_another(consumer: ConsumerSide) -> None:
    old = consumer.acquire().epoch
    consumer.expire()
    with consumer.unchanged(), pytest.raises(SessionEnded):
        consumer.apply(chain(1, [1]), epoch=old, seq=1)
    new = consumer.acquire(OTHER, rid=2).epoch
    assert new == old + 1
    with consumer.unchanged(), pytest.raises(SessionEnded):
        consumer.apply(chain(1, [1]), epoch=old, seq=1)
    consumer.apply(chain(1, [1]), epoch=new, seq=1, session_id=OTHER)


def test_a_lease_ends_by_itself(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire(lease_s=0.05).epoch
    time.sleep(0.06)
    consumer.acquire(OTHER)
    with pytest.raises(SessionEnded):
        consumer.apply(chain(1, [1]), epoch=epoch, seq=1)


def test_a_batch_of_a_session_that_nobody_knows_is_refused(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    with consumer.unchanged(), pytest.raises(SessionNotFound):
        consumer.apply(chain(1, [1]), epoch=epoch, seq=1, session_id=OTHER)
    consumer.expire()
    consumer.acquire(OTHER)
    consumer.expire()
    consumer.acquire(THIRD)
    with consumer.unchanged(), pytest.raises(SessionNotFound):  # two sessions ago
        consumer.apply(chain(1, [1]), epoch=epoch, seq=1)


def test_batches_and_renewals_keep_the_lease(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire(lease_s=600).epoch
    done = consumer.apply(chain(1, [1]), epoch=epoch, seq=1)
    assert 590 < (done.expires_at - datetime.now(UTC)).total_seconds() <= 600
    until = renew(consumer.conn, Ticket(SESSION, epoch), lease_s=30)
    assert 25 < (until - datetime.now(UTC)).total_seconds() <= 30
    done = consumer.apply(chain(1, [2], after=csn(1, 1)), epoch=epoch, seq=2)
    assert 25 < (done.expires_at - datetime.now(UTC)).total_seconds() <= 30
    for ticket, refusal in (
        (Ticket(SESSION, epoch + 1), StaleEpoch),
        (Ticket(OTHER, epoch), SessionNotFound),
    ):
        with consumer.unchanged(), pytest.raises(refusal):
            renew(consumer.conn, ticket, lease_s=30)


def test_release_is_idempotent(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    consumer.apply(chain(1, [1]), epoch=epoch, seq=1)
    first = consumer.release(epoch=epoch)
    with consumer.unchanged():
        assert consumer.release(epoch=epoch) == first
    assert first.ruv == {1: csn(1, 1)}
    with pytest.raises(SessionEnded):
        consumer.apply(chain(1, [2], after=csn(1, 1)), epoch=epoch, seq=2)
    consumer.acquire(OTHER, rid=2)  # at once
    with consumer.unchanged():
        consumer.release(epoch=epoch)  # the other one keeps its lease
    with consumer.unchanged(), pytest.raises(SessionNotFound):
        consumer.release(epoch=epoch, session_id=THIRD)


def test_a_release_of_an_earlier_epoch_does_not_take_the_lease_away(consumer: ConsumerSide) -> None:
    old = consumer.acquire().epoch
    new = consumer.acquire().epoch
    with consumer.unchanged(), pytest.raises(StaleEpoch):
        consumer.release(epoch=old)
    consumer.apply(chain(1, [1]), epoch=new, seq=1)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        pytest.param({"csn_now": Csn.of(NOW_S + BOUND_S + 1, 0, 1)}, ClockSkewed, id="clock"),
        pytest.param({"ruv": {3: Csn.of(NOW_S + BOUND_S + 1, 0, 3)}}, ClockSkewed, id="ruv"),
        pytest.param({"csn_now": Csn.of(2**32 - 1, 0xFFFF, 1)}, ClockSkewed, id="end-of-time"),
        pytest.param({"rid": OWN_RID}, DuplicateRid, id="rid"),
        pytest.param(
            {"mode": SessionMode.TOTAL, "ruv": {3: csn(9, 3)}}, ConsumerAhead, id="total-of-less-than-it-has"
        ),
        pytest.param(
            {"mode": SessionMode.TOTAL, "generation": csn(9, 2)},
            ConsumerAhead,
            id="total-of-another-generation",
        ),
        pytest.param(
            {"csn_now": Csn.of(NOW_S + BOUND_S + 1, 0, 9), "rid": 9}, ClockSkewed, id="clock-before-rid"
        ),
    ],
)
def test_a_refused_acquire_changes_nothing(
    consumer: ConsumerSide, fields: dict[str, Any], refusal: type[SessionRefused]
) -> None:
    epoch = consumer.acquire().epoch
    consumer.apply(chain(1, [1]), epoch=epoch, seq=1)
    consumer.release(epoch=epoch)
    with consumer.unchanged(), pytest.raises(refusal):
        consumer.acquire(OTHER, **fields)


def test_the_rid_is_looked_at_before_the_lease(consumer: ConsumerSide) -> None:
    consumer.acquire()
    with pytest.raises(DuplicateRid):
        consumer.acquire(OTHER, rid=OWN_RID)


@pytest.mark.parametrize("ahead_s", [0, 30, BOUND_S])
def test_the_generator_follows_the_supplier(consumer: ConsumerSide, ahead_s: int) -> None:
    shown = Csn.of(NOW_S + ahead_s, 7, 1)
    consumer.acquire(csn_now=shown)
    assert next_csn(snapshot(consumer.conn).generator, now_s=NOW_S)[0] > shown


def test_the_generator_does_not_follow_another_generation(consumer: ConsumerSide) -> None:
    foreign = {"generation": csn(9, 2), "ruv": {OWN_RID: csn(9, OWN_RID)}}
    with consumer.unchanged(), pytest.raises(GenerationMismatch) as refused:
        consumer.acquire(csn_now=Csn.of(NOW_S + 200, 0, 1), **foreign)
    assert refused.value.facts == {"consumer": GENERATION, "supplier": csn(9, 2)}


def test_a_supplier_that_has_more_own_changes_finds_that_the_consumer_was_restored(
    consumer: ConsumerSide,
) -> None:
    granted = consumer.acquire(ruv={OWN_RID: csn(3, OWN_RID)})
    assert granted.replica.status == "RESTORED"
    assert consumer.status() == ("RESTORED", csn(3, OWN_RID))
    consumer.acquire(ruv={OWN_RID: csn(2, OWN_RID)})
    assert consumer.status() == ("RESTORED", csn(3, OWN_RID))  # of two marks the greater counts
    epoch = consumer.acquire(ruv={OWN_RID: csn(4, OWN_RID)}).epoch
    consumer.apply(chain(OWN_RID, [1, 2, 3]), epoch=epoch, seq=1)
    assert consumer.status() == ("RESTORED", csn(4, OWN_RID))
    consumer.apply(chain(OWN_RID, [4], after=csn(3, OWN_RID)), epoch=epoch, seq=2)
    assert consumer.status() == ("ONLINE", None)


def test_own_changes_that_come_unannounced_bring_the_generator_past_them(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    ahead = Csn.of(NOW_S + 40, 3, OWN_RID)
    consumer.apply([(ahead, None, "CHANGE", b"db", b"key", b"value")], epoch=epoch, seq=1)
    assert consumer.status() == ("ONLINE", None)
    assert next_csn(snapshot(consumer.conn).generator, now_s=NOW_S)[0] > ahead


def test_a_consumer_without_a_generation_shows_no_ruv(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with consumer_side(target_of(request, "sqlite", tmp_path), generation=None) as consumer:
        granted = consumer.acquire()
        assert (granted.generation, granted.ruv, granted.replica.status) == (None, None, "EMPTY")
