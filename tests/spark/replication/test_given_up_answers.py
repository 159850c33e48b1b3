"""Answers of keyed requests whose changes were given up: the same request is written anew, not replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.replication.records import SessionMode
from spark.replication.replica.local_write import RequestWritten
from spark.replication.replica.restored import accept_loss
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Completion, complete_total
from tests.spark.replication.consumer_side import (
    GENERATION,
    OWN_RID,
    SESSION,
    ConsumerSide,
    consumer_side,
    target_of,
)
from tests.spark.replication.extinct_keys import SOUND, local, write
from tests.spark.replication.replica_tables import csn

SUPPLIED = csn(5, 1)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsumerSide]:
    """A replica that is ONLINE and empty."""
    with consumer_side(target_of(request, request.param, tmp_path)) as found:
        yield found


def ask(side: ConsumerSide, key: str, incarnation: str = SOUND.incarnation) -> RequestWritten:
    """A write of one entry under an Idempotency-Key."""
    expected = replace(SOUND, incarnation=incarnation)
    [done] = write(side.conn, local([(key.encode(), b"1")], key=key), expected=expected).requests
    assert isinstance(done, RequestWritten)
    return done


def total(side: ConsumerSide, own: str | None, *, generation: str = GENERATION, discard: bool = True) -> None:
    """A copy of a supplier that has these own changes of the replica, and no entry."""
    ruv = {1: SUPPLIED} | ({} if own is None else {OWN_RID: Csn(own)})
    epoch = side.acquire(mode=SessionMode.TOTAL, generation=generation, ruv=ruv, discard=discard).epoch
    complete_total(
        side.conn,
        Ticket(SESSION, epoch),
        ruv=ruv,
        generation=generation,
        now_s=side.now_s,
    )
    side.release(epoch=epoch, complete=Completion("inc_second", lambda *_: None))


def test_what_a_copy_discards_is_written_anew_and_what_its_supplier_has_is_replayed(
    side: ConsumerSide,
) -> None:
    kept, lost = ask(side, "kept"), ask(side, "lost")
    total(side, kept.last_csn)
    assert ask(side, "kept", "inc_second") == replace(kept, replayed=True)
    again = ask(side, "lost", "inc_second")
    assert (again.replayed, side.entries()) == (False, {(b"db", b"lost"): (b"1", again.last_csn)})
    assert (again.last_csn or "") > (lost.last_csn or "")
    assert ask(side, "lost", "inc_second") == replace(again, replayed=True)


def test_a_copy_of_another_generation_discards_all(side: ConsumerSide) -> None:
    first = ask(side, "first")
    total(side, first.last_csn, generation=csn(3, 1))
    assert not ask(side, "first", "inc_second").replayed


def test_what_is_accepted_as_lost_after_a_copy_is_written_anew(side: ConsumerSide) -> None:
    kept, lost = ask(side, "kept"), ask(side, "lost")
    assert lost.last_csn is not None
    all_of_it = {1: SUPPLIED, OWN_RID: Csn(lost.last_csn)}
    side.acquire(mode=SessionMode.TOTAL, ruv=all_of_it)  # begun by one who has all
    side.expire()
    total(side, kept.last_csn, discard=False)  # and ended by one who has less
    assert side.status()[0] == "RESTORED"
    assert accept_loss(side.conn, incarnation="inc_third", now_s=side.now_s) is not None
    assert ask(side, "kept", "inc_third") == replace(kept, replayed=True)
    assert not ask(side, "lost", "inc_third").replayed
