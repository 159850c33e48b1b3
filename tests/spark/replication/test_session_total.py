"""A total initialisation on its consumer: emptied at once, resumed by its session, readable at its end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.csn_generator import next_csn
from spark.replication.records import SessionMode
from spark.replication.replica.replica import mark_restored, snapshot
from spark.replication.session_errors import (
    ClockSkewed,
    ConsumerAhead,
    GenerationMismatch,
    ReplicaInitializing,
    SessionEnded,
    TotalIncomplete,
    TotalNotUnderWay,
    TotalRuvDiffers,
)
from spark.replication.sessions.calls import Resuming
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Acquired, Completion, complete_total
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

NEW_GENERATION = csn(50, 1)
BEGUN_AT = {1: csn(2, 1), OWN_RID: csn(1, OWN_RID)}
COPY = [(b"db", b"a", b"1", csn(1, 1)), (b"db", b"b", None, csn(2, 1))]
REST = [(b"db", b"c", b"3", csn(1, OWN_RID))]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsumerSide]:
    """A consumer of another generation, which holds a change."""
    with consumer_side(target_of(request, request.param, tmp_path)) as side:
        epoch = side.acquire().epoch
        side.apply(chain(3, [1]), epoch=epoch, seq=1)
        side.release(epoch=epoch)
        yield side


def begin(
    consumer: ConsumerSide,
    session_id: str = SESSION,
    *,
    ruv: Mapping[int, Csn] = BEGUN_AT,
    generation: str = NEW_GENERATION,
    rid: int = 1,
    discard: bool = True,
) -> Acquired:
    """A supplier begins, or goes on with, a total initialisation."""
    return consumer.acquire(
        session_id, mode=SessionMode.TOTAL, ruv=ruv, generation=generation, rid=rid, discard=discard
    )


def complete(
    consumer: ConsumerSide, epoch: int, *, ruv: Mapping[int, Csn] = BEGUN_AT, generation: str = NEW_GENERATION
) -> Mapping[int, Csn]:
    """The copy ends."""
    return complete_total(
        consumer.conn, Ticket(SESSION, epoch), ruv=ruv, generation=generation, now_s=consumer.now_s
    )


class Adopted:
    """What the service was told before the replica became readable."""

    def __init__(self, consumer: ConsumerSide) -> None:
        self.consumer = consumer
        self.heard: list[tuple[str, Csn | None]] = []

    def __call__(self, incarnation: str, own_max: Csn | None) -> None:
        self.heard.append((incarnation, own_max))

    def completion(self, incarnation: str = "inc_second") -> Completion:
        """The end of the initialisation."""
        return Completion(incarnation, self)


def test_a_replica_is_emptied_copied_completed_and_readable(consumer: ConsumerSide) -> None:
    epoch = begin(consumer).epoch
    assert consumer.status() == ("INITIALIZING", None)
    assert (consumer.ruv(), consumer.entries(), consumer.logged()) == ({}, {}, [])
    consumer.copy(COPY, epoch=epoch, seq=1)
    consumer.copy(REST, epoch=epoch, seq=2)
    assert complete(consumer, epoch) == BEGUN_AT
    assert {row[0]: row[1:4] for row in consumer.rows("ruv")} == {
        rid: (None, at, at) for rid, at in BEGUN_AT.items()
    }
    assert consumer.status() == ("INITIALIZING", None)
    consumer.apply(chain(1, [3], after=csn(2, 1)), epoch=epoch, seq=3)
    adopted = Adopted(consumer)
    released = consumer.release(epoch=epoch, complete=adopted.completion())
    assert released.replica.status == "ONLINE"
    assert released.replica.incarnation == "inc_second"
    assert (released.replica.generation, released.replica.rid) == (NEW_GENERATION, OWN_RID)
    assert adopted.heard == [("inc_second", csn(1, OWN_RID))]
    assert consumer.entries() == {
        (b"db", b"a"): (b"1", csn(1, 1)),
        (b"db", b"b"): (None, csn(2, 1)),
        (b"db", b"c"): (b"3", csn(1, OWN_RID)),
        (b"db", b"1/3"): (b"3", csn(3, 1)),
    }
    with consumer.unchanged():
        assert consumer.release(epoch=epoch, complete=adopted.completion("inc_third")) == released
    assert len(adopted.heard) == 1


def test_a_copy_does_not_lower_an_entry(consumer: ConsumerSide) -> None:
    epoch = begin(consumer).epoch
    consumer.copy([(b"db", b"a", b"newer", csn(9, 1))], epoch=epoch, seq=1)
    consumer.copy(COPY, epoch=epoch, seq=2)
    assert consumer.entries()[b"db", b"a"] == (b"newer", csn(9, 1))


def test_a_copy_that_was_cut_off_is_resumed_by_its_session(consumer: ConsumerSide) -> None:
    first = begin(consumer).epoch
    consumer.copy(COPY, epoch=first, seq=1)
    grown = {**BEGUN_AT, 1: csn(7, 1)}  # the supplier has gone on meanwhile
    again = begin(consumer, ruv=grown)
    assert (again.resume_after, again.is_copied, again.epoch) == ((b"db", b"b"), False, first + 1)
    assert len(consumer.entries()) == 2
    consumer.copy(REST, epoch=again.epoch, seq=1)
    with consumer.unchanged(), pytest.raises(TotalRuvDiffers) as refused:
        complete(consumer, again.epoch, ruv=grown)  # the first entries are older than that
    assert refused.value.facts["ruv"] == {str(rid): str(at) for rid, at in BEGUN_AT.items()}
    complete(consumer, again.epoch)
    third = begin(consumer, ruv=grown)
    assert (third.is_copied, third.generation, third.ruv) == (True, NEW_GENERATION, BEGUN_AT)
    with pytest.raises(TotalNotUnderWay):
        consumer.copy(REST, epoch=third.epoch, seq=1)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"session_id": OTHER}, id="another-session"),
        pytest.param({"generation": csn(60, 1)}, id="another-generation"),
        pytest.param(
            {"ruv": {1: csn(1, 1), OWN_RID: csn(1, OWN_RID)}}, id="the-supplier-has-less-than-it-had"
        ),
        pytest.param({"rid": 2}, id="another-supplier"),
    ],
)
def test_anything_else_begins_anew(consumer: ConsumerSide, fields: dict) -> None:
    epoch = begin(consumer).epoch
    consumer.copy(COPY, epoch=epoch, seq=1)
    consumer.expire()
    again = begin(consumer, **{"discard": False, **fields})  # half a copy is nothing to lose
    assert (again.resume_after, consumer.entries()) == (None, {})


def resume(consumer: ConsumerSide, resuming: Resuming, *, ruv: Mapping[int, Csn] = BEGUN_AT) -> Acquired:
    """Another session of the same supplier, which says what it would go on with."""
    return consumer.acquire(
        OTHER, mode=SessionMode.TOTAL, ruv=ruv, generation=NEW_GENERATION, resuming=resuming
    )


def test_the_next_session_of_the_same_supplier_goes_on_with_the_copy(consumer: ConsumerSide) -> None:
    epoch = begin(consumer).epoch
    consumer.copy(COPY, epoch=epoch, seq=1)
    consumer.expire()
    found = resume(consumer, Resuming((SESSION,), (b"db", b"b")), ruv={**BEGUN_AT, 1: csn(7, 1)})
    assert (found.resume_after, found.copied) == ((b"db", b"b"), {1: csn(2, 1)})
    assert found.entries == len(consumer.entries()) == 2
    consumer.copy(REST, epoch=found.epoch, seq=1, session_id=OTHER)
    with pytest.raises(SessionEnded):
        consumer.copy(REST, epoch=epoch, seq=2)
    ticket = Ticket(OTHER, found.epoch)
    now_s = consumer.now_s
    assert complete_total(consumer.conn, ticket, ruv=BEGUN_AT, generation=NEW_GENERATION, now_s=now_s)
    assert set(consumer.entries()) == {(b"db", b"a"), (b"db", b"b"), (b"db", b"c")}


@pytest.mark.parametrize(
    "resuming",
    [
        pytest.param(Resuming((SESSION,), (b"db", b"c")), id="the-consumer-has-less-than-it-acknowledged"),
        pytest.param(Resuming((SESSION,), is_anew=True), id="the-supplier-says-so"),
        pytest.param(Resuming(("rps_00000000000000000000000009",)), id="the-copy-of-yet-another-session"),
    ],
)
def test_a_copy_that_cannot_be_gone_on_with_begins_anew(consumer: ConsumerSide, resuming: Resuming) -> None:
    epoch = begin(consumer).epoch
    consumer.copy(COPY, epoch=epoch, seq=1)
    consumer.expire()
    found = resume(consumer, resuming)
    assert (found.resume_after, found.copied, consumer.entries()) == (None, {}, {})
    assert found.entries == 0


def test_a_copy_that_nobody_counted_is_not_counted_later(consumer: ConsumerSide) -> None:
    epoch = begin(consumer).epoch
    consumer.copy(COPY, epoch=epoch, seq=1)
    table = tables_of(consumer.conn).session
    [[text]] = consumer.conn.execute(f"select total from {table}")
    total = json.loads(text)
    assert total.pop("entries") == 2
    with consumer.conn.transaction():
        consumer.conn.execute(f"update {table} set total = :total", {"total": json.dumps(total)})
    consumer.expire()
    found = begin(consumer)
    assert (found.resume_after, found.entries) == ((b"db", b"b"), None)
    consumer.copy(REST, epoch=found.epoch, seq=1)
    consumer.expire()
    assert begin(consumer).entries is None


def test_half_a_copy_has_no_ruv_and_takes_no_changes_from_others(consumer: ConsumerSide) -> None:
    epoch = begin(consumer).epoch
    consumer.copy(COPY, epoch=epoch, seq=1)
    complete(consumer, epoch)
    consumer.expire()
    granted = consumer.acquire(OTHER, generation=NEW_GENERATION, rid=2, ruv={1: csn(3, 1)})
    assert (granted.ruv, granted.generation, granted.replica.status) == (None, None, "INITIALIZING")
    with consumer.unchanged(), pytest.raises(ReplicaInitializing):
        consumer.apply(chain(1, [3], after=csn(2, 1)), epoch=granted.epoch, seq=1, session_id=OTHER)
    with consumer.unchanged(), pytest.raises(TotalNotUnderWay):
        consumer.copy(REST, epoch=granted.epoch, seq=1, session_id=OTHER)
    # The copy itself is not lost by that.
    consumer.release(epoch=granted.epoch, session_id=OTHER)
    assert begin(consumer).is_copied


def test_changes_before_the_end_of_the_copy_and_entries_in_other_sessions_are_refused(
    consumer: ConsumerSide,
) -> None:
    epoch = begin(consumer).epoch
    with consumer.unchanged(), pytest.raises(TotalIncomplete):
        consumer.apply(chain(1, [3], after=csn(2, 1)), epoch=epoch, seq=1)
    with consumer.unchanged(), pytest.raises(TotalIncomplete):
        consumer.release(epoch=epoch, complete=Adopted(consumer).completion())
    consumer.release(epoch=epoch)
    assert consumer.status() == ("INITIALIZING", None)


def test_complete_total_is_idempotent_and_wants_what_was_begun(consumer: ConsumerSide) -> None:
    epoch = begin(consumer).epoch
    for wrong in ({"ruv": {1: csn(1, 1)}}, {"generation": GENERATION}, {"ruv": {}}):
        with consumer.unchanged(), pytest.raises(TotalRuvDiffers):
            complete(consumer, epoch, **wrong)
    complete(consumer, epoch)
    consumer.apply(chain(1, [3], after=csn(2, 1)), epoch=epoch, seq=1)
    with consumer.unchanged(session=False):
        assert complete(consumer, epoch)[1] == csn(3, 1)


def test_a_completion_after_another_supplier_has_come_is_refused(consumer: ConsumerSide) -> None:
    epoch = begin(consumer).epoch
    complete(consumer, epoch)
    consumer.expire()
    consumer.acquire(OTHER, generation=NEW_GENERATION, rid=2)
    adopted = Adopted(consumer)
    with consumer.unchanged(), pytest.raises(SessionEnded):
        consumer.release(epoch=epoch, complete=adopted.completion())
    assert adopted.heard == []


def test_an_incremental_session_cannot_complete_anything(consumer: ConsumerSide) -> None:
    epoch = consumer.acquire().epoch
    with consumer.unchanged(), pytest.raises(TotalNotUnderWay):
        complete(consumer, epoch, ruv={}, generation=GENERATION)
    with consumer.unchanged(), pytest.raises(TotalNotUnderWay):
        consumer.release(epoch=epoch, complete=Adopted(consumer).completion())


@pytest.mark.parametrize(
    ("generation", "ruv", "rids"),
    [
        pytest.param(GENERATION, {1: csn(1, 1)}, [3], id="of-the-same-generation-a-change-is-unknown"),
        pytest.param(GENERATION, {3: csn(0, 3)}, [3], id="or-an-older-one-is-known"),
        pytest.param(NEW_GENERATION, {3: csn(9, 3)}, [3], id="of-another-generation-anything-is"),
    ],
)
def test_what_only_the_consumer_has_is_not_discarded_unasked(
    consumer: ConsumerSide, generation: str, ruv: Mapping[int, Csn], rids: list[int]
) -> None:
    with consumer.unchanged(), pytest.raises(ConsumerAhead) as refused:
        begin(consumer, generation=generation, ruv=ruv, discard=False)
    assert refused.value.facts == {"rids": rids}
    begin(consumer, generation=generation, ruv=ruv, discard=True)
    assert consumer.entries() == {}


def test_a_consumer_that_the_supplier_covers_needs_no_word(consumer: ConsumerSide) -> None:
    begin(consumer, generation=GENERATION, ruv={3: csn(1, 3)}, discard=False)
    assert consumer.status() == ("INITIALIZING", None)


def test_a_supplier_without_a_generation_has_nothing_to_copy(consumer: ConsumerSide) -> None:
    with consumer.unchanged(), pytest.raises(GenerationMismatch):
        consumer.acquire(mode=SessionMode.TOTAL, generation=None, discard=True)


def test_an_entry_of_the_future_is_refused(consumer: ConsumerSide) -> None:
    epoch = begin(consumer).epoch
    with consumer.unchanged(), pytest.raises(ClockSkewed):
        consumer.copy([(b"db", b"a", b"1", Csn.of(NOW_S + 301, 0, 1))], epoch=epoch, seq=1)


def test_local_changes_after_it_are_newer_than_the_copy(consumer: ConsumerSide) -> None:
    at = {1: Csn.of(NOW_S + 200, 2, 1)}
    epoch = begin(consumer, ruv=at).epoch
    complete(consumer, epoch, ruv=at)
    assert next_csn(snapshot(consumer.conn).generator, now_s=NOW_S)[0] > at[1]


def test_own_changes_that_the_copy_lacks_keep_the_replica_read_only(consumer: ConsumerSide) -> None:
    mark_restored(consumer.conn, upto=csn(5, OWN_RID))
    epoch = begin(consumer).epoch
    complete(consumer, epoch)
    released = consumer.release(epoch=epoch, complete=Adopted(consumer).completion())
    assert (released.replica.status, released.replica.restored_upto) == ("RESTORED", csn(5, OWN_RID))
    mark = consumer.acquire(OTHER, generation=NEW_GENERATION).epoch
    missing = chain(OWN_RID, [2, 3, 4, 5], after=csn(1, OWN_RID))
    consumer.apply(missing, epoch=mark, seq=1, session_id=OTHER)
    assert consumer.status() == ("ONLINE", None)


def test_own_changes_that_the_copy_has_end_restored(consumer: ConsumerSide) -> None:
    mark_restored(consumer.conn, upto=csn(1, OWN_RID))
    epoch = begin(consumer).epoch
    complete(consumer, epoch)
    consumer.release(epoch=epoch, complete=Adopted(consumer).completion())
    assert consumer.status() == ("ONLINE", None)


def test_what_the_service_cannot_remember_does_not_become_readable(consumer: ConsumerSide) -> None:
    epoch = begin(consumer).epoch
    complete(consumer, epoch)

    def fail(_incarnation: str, _own_max: Csn | None) -> None:
        raise ConnectionError

    with consumer.unchanged(), pytest.raises(ConnectionError):
        consumer.release(epoch=epoch, complete=Completion("inc_second", fail))
    assert consumer.status() == ("INITIALIZING", None)
