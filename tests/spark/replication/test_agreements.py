"""Acknowledgements never go back, unknown counts as nothing, removed agreements hold for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from spark.replication.agreements import (
    FLOOR_KEEP_S,
    AgreementUnknown,
    Floor,
    acknowledge,
    floors,
    forget_removed,
    lock_agreements,
    read_agreements,
    register_agreement,
    remove_agreement,
)
from spark.targets.connection import Connection, Target
from spark.targets.errors import TargetLockTimeout
from tests.spark.replication.replica_tables import (
    NOW_S,
    csn,
    make_tables,
    opened,
    postgresql_target,
    rolled_back,
)


@pytest.fixture
def conn(bare_place: Target) -> Iterator[Connection]:
    with opened(bare_place) as connection:
        make_tables(connection)
        yield connection


def test_without_an_agreement_nothing_is_held_back(conn: Connection) -> None:
    assert floors(conn, now_s=NOW_S).of(1) is None


def test_an_acknowledgement_never_goes_back(conn: Connection) -> None:
    register_agreement(conn, "agr_a", now_s=NOW_S)
    acknowledge(conn, "agr_a", {1: csn(5, 1), 2: csn(9, 2)})
    acknowledge(conn, "agr_a", {1: csn(7, 1), 2: csn(8, 2)}, consumer_rid=2)
    acknowledge(conn, "agr_a", {})
    [agreement] = read_agreements(conn)
    assert agreement.acknowledged == {1: csn(7, 1), 2: csn(9, 2)}
    assert agreement.consumer_rid == 2


def test_what_was_not_acknowledged_may_not_go_and_the_answer_names_who_waits(conn: Connection) -> None:
    for agreement_id in ("agr_a", "agr_b", "agr_c"):
        register_agreement(conn, agreement_id, now_s=NOW_S)
    acknowledge(conn, "agr_a", {1: csn(7, 1), 2: csn(3, 2)})
    acknowledge(conn, "agr_b", {1: csn(5, 1)})
    acknowledge(conn, "agr_c", {1: csn(5, 1), 2: csn(9, 2)})
    found = floors(conn, now_s=NOW_S)
    assert found.of(1) == Floor(csn(5, 1), ("agr_b", "agr_c"))
    assert found.of(2) == Floor(None, ("agr_b",))
    assert found.of(3) == Floor(None, ("agr_a", "agr_b", "agr_c"))


def test_a_removed_agreement_keeps_its_floor_for_seven_days(conn: Connection) -> None:
    register_agreement(conn, "agr_a", now_s=NOW_S)
    acknowledge(conn, "agr_a", {1: csn(5, 1)})
    remove_agreement(conn, "agr_a", now_s=NOW_S + 10)
    remove_agreement(conn, "agr_a", now_s=NOW_S + 999)
    end = NOW_S + 10 + FLOOR_KEEP_S
    assert floors(conn, now_s=end - 1).of(1) == Floor(csn(5, 1), ("agr_a",))
    assert floors(conn, now_s=end - 1).of(2) == Floor(None, ("agr_a",))
    assert floors(conn, now_s=end).of(1) is None
    assert forget_removed(conn, now_s=end - 1) == []
    assert forget_removed(conn, now_s=end) == ["agr_a"]
    assert read_agreements(conn) == []
    with pytest.raises(AgreementUnknown):
        acknowledge(conn, "agr_a", {1: csn(6, 1)})
    with pytest.raises(AgreementUnknown):
        remove_agreement(conn, "agr_a", now_s=end)
    # The same id again begins with nothing: what the former one had acknowledged went with it.
    register_agreement(conn, "agr_a", now_s=end)
    assert floors(conn, now_s=end).of(1) == Floor(None, ("agr_a",))


def test_an_agreement_registered_again_counts_with_what_it_had_acknowledged(conn: Connection) -> None:
    register_agreement(conn, "agr_a", now_s=NOW_S, consumer_rid=4)
    acknowledge(conn, "agr_a", {1: csn(5, 1)})
    remove_agreement(conn, "agr_a", now_s=NOW_S)
    register_agreement(conn, "agr_a", now_s=NOW_S + 5)
    [agreement] = read_agreements(conn)
    assert (agreement.removed_at_s, agreement.consumer_rid, agreement.registered_at_s) == (None, 4, NOW_S)
    assert floors(conn, now_s=NOW_S + FLOOR_KEEP_S * 2).of(1) == Floor(csn(5, 1), ("agr_a",))


def test_an_acknowledgement_that_is_rolled_back_never_was(conn: Connection) -> None:
    register_agreement(conn, "agr_a", now_s=NOW_S)
    acknowledge(conn, "agr_a", {1: csn(5, 1)})
    with rolled_back(conn):
        acknowledge(conn, "agr_a", {1: csn(9, 1)})
    assert floors(conn, now_s=NOW_S).of(1) == Floor(csn(5, 1), ("agr_a",))


def test_a_malformed_csn_is_not_kept(conn: Connection) -> None:
    register_agreement(conn, "agr_a", now_s=NOW_S)
    with pytest.raises(ValueError, match="CSN"):
        acknowledge(conn, "agr_a", {1: csn(5, 1), 2: "ffff"})
    assert floors(conn, now_s=NOW_S).of(1) == Floor(None, ("agr_a",))


def test_a_unit_that_has_locked_the_agreements_waits_for_a_registration_and_holds_off_the_next(
    conn: Connection,
) -> None:
    with opened(conn.target) as other:
        with other.transaction():
            register_agreement(other, "agr_a", now_s=NOW_S)
            with pytest.raises(TargetLockTimeout), conn.transaction():
                lock_agreements(conn)
        with conn.transaction():
            lock_agreements(conn)
            assert floors(conn, now_s=NOW_S).of(1) == Floor(None, ("agr_a",))
            with pytest.raises(TargetLockTimeout):
                register_agreement(other, "agr_b", now_s=NOW_S)


def test_acknowledgements_do_not_wait_for_trimming_on_postgresql(postgresql_url: str) -> None:
    with opened(postgresql_target(postgresql_url)) as conn, opened(conn.target) as other:
        make_tables(conn)
        register_agreement(conn, "agr_a", now_s=NOW_S)
        with conn.transaction():
            lock_agreements(conn)
            acknowledge(other, "agr_a", {1: csn(5, 1)})
            assert floors(other, now_s=NOW_S).of(1) == Floor(csn(5, 1), ("agr_a",))


def test_answers_that_arrive_in_any_order_from_threads_leave_the_greatest(conn: Connection) -> None:
    register_agreement(conn, "agr_a", now_s=NOW_S)

    def work(first: int) -> None:
        with opened(conn.target) as own:
            for number in range(first, 60, 3):
                acknowledge(own, "agr_a", {rid: csn(60 - number, rid) for rid in (3, 1, 2)})

    threads = [threading.Thread(target=work, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [agreement] = read_agreements(conn)
    assert agreement.acknowledged == {rid: csn(60, rid) for rid in (1, 2, 3)}
