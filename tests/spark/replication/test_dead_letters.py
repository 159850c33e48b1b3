"""Refused records stay in sight until the RUV has passed them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark.replication.dead_letters import (
    SHOWN_MAX_BYTES,
    Direction,
    Refused,
    count_open,
    list_dead_letters,
    put_dead_letters,
    resolve_dead_letters,
)
from spark.targets.connection import Connection, Target
from tests.spark.replication.replica_tables import (
    NOW_S,
    csn,
    make_tables,
    opened,
    rolled_back,
)


@pytest.fixture
def conn(bare_place: Target) -> Iterator[Connection]:
    with opened(bare_place) as connection:
        make_tables(connection)
        yield connection


def _refused(
    number: int, rid: int, *, payload: bytes | None = b"\x00\xff", code: str = "KIND_UNKNOWN"
) -> Refused:
    return Refused(csn(number, rid), "NOVELTY", b"db\x00", b"\xfe", payload, code, "it is a novelty")


def test_a_record_without_database_and_key_is_listed(conn: Connection) -> None:
    """An extinction that this version cannot read is one."""
    refused = Refused(csn(1, 1), "EXTINCTION", b"", b"", b"", "EXTINCTION_UNREADABLE", "of a later version")
    put_dead_letters(conn, Direction.RECEIVED, "supplier/1", [refused], now_s=NOW_S)
    [letter] = list_dead_letters(conn, rows_max=10)
    assert (letter.refused, letter.sizes) == (refused, (0, 0, 0))


def test_a_record_refused_again_is_counted_and_tells_the_newest_reason(conn: Connection) -> None:
    put_dead_letters(conn, Direction.SENT, "agr_a", [_refused(1, 1)], now_s=NOW_S)
    put_dead_letters(
        conn,
        Direction.SENT,
        "agr_a",
        [_refused(1, 1, payload=None, code="CSN_TOO_FAR_AHEAD")],
        now_s=NOW_S + 9,
    )
    [letter] = list_dead_letters(conn, rows_max=10)
    assert letter.refused == _refused(1, 1, payload=None, code="CSN_TOO_FAR_AHEAD")
    assert (letter.attempts, letter.first_at_s, letter.last_at_s) == (2, NOW_S, NOW_S + 9)
    assert letter.resolved_at_s is None


def test_a_ruv_resolves_what_it_has_passed_and_nothing_else(conn: Connection) -> None:
    put_dead_letters(conn, Direction.RECEIVED, "paris/1", [_refused(1, 1), _refused(5, 1)], now_s=NOW_S)
    put_dead_letters(conn, Direction.RECEIVED, "rome/2", [_refused(1, 1), _refused(2, 2)], now_s=NOW_S)
    put_dead_letters(conn, Direction.SENT, "agr_a", [_refused(1, 1)], now_s=NOW_S)
    assert resolve_dead_letters(conn, Direction.RECEIVED, {1: csn(4, 1), 3: csn(9, 3)}, now_s=NOW_S + 1) == 2
    assert resolve_dead_letters(conn, Direction.RECEIVED, {1: csn(4, 1)}, now_s=NOW_S + 2) == 0
    opened_ones = {
        (each.peer, each.refused.csn) for each in list_dead_letters(conn, rows_max=9, open_only=True)
    }
    assert opened_ones == {("paris/1", csn(5, 1)), ("rome/2", csn(2, 2)), ("agr_a", csn(1, 1))}
    resolved = [each.resolved_at_s for each in list_dead_letters(conn, rows_max=9)]
    assert sorted(resolved, key=str) == [NOW_S + 1, NOW_S + 1, None, None, None]
    assert count_open(conn, Direction.RECEIVED) == 2
    assert count_open(conn, Direction.RECEIVED, peer="rome/2") == 1


def test_one_peer_can_be_resolved_alone_and_a_new_refusal_opens_it_again(conn: Connection) -> None:
    for peer in ("agr_a", "agr_b"):
        put_dead_letters(conn, Direction.SENT, peer, [_refused(1, 1)], now_s=NOW_S)
    assert resolve_dead_letters(conn, Direction.SENT, {1: csn(1, 1)}, now_s=NOW_S, peer="agr_b") == 1
    assert count_open(conn, Direction.SENT) == 1
    put_dead_letters(conn, Direction.SENT, "agr_b", [_refused(1, 1)], now_s=NOW_S + 3)
    assert count_open(conn, Direction.SENT) == 2


def test_pages_give_every_letter_once_in_order(conn: Connection) -> None:
    for direction in Direction:
        for peer in ("b", "a"):
            refused = [_refused(number, rid) for number in range(5) for rid in (1, 2)]
            put_dead_letters(conn, direction, peer, refused, now_s=NOW_S)
    seen = []
    after = None
    while page := list_dead_letters(conn, rows_max=3, after=after):
        seen += page
        after = page[-1].position
    assert len(seen) == 40
    assert [each.position for each in seen] == sorted({each.position for each in seen})


def test_a_list_shows_no_more_than_a_bound_of_what_was_refused(conn: Connection) -> None:
    """What is refused for its length is kept whole, and a page of such records stays small."""
    large = Refused(csn(1, 1), "CHANGE", b"d", b"k" * 50_000, b"v" * 2_000_000, "RECORD_TOO_LONG", "")
    put_dead_letters(conn, Direction.SENT, "agr_a", [large, _refused(2, 1, payload=None)], now_s=NOW_S)
    first, second = list_dead_letters(conn, rows_max=9)
    assert (len(first.refused.key), first.refused.payload) == (SHOWN_MAX_BYTES, None)
    assert first.sizes == (1, 50_000, 2_000_000)
    assert second.sizes == (3, 1, None)


def test_a_letter_is_as_durable_as_its_batch(conn: Connection) -> None:
    with rolled_back(conn):
        put_dead_letters(conn, Direction.RECEIVED, "rome/2", [_refused(1, 1)], now_s=NOW_S)
    assert list_dead_letters(conn, rows_max=9) == []
