"""A supplier that lies while it copies: what its consumer can see it refuses, and never shows.

What nobody can see, for no replica has signed the entries of a copy: one that is left out, or has another
value. An admin's word stands for that (DISCARD_NOT_GRANTED), and an audit finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark.formats.changes.batch import decode_arrow, encode_arrow
from spark.formats.changes.errors import BatchUnreadable
from spark.formats.csn import Csn
from spark.replication.consumer.apply import apply_entries
from spark.replication.entry_batches import BOUND_KEY, bound_in, encode_entries
from spark.replication.records import SessionMode, entry_schema
from spark.replication.replica.replica import snapshot
from spark.replication.session_errors import (
    BatchGap,
    BoundBeyondCopy,
    SessionRefused,
    TotalIncomplete,
    TotalRuvDiffers,
)
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Completion, complete_total
from tests.spark.replication.consumer_side import (
    GENERATION,
    SESSION,
    ConsumerSide,
    chain,
    consumer_side,
    entries,
    target_of,
)
from tests.spark.replication.replica_tables import csn

RUV = {1: csn(5, 1)}
FIRST = [(b"db", b"a", b"1", csn(1, 1)), (b"db", b"b", b"2", csn(2, 1))]
REST = [(b"db", b"c", b"3", csn(5, 1))]
NEWER = [(b"db", b"c", b"of another snapshot", csn(7, 1))]


@pytest.fixture
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsumerSide]:
    """A blank consumer."""
    with consumer_side(target_of(request, "sqlite", tmp_path)) as side:
        yield side


def begin(consumer: ConsumerSide) -> int:
    return consumer.acquire(mode=SessionMode.TOTAL, ruv=RUV, generation=GENERATION, rid=1).epoch


def complete(consumer: ConsumerSide, epoch: int, **other: Any) -> None:
    said: dict[str, Any] = {"ruv": RUV, "generation": GENERATION, "now_s": consumer.now_s} | other
    complete_total(consumer.conn, Ticket(SESSION, epoch, said.pop("batch_seq", 0)), **said)


def release(consumer: ConsumerSide, epoch: int) -> str:
    completion = Completion("inc_copied", lambda *_: None)
    return str(consumer.release(epoch=epoch, complete=completion).replica.status)


def test_a_piece_that_comes_twice_changes_nothing(consumer: ConsumerSide) -> None:
    epoch = begin(consumer)
    for seq, rows in enumerate((FIRST, REST, FIRST), start=1):
        consumer.copy(rows, epoch=epoch, seq=seq)
    there = consumer.entries()
    assert consumer.copy(FIRST, epoch=epoch, seq=1).replayed
    complete(consumer, epoch)
    assert (release(consumer, epoch), consumer.entries(), len(there)) == ("ONLINE", there, 3)


@pytest.mark.parametrize(
    ("act", "refused"),
    [
        pytest.param(lambda c, e: c.copy(REST, epoch=e, seq=3), BatchGap, id="a-piece-is-left-out"),
        pytest.param(lambda c, e: complete(c, e, batch_seq=2), BatchGap, id="the-end-names-more"),
        pytest.param(release, TotalIncomplete, id="readable-before-its-end"),
        pytest.param(lambda c, e: complete(c, e, generation=csn(9, 1)), TotalRuvDiffers, id="generation"),
        pytest.param(lambda c, e: complete(c, e, ruv={1: csn(6, 1)}), TotalRuvDiffers, id="more-than-begun"),
        pytest.param(lambda c, e: complete(c, e, ruv={}), TotalRuvDiffers, id="less-than-begun"),
        pytest.param(
            lambda c, e: complete(c, e, buried=csn(6, 1)), BoundBeyondCopy, id="a-bound-beyond-the-copy"
        ),
    ],
)
def test_what_can_be_seen_is_refused(consumer: ConsumerSide, act: Any, refused: type[SessionRefused]) -> None:
    epoch = begin(consumer)
    consumer.copy(FIRST, epoch=epoch, seq=1)
    with consumer.unchanged(), pytest.raises(refused):
        act(consumer, epoch)
    assert consumer.status()[0] == "INITIALIZING"


def test_a_piece_of_another_snapshot_is_not_shown_before_its_changes(consumer: ConsumerSide) -> None:
    """Said to be the end of all: the RUV is that of the beginning, and an entry is newer."""
    epoch = begin(consumer)
    consumer.copy(FIRST, epoch=epoch, seq=1)
    consumer.copy(NEWER, epoch=epoch, seq=2)
    complete(consumer, epoch)
    with consumer.unchanged(), pytest.raises(TotalIncomplete) as found:
        release(consumer, epoch)
    assert found.value.facts == {"rids": [1]}
    consumer.apply(chain(1, [6, 7], after=csn(5, 1)), epoch=epoch, seq=3)
    assert release(consumer, epoch) == "ONLINE"


@pytest.mark.parametrize(
    ("said", "kept"), [(None, csn(4, 1)), (csn(2, 1), csn(4, 1)), (csn(5, 1), csn(5, 1))]
)
def test_the_bound_of_a_piece_stays_with_its_entries(
    consumer: ConsumerSide, said: Csn | None, kept: Csn
) -> None:
    """Whoever ends the copy may know of less: it was put back since."""
    epoch = begin(consumer)
    for seq, (rows, buried) in enumerate(((FIRST, csn(4, 1)), (REST, None)), start=1):
        ticket = Ticket(SESSION, epoch, seq)
        apply_entries(consumer.conn, ticket, entries(rows), now_s=consumer.now_s, buried=buried)
    again = consumer.acquire(mode=SessionMode.TOTAL, ruv=RUV, generation=GENERATION, rid=1)
    assert (again.buried, again.entries) == (csn(4, 1), 3)
    complete(consumer, again.epoch, buried=said)
    assert snapshot(consumer.conn).replica.buried == kept
    whole = consumer.acquire(mode=SessionMode.TOTAL, ruv=RUV, generation=GENERATION, rid=1)
    assert (whole.is_copied, whole.buried) == (True, kept)


def test_a_bound_travels_beside_the_entries() -> None:
    page = entries(FIRST)
    body = encode_entries(page, csn(4, 1))
    assert bound_in(body) == csn(4, 1)
    # Also for who knows of no bounds: it reads the same entries.
    assert decode_arrow(body, entry_schema(), rows_max=9, bytes_max=10**6) == page
    assert bound_in(encode_entries(page, None)) is None


@pytest.mark.parametrize("text", [b"", b"soon", b"\xff" * 20, csn(4, 1).encode() + b"0"])
def test_a_bound_that_is_none_is_refused(text: bytes) -> None:
    page: pa.RecordBatch = entries(FIRST)
    with pytest.raises(BatchUnreadable, match="bound"):
        bound_in(encode_arrow(page.replace_schema_metadata({BOUND_KEY: text})))
