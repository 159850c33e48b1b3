"""A connection that dies at any statement of a session leaves all of a request, or nothing.

The story: a RUV that was advanced outside of the commit, or a cursor outside of the entries' transaction,
would survive such a death and hide for good what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark.formats.csn import Csn
from spark.replication.records import SessionMode
from spark.replication.replica.restored import accept_loss
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Completion, complete_total
from spark.targets.connection import Connection, Target
from spark.targets.errors import TargetError
from tests.dying import Dying
from tests.spark.replication.consumer_side import (
    HELD,
    OWN_RID,
    SESSION,
    ConsumerSide,
    chain,
    change,
    consumer_side,
)
from tests.spark.replication.extinct_keys import discard_beside_a_loss
from tests.spark.replication.replica_tables import csn, opened

BEGUN_AT = {1: csn(2, 1)}
LOST = csn(7, OWN_RID)
Tables = dict[str, list[tuple[Any, ...]]]


def held(conn: Connection) -> Tables:
    """Every row but the session's, whose times differ; of it what a batch moves."""
    side = ConsumerSide(conn)
    [row] = side.rows("session")
    moved = [(*row[:9], *row[10:])]
    tables = ("extinctions", *(table for table in HELD if table != "dead_letters"))
    return {table: side.rows(table) for table in tables} | {"session": moved}


def incremental(side: ConsumerSide) -> int:
    """A session that has brought something already."""
    epoch = side.acquire(ruv={OWN_RID: csn(2, OWN_RID)}).epoch
    side.apply(chain(1, [1]) + chain(OWN_RID, [1]), epoch=epoch, seq=1)
    return epoch


def total(side: ConsumerSide) -> int:
    """A copy that has begun."""
    epoch = incremental(side)
    side.release(epoch=epoch)
    epoch = side.acquire(mode=SessionMode.TOTAL, ruv=BEGUN_AT, discard=True).epoch
    side.copy([(b"db", b"a", b"1", csn(1, 1))], epoch=epoch, seq=1)
    return epoch


def copied(side: ConsumerSide) -> int:
    """A copy that has ended."""
    epoch = total(side)
    complete(side, epoch)
    return epoch


def beside_a_loss(side: ConsumerSide) -> int:
    """A copy has discarded the record of an extinction, and own changes are missing."""
    discard_beside_a_loss(side, OWN_RID, upto=LOST)
    return side.acquire(ruv={1: csn(5, 1), OWN_RID: LOST}).epoch


def batch(side: ConsumerSide, epoch: int) -> None:
    """Changes of three replicas, a rejected one, and own ones that end RESTORED."""
    rows = chain(1, [2, 3], after=csn(1, 1)) + chain(3, [1]) + chain(OWN_RID, [2], after=csn(1, OWN_RID))
    side.apply([*rows, (csn(1, 4), None, "LATER", b"db", b"k", None)], epoch=epoch, seq=2)


def copy(side: ConsumerSide, epoch: int) -> None:
    """Entries, with a greater CSN for one that is there."""
    rows = [(b"db", b"a", b"2", csn(2, 1)), (b"db", b"b", None, csn(1, 1))]
    side.copy(rows, epoch=epoch, seq=2)


def begin_total(side: ConsumerSide, _epoch: int) -> None:
    """The replica is emptied."""
    side.acquire(mode=SessionMode.TOTAL, ruv=BEGUN_AT, discard=True)


def complete(side: ConsumerSide, epoch: int) -> None:
    """The copy ends."""
    generation = csn(0, 1)
    complete_total(side.conn, Ticket(SESSION, epoch), ruv=BEGUN_AT, generation=generation, now_s=side.now_s)


def go_online(side: ConsumerSide, epoch: int) -> None:
    """The initialisation ends."""

    def adopt(_incarnation: str, _own_max: Csn | None) -> None:
        """Nobody remembers anything here."""

    side.release(epoch=epoch, complete=Completion("inc_second", adopt))


def come_back(side: ConsumerSide, epoch: int) -> None:
    """The own changes are there again, and the extinction has a record."""
    side.apply([change(LOST, None)], epoch=epoch, seq=1)


def give_up(side: ConsumerSide, _epoch: int) -> None:
    """An admin accepts that they are lost."""
    accept_loss(side.conn, incarnation="inc_third", now_s=side.now_s)


@pytest.mark.parametrize("after", [False, True], ids=["unheard", "unanswered"])
@pytest.mark.parametrize(
    ("prepare", "act"),
    [
        pytest.param(incremental, batch, id="batch"),
        pytest.param(total, copy, id="entries"),
        pytest.param(incremental, begin_total, id="begin-total"),
        pytest.param(total, complete, id="complete-total"),
        pytest.param(copied, go_online, id="go-online"),
        pytest.param(beside_a_loss, come_back, id="come-back"),
        pytest.param(beside_a_loss, give_up, id="give-up"),
    ],
)
def test_a_death_at_any_statement_leaves_all_or_nothing(
    place: Target,
    prepare: Callable[[ConsumerSide], int],
    act: Callable[[ConsumerSide, int], None],
    after: bool,
) -> None:
    with consumer_side(place) as side:
        epoch = prepare(side)
    states, at = [], 0
    while True:
        at += 1
        with opened(place) as conn:
            states.append(held(conn))
        with opened(place) as dying:
            session = Dying(dying._session, at, after=after)
            dying._session = session  # type: ignore[assignment]
            try:
                act(ConsumerSide(dying), epoch)
            except TargetError:
                continue
        break
    with opened(place) as conn:
        states.append(held(conn))
    assert session.calls < at, "every statement was met"
    distinct = [state for number, state in enumerate(states) if state not in states[:number]]
    if act is not begin_total:  # whose every acquire is a new epoch
        assert len(distinct) == 2
        assert states[0] == distinct[0]
        assert states[-1] == distinct[-1]
    for state in states:
        _agree(state)


def _agree(state: Tables) -> None:
    """Changelog, entries and RUV tell the same, in whatever state a death has left them."""
    ruv = {row[0]: row[2] for row in state["ruv"]}
    logged: dict[int, str] = {}
    for rid, at, *_ in state["changelog"]:
        logged[rid] = max(at, logged.get(rid, ""))
    status = state["replica"][0][5]
    if status == "INITIALIZING":
        return
    purged = {row[0]: row[3] for row in state["ruv"]}
    assert {rid: logged.get(rid, purged[rid]) for rid in ruv} == ruv
    keys = {(row[4], row[5]) for row in state["changelog"] if row[3] == "CHANGE"}
    assert keys <= {(row[0], row[1]) for row in state["entries"]}
    if status == "ONLINE":
        logged_ones = {row[1] for row in state["changelog"] if row[3] == "EXTINCTION"}
        assert {row[1] for row in state["extinctions"]} <= logged_ones


def test_a_batch_of_which_nobody_knows_is_answered_after_the_death(place: Target) -> None:
    with consumer_side(place) as side:
        epoch = side.acquire().epoch
    rows = [change(csn(1, 1), None)]
    with opened(place) as dying:
        calls = _calls_of(place, epoch)
        dying._session = Dying(dying._session, calls, after=True)  # type: ignore[assignment]
        with pytest.raises(TargetError):
            ConsumerSide(dying).apply(rows, epoch=epoch, seq=2)
    with opened(place) as conn:
        answer = ConsumerSide(conn).apply(rows, epoch=epoch, seq=2)
        assert (answer.replayed, answer.applied, answer.covered) == (True, 0, 1)
        assert ConsumerSide(conn).ruv() == {1: csn(1, 1), 3: csn(1, 3)}


def _calls_of(place: Target, epoch: int) -> int:
    """How many calls the same kind of batch takes; it is the first of the session."""
    with opened(place) as counting:
        session = Dying(counting._session, 0, after=False)
        counting._session = session  # type: ignore[assignment]
        ConsumerSide(counting).apply([change(csn(1, 3), None)], epoch=epoch, seq=1)
        return session.calls
