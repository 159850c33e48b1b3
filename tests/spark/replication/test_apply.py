"""A batch on a consumer: applied whole with its RUV, answered again, or refused without a trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark.formats.csn import Csn
from spark.replication.csn_generator import next_csn
from spark.replication.records import local_schema
from spark.replication.replica.conditions import Condition
from spark.replication.replica.local_write import Expected, LocalRequest, RequestWritten, write_group
from spark.replication.replica.replica import snapshot
from spark.replication.session_errors import BatchGap, GenerationMismatch, PrevGap
from tests.spark.replication.consumer_side import (
    ConsumerSide,
    chain,
    change,
    consumer_side,
    target_of,
)
from tests.spark.replication.replica_tables import NOW_S, csn

BOUND_S = 300


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsumerSide]:
    """A consumer that has nothing yet, of the supplier's generation."""
    with consumer_side(target_of(request, request.param, tmp_path)) as side:
        yield side


def test_changes_entries_and_ruv_come_together(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    rows = chain(1, [1, 2]) + chain(3, [1])
    done = consumer.apply(rows, epoch=epoch, seq=1)
    assert (done.applied, done.covered, done.rejected, done.halted) == (3, 0, (), 0)
    assert done.ruv == consumer.ruv() == {1: csn(2, 1), 3: csn(1, 3)}
    assert consumer.logged() == [csn(1, 1), csn(2, 1), csn(1, 3)]
    assert consumer.entries()[b"db", b"1/2"] == (b"2", csn(2, 1))
    minima = {row[0]: row[1] for row in consumer.rows("ruv")}
    assert minima == {1: csn(1, 1), 3: csn(1, 3)}


def test_what_is_covered_is_passed_over_and_counted(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    consumer.apply(chain(1, [1, 2]), epoch=epoch, seq=1)
    done = consumer.apply(chain(1, [1, 2, 3]), epoch=epoch, seq=2)
    assert (done.applied, done.covered) == (1, 2)
    assert consumer.ruv() == {1: csn(3, 1)}


def test_the_greatest_csn_of_a_key_wins_whatever_comes_when(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    consumer.apply([change(csn(5, 1), None, value=b"newer")], epoch=epoch, seq=1)
    consumer.apply([change(csn(4, 3), None, value=b"older")], epoch=epoch, seq=2)
    assert consumer.entries() == {(b"db", b"key"): (b"newer", csn(5, 1))}
    consumer.apply([change(csn(6, 3), csn(4, 3), value=None)], epoch=epoch, seq=3)
    assert consumer.entries() == {(b"db", b"key"): (None, csn(6, 3))}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(chain(1, [3], after=csn(2, 1)), id="a-record-before-it-is-missing"),
        pytest.param([change(csn(3, 1), None)], id="it-says-it-is-the-first-and-is-not"),
        pytest.param(chain(3, [2], after=csn(1, 3)), id="of-a-replica-of-which-nothing-is-here"),
        pytest.param(chain(1, [2, 4], after=csn(1, 1))[1:], id="its-predecessor-is-not-in-the-batch"),
        pytest.param(
            [*chain(1, [2], after=csn(1, 1)), change(csn(4, 1), csn(3, 1))], id="a-hole-inside-of-the-batch"
        ),
        pytest.param(
            [*chain(4, [1]), change(csn(3, 1), csn(0, 1))], id="linked-to-something-below-what-is-here"
        ),
    ],
)
def test_a_hole_refuses_the_whole_batch(consumer: ConsumerSide, rows: list) -> None:
    epoch = consumer.acquire().epoch
    consumer.apply(chain(1, [1]), epoch=epoch, seq=1)
    with consumer.unchanged(), pytest.raises(PrevGap) as refused:
        consumer.apply(rows, epoch=epoch, seq=2)
    assert refused.value.facts["csn"] == str(rows[-1][0])
    consumer.apply(chain(1, [2], after=csn(1, 1)), epoch=epoch, seq=2)  # the number is still free


def test_a_batch_before_its_turn_is_refused_with_the_number_that_is_next(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    with consumer.unchanged(), pytest.raises(BatchGap) as refused:
        consumer.apply(chain(1, [1]), epoch=epoch, seq=2)
    assert refused.value.expected == 1


def test_a_batch_that_was_applied_is_answered_again(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    first = consumer.apply(chain(1, [1, 2]), epoch=epoch, seq=1)
    with consumer.unchanged(session=False):
        again = consumer.apply(chain(1, [1, 2]), epoch=epoch, seq=1)
    assert (again.replayed, again.applied, again.covered, again.ruv) == (True, 0, 2, first.ruv)


def test_another_generation_gets_no_lease(consumer: ConsumerSide) -> None:
    with consumer.unchanged(), pytest.raises(GenerationMismatch):
        consumer.acquire(generation=csn(7, 1))


def test_a_record_that_cannot_be_kept_halts_its_replica_only(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    strange = (csn(2, 1), csn(1, 1), "EXTENSION", b"db", b"key", None)
    rows = [*chain(1, [1]), strange, *chain(1, [3], after=csn(2, 1)), *chain(3, [1, 2])]
    done = consumer.apply(rows, epoch=epoch, seq=1)
    assert [(each.csn, each.code) for each in done.rejected] == [(csn(2, 1), "KIND_UNKNOWN")]
    assert (done.applied, done.halted) == (3, 1)
    assert consumer.ruv() == {1: csn(1, 1), 3: csn(2, 3)}
    [letter] = consumer.rows("dead_letters")
    assert letter[:5] == ("RECEIVED", "supplier-1/1", csn(2, 1), 1, "EXTENSION")
    # Behind it the supplier had sent more before it knew.
    late = consumer.apply(chain(1, [4], after=csn(3, 1)) + chain(3, [3], after=csn(2, 3)), epoch=epoch, seq=2)
    assert (late.applied, late.rejected, late.halted) == (1, (), 1)
    assert consumer.ruv() == {1: csn(1, 1), 3: csn(3, 3)}
    again = consumer.apply(rows, epoch=epoch, seq=1)
    assert again.replayed
    assert (again.covered, again.rejected, again.halted) == (3, done.rejected, 1)


def test_a_record_that_cannot_be_kept_and_follows_a_hole_is_a_hole(consumer: ConsumerSide) -> None:
    """What is missing before it may be one that can be kept."""
    epoch = consumer.acquire().epoch
    consumer.apply(chain(1, [1]), epoch=epoch, seq=1)
    strange = (csn(3, 1), csn(2, 1), "EXTENSION", b"db", b"key", None)
    with consumer.unchanged(), pytest.raises(PrevGap):
        consumer.apply([strange, *chain(1, [4], after=csn(3, 1))], epoch=epoch, seq=2)
    done = consumer.apply([*chain(1, [2], after=csn(1, 1)), strange], epoch=epoch, seq=2)
    assert (done.applied, [each.csn for each in done.rejected]) == (1, [csn(3, 1)])


def test_a_rejected_record_that_comes_again_and_fits_is_resolved(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    consumer.apply([(csn(1, 1), None, "LATER", b"db", b"key", None)], epoch=epoch, seq=1)
    consumer.apply(chain(1, [1, 2]), epoch=epoch, seq=2)
    [letter] = consumer.rows("dead_letters")
    assert letter[-1] is not None
    assert consumer.ruv() == {1: csn(2, 1)}


@pytest.mark.parametrize(("ahead_s", "is_taken"), [(BOUND_S, True), (BOUND_S + 1, False)])
def test_a_csn_of_the_future_is_rejected(consumer: ConsumerSide, ahead_s: int, is_taken: bool) -> None:
    epoch = consumer.acquire().epoch
    late = Csn.of(NOW_S + ahead_s, 0, 1)
    done = consumer.apply([change(late, None)], epoch=epoch, seq=1)
    assert [each.code for each in done.rejected] == ([] if is_taken else ["CSN_FROM_THE_FUTURE"])
    assert consumer.ruv() == ({1: late} if is_taken else {})


def test_the_next_local_csn_is_newer_than_all_that_was_applied(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    ahead = Csn.of(NOW_S + 200, 7, 1)
    consumer.apply([change(ahead, None)], epoch=epoch, seq=1)
    assert next_csn(snapshot(consumer.conn).generator, now_s=NOW_S)[0] > ahead


@pytest.mark.parametrize("is_conditional", [False, True])
@pytest.mark.parametrize("sequence", [0, 0xFFFF])
def test_a_local_write_wins_though_the_clock_was_set_back_since(
    consumer: ConsumerSide, sequence: int, is_conditional: bool
) -> None:
    """It was answered as written, and lost at once against what its writer had read."""
    epoch = consumer.acquire().epoch
    consumer.now_s = NOW_S + 100
    held = Csn.of(NOW_S + 95, sequence, 1)
    consumer.apply([change(held, None, value=b"received")], epoch=epoch, seq=1)
    columns = [pa.array([value], pa.binary()) for value in (b"db", b"key", b"local")]
    request = LocalRequest(
        pa.RecordBatch.from_arrays(columns, schema=local_schema()),
        conditions=(Condition(0, str(held)),) if is_conditional else (),
    )
    written = write_group(consumer.conn, [request], now_s=NOW_S + 50, expected=Expected("inc_first", None))
    [answer] = written.requests
    assert isinstance(answer, RequestWritten)
    assert answer.last_csn is not None
    assert answer.last_csn > held
    assert consumer.entries() == {(b"db", b"key"): (b"local", answer.last_csn)}
    # The clock eats it as it goes on: no offset stays.
    assert snapshot(consumer.conn).generator.remote_offset_s == 0
    assert next_csn(snapshot(consumer.conn).generator, now_s=NOW_S + 500)[0].timestamp == NOW_S + 500
