"""A replica that is about to be copied is not emptied: two that initialise each other lose nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spark.replication.records import ReplicaStatus, SessionMode
from spark.replication.replica.replica import snapshot
from spark.replication.session_errors import ReplicaSupplies
from spark.replication.sessions.session import Acquired
from spark.replication.sessions.supplying import SUPPLYING_S, end_supplying, note_supplying
from tests.spark.replication.consumer_side import (
    HELD,
    OTHER,
    SESSION,
    ConsumerSide,
    chain,
    consumer_side,
    target_of,
)
from tests.spark.replication.replica_tables import csn

COPIES = "rps_00000000000000000000000007"
BESIDE = "rps_00000000000000000000000008"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsumerSide]:
    """A whole replica with three changes."""
    with consumer_side(target_of(request, request.param, tmp_path)) as side:
        epoch = side.acquire().epoch
        side.apply(chain(3, [1]), epoch=epoch, seq=1)
        side.release(epoch=epoch)
        yield side


def total(side: ConsumerSide, session_id: str = OTHER, *, discard: bool = False) -> Acquired:
    """Somebody who has all that is here wants to make it a copy."""
    return side.acquire(session_id, mode=SessionMode.TOTAL, ruv=side.ruv(), rid=2, discard=discard)


@pytest.mark.parametrize("discard", [False, True])
def test_it_is_not_emptied_until_the_note_is_taken_back(side: ConsumerSide, discard: bool) -> None:
    note_supplying(side.conn, COPIES)
    before = {name: side.rows(name) for name in HELD}
    with pytest.raises(ReplicaSupplies) as refused:
        total(side, discard=discard)
    assert refused.value.facts == {"session_count": 1}
    assert COPIES not in refused.value.detail  # in which whoever knows its name could send batches
    assert {name: side.rows(name) for name in HELD} == before
    end_supplying(side.conn, COPIES)
    total(side, discard=discard)
    assert snapshot(side.conn).replica.status is ReplicaStatus.INITIALIZING


def test_each_session_takes_back_its_own_note(side: ConsumerSide) -> None:
    note_supplying(side.conn, COPIES)
    note_supplying(side.conn, BESIDE)
    end_supplying(side.conn, COPIES)
    end_supplying(side.conn, COPIES)
    with pytest.raises(ReplicaSupplies) as refused:
        total(side)
    assert refused.value.facts == {"session_count": 1}
    end_supplying(side.conn, BESIDE)
    total(side)


def test_a_note_ends_by_itself(side: ConsumerSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.replication.sessions.supplying.SUPPLYING_S", 0.0)
    note_supplying(side.conn, COPIES)
    total(side)
    assert SUPPLYING_S > 0


def test_changes_are_taken_meanwhile(side: ConsumerSide) -> None:
    note_supplying(side.conn, COPIES)
    epoch = side.acquire(OTHER, ruv=side.ruv(), rid=2).epoch
    assert side.apply(chain(2, [2, 3]), epoch=epoch, seq=1, session_id=OTHER).applied == 2


def test_half_a_copy_supplies_nobody_and_goes_on(side: ConsumerSide) -> None:
    total(side)
    note_supplying(side.conn, COPIES)
    assert total(side).epoch > 0
    side.expire()
    total(side, SESSION)  # another one begins it anew
    assert snapshot(side.conn).replica.status is ReplicaStatus.INITIALIZING


@pytest.fixture
def two(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[ConsumerSide, ConsumerSide]]:
    """Two whole replicas that hold the same, each about to be copied to the other."""
    with ExitStack() as stack:
        sides = []
        for name in ("a", "b"):
            folder = tmp_path / name
            folder.mkdir()
            side = stack.enter_context(consumer_side(target_of(request, "sqlite", folder)))
            epoch = side.acquire().epoch
            side.apply(chain(3, [1]), epoch=epoch, seq=1)
            side.release(epoch=epoch)
            sides.append(side)
        a, b = sides
        note_supplying(a.conn, COPIES)
        note_supplying(b.conn, BESIDE)
        yield a, b


def statuses(*sides: ConsumerSide) -> list[ReplicaStatus]:
    return [snapshot(side.conn).replica.status for side in sides]


def test_of_two_that_would_empty_each_other_one_is_left(two: tuple[ConsumerSide, ConsumerSide]) -> None:
    a, b = two
    with pytest.raises(ReplicaSupplies):
        total(b, COPIES)
    end_supplying(a.conn, COPIES)
    total(a, BESIDE)
    assert statuses(a, b) == [ReplicaStatus.INITIALIZING, ReplicaStatus.ONLINE]
    assert b.ruv() == {3: csn(1, 3)}


def test_without_the_notes_both_are_emptied(
    two: tuple[ConsumerSide, ConsumerSide], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.replication.sessions.begin.require_not_supplying", lambda *_: None)
    a, b = two
    total(b, COPIES)
    side = a.acquire(BESIDE, mode=SessionMode.TOTAL, ruv={3: csn(1, 3)}, rid=2)
    assert side.epoch > 0
    assert statuses(a, b) == [ReplicaStatus.INITIALIZING, ReplicaStatus.INITIALIZING]
    assert a.ruv() == b.ruv() == {}
