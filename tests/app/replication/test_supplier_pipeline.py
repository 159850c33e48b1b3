"""The pipeline of a session: order, bounds, and that nothing is sent after its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from app.replication.peer.answers import Acknowledged, PeerRefused, PeerUnanswered
from app.replication.supplier.batches import Outgoing
from app.replication.supplier.pipeline import READ_AHEAD, Pipeline, Send, Sent


def _batch(number: int) -> Outgoing:
    return Outgoing(
        rows=number, ranges={}, encode=lambda: b"", records=lambda: pa.record_batch([[number]], names=["n"])
    )


def _source(count: int) -> Iterator[Outgoing]:
    return (_batch(number) for number in range(1, count + 1))


def _sent(seq: int, batch: Outgoing) -> Sent:
    return Sent(seq, batch, 0, 0.0, Acknowledged(seq, batch.rows, 0, {}))


def _pipeline(send: Send, *, in_flight: int = 4, first_seq: int = 1) -> Pipeline:
    return Pipeline(send=send, in_flight=in_flight, first_seq=first_seq, pace=lambda: 0.0)


def _nothing() -> None:
    """Nobody stops it."""


def _threads() -> set[str]:
    return {
        each.name for each in threading.enumerate() if each.name.startswith(("lethe-reader", "lethe-sender"))
    }


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_answers_are_told_in_order_however_they_come(in_flight: int) -> None:
    random = Random(in_flight)
    delays = [random.random() / 200 for _ in range(60)]
    told: list[int] = []

    def send(seq: int, batch: Outgoing, _gives_up: object) -> Sent:
        time.sleep(delays[seq - 7])
        assert batch.rows == seq - 6
        return _sent(seq, batch)

    pipeline = _pipeline(send, in_flight=in_flight, first_seq=7)
    pipeline.run(_source(60), told=lambda sent: told.append(sent.batch_seq), check=_nothing)
    assert told == list(range(7, 67))
    assert pipeline.next_unanswered == 67
    assert _threads() == set()


def test_batches_in_flight_and_read_ahead_are_bounded() -> None:
    guard = threading.Lock()
    flying, most_flying, read, told = 0, 0, 0, 0
    most_held = 0

    def source() -> Iterator[Outgoing]:
        nonlocal read, most_held
        for number in range(1, 81):
            with guard:
                read += 1
                most_held = max(most_held, read - told)
            yield _batch(number)

    def send(seq: int, batch: Outgoing, _gives_up: object) -> Sent:
        nonlocal flying, most_flying
        with guard:
            flying += 1
            most_flying = max(most_flying, flying)
        time.sleep(0.002)
        with guard:
            flying -= 1
        return _sent(seq, batch)

    def hear(_sent: Sent) -> None:
        nonlocal told
        with guard:
            told += 1

    _pipeline(send, in_flight=3).run(source(), told=hear, check=_nothing)
    assert told == 80
    assert most_flying == 3
    assert most_held <= 3 + READ_AHEAD


def test_the_first_refusal_is_raised_and_not_what_failed_behind_it() -> None:
    """What stands behind a lost batch is refused as a gap: that is its consequence."""

    def send(seq: int, batch: Outgoing, _gives_up: object) -> Sent:
        if seq == 3:
            time.sleep(0.05)
            raise PeerUnanswered("lost")
        if seq > 3:
            raise PeerRefused(409, "BATCH_GAP", "a gap", retry_after_s=None, facts={})
        return _sent(seq, batch)

    told: list[int] = []
    pipeline = _pipeline(send)
    with pytest.raises(PeerUnanswered):
        pipeline.run(_source(20), told=lambda sent: told.append(sent.batch_seq), check=_nothing)
    assert told == [1, 2]
    assert pipeline.next_unanswered == 3
    assert _threads() == set()


def test_what_is_under_way_is_told_before_a_stop_is_raised() -> None:
    class Stopped(Exception):
        pass

    told: list[int] = []
    began = threading.Event()

    def send(seq: int, batch: Outgoing, _gives_up: object) -> Sent:
        began.set()
        time.sleep(0.3)
        return _sent(seq, batch)

    def check() -> None:
        if began.is_set():
            raise Stopped

    pipeline = _pipeline(send, in_flight=2)
    with pytest.raises(Stopped):
        pipeline.run(_source(50), told=lambda sent: told.append(sent.batch_seq), check=check)
    assert told == [1, 2]
    assert _threads() == set()


def test_an_error_of_the_reader_ends_it_after_what_was_read() -> None:
    def source() -> Iterator[Outgoing]:
        yield _batch(1)
        yield _batch(2)
        raise RuntimeError("the changelog is away")

    told: list[int] = []
    pipeline = _pipeline(lambda seq, batch, _gives_up: _sent(seq, batch), in_flight=1)
    with pytest.raises(RuntimeError, match="is away"):
        pipeline.run(source(), told=lambda sent: told.append(sent.batch_seq), check=_nothing)
    assert set(told) <= {1, 2}
    assert _threads() == set()


def test_what_hears_the_answers_may_end_it() -> None:
    class Refused(Exception):
        pass

    sent: list[int] = []

    def send(seq: int, batch: Outgoing, _gives_up: object) -> Sent:
        sent.append(seq)
        return _sent(seq, batch)

    def hear(answer: Sent) -> None:
        if answer.batch_seq == 5:
            raise Refused

    with pytest.raises(Refused):
        _pipeline(send, in_flight=2).run(_source(500), told=hear, check=_nothing)
    assert max(sent) <= 5 + 2 + READ_AHEAD + 1
    assert _threads() == set()


def test_a_throttle_holds_the_reader_back() -> None:
    asked = 0

    def pace() -> float:
        nonlocal asked
        asked += 1
        return 0.0 if asked % 3 == 0 else 0.001

    told: list[int] = []
    pipeline = Pipeline(
        send=lambda seq, batch, _gives_up: _sent(seq, batch), in_flight=4, first_seq=1, pace=pace
    )
    pipeline.run(_source(10), told=lambda sent: told.append(sent.batch_seq), check=_nothing)
    assert told == list(range(1, 11))
    assert asked >= 30
