"""Keys that an admin names: a peer squats none, and one that was learned wrongly is forgotten.

The key of a replica id was learned from whoever spoke of it first, and no verb forgot it.
Source: issue 15, B3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.replication.errors import KeyKnown
from spark.replication.proofs.shown_proofs import shown_history
from spark.replication.records import SessionMode
from spark.replication.replica.named_keys import forget_key, pin_key, read_keys
from spark.replication.session_errors import DuplicateRid
from spark.replication.sessions.session import Acquire, acquire
from tests.spark.replication.history_sites import GENERATION, Machine, session

SQUATTED = bytes(range(32))


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine, Machine]]:
    """Replicas 1, 2 and 9, which have never heard of each other."""
    made = (
        Machine(1, tmp_path / "1.db"),
        Machine(2, tmp_path / "2.db"),
        Machine(9, tmp_path / "9.db"),
    )
    made[0].write(b"one")
    yield made
    for each in made:
        each.close()


def _speak_of_one(nine: Machine, consumer: Machine) -> None:
    """An acquire that says what the key of replica 1 is."""
    nine.clock_s = consumer.clock_s = max(nine.clock_s, consumer.clock_s) + 1
    history = replace(shown_history(nine.conn, {}, 9), keys={1: SQUATTED})
    now = Csn.of(nine.clock_s, 0, 9)
    request = Acquire(
        "rps_x", SessionMode.INCREMENTAL, "nine", 9, GENERATION, {}, now, 600.0, history=history
    )
    acquire(consumer.conn, request, now_s=consumer.clock_s)
    consumer.conn.execute("update replica_session set expires_at_s = 1")


def test_a_key_that_was_pinned_is_not_squatted(machines: tuple[Machine, Machine, Machine]) -> None:
    one, two, nine = machines
    pin_key(two.conn, 1, read_keys(one.conn).own)
    with pytest.raises(DuplicateRid):
        _speak_of_one(nine, two)
    assert session(one, two) == "UP_TO_DATE"


def test_a_squatted_key_is_exchanged_for_the_right_one(machines: tuple[Machine, Machine, Machine]) -> None:
    one, two, nine = machines
    _speak_of_one(nine, two)
    assert session(one, two) == "DUPLICATE_RID"
    right = read_keys(one.conn).own
    with pytest.raises(KeyKnown, match=SQUATTED.hex()):
        pin_key(two.conn, 1, right)
    with pytest.raises(KeyKnown):
        pin_key(two.conn, 1, right, instead_of=bytes(32))
    for _ in range(2):
        pin_key(two.conn, 1, right, instead_of=SQUATTED)
    with pytest.raises(DuplicateRid):
        _speak_of_one(nine, two)
    assert session(one, two) == "UP_TO_DATE"


def test_a_replica_that_was_lost_is_made_anew_under_its_number(
    machines: tuple[Machine, Machine, Machine], tmp_path: Path
) -> None:
    one, two, _ = machines
    assert session(one, two) == "UP_TO_DATE"
    old = read_keys(one.conn).own
    anew = Machine(1, tmp_path / "anew.db")
    try:
        assert session(two, anew, mode=SessionMode.TOTAL) == "DUPLICATE_RID"
        assert forget_key(two.conn, 1) == old
        assert forget_key(two.conn, 1) is None
        assert two.conn.execute("select 1 from replica_signed_heads where rid = 1") == []
        assert session(two, anew, mode=SessionMode.TOTAL) == "UP_TO_DATE"
        assert anew.write(b"two")
        assert session(anew, two) == "UP_TO_DATE"
        assert set(two.entries()) == {b"one", b"two"}
        assert read_keys(two.conn).others == {1: read_keys(anew.conn).own}
    finally:
        anew.close()


def test_the_own_key_is_nobodys_to_name(machines: tuple[Machine, Machine, Machine]) -> None:
    one, _, _ = machines
    with pytest.raises(KeyKnown, match="itself"):
        pin_key(one.conn, 1, SQUATTED)
    with pytest.raises(KeyKnown, match="itself"):
        forget_key(one.conn, 1)
