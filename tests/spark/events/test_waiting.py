"""WAIT FOR EVENT as a rule over values: truth table, a brute-force model, slonik's own query beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.events.records import Node
from spark.events.waiting import Awaited, Impossible, Look, Outstanding, Why, look, pause_s

SEQNO = 5_000_000_100


def node(node_id: int, *, active: bool = True, failed: bool = False) -> Node:
    return Node(id=node_id, is_active=active, has_failed=failed, comment=None)


THREE = (node(1), node(2), node(3))


def outstanding(receiver: int, confirmed: int | None, why: Why, *, origin: int = 1) -> Outstanding:
    return Outstanding(origin, SEQNO, receiver, confirmed, why)


@pytest.mark.parametrize(
    ("nodes", "confirmed", "expected"),
    [
        pytest.param(THREE, {(1, 2): SEQNO, (1, 3): SEQNO}, Look(2, ()), id="all"),
        pytest.param(THREE, {(1, 2): SEQNO + 5, (1, 3): SEQNO}, Look(2, ()), id="a later one confirms it"),
        pytest.param(
            THREE,
            {(1, 2): SEQNO, (1, 3): SEQNO - 1},
            Look(2, (outstanding(3, SEQNO - 1, Why.BEHIND),)),
            id="one behind",
        ),
        pytest.param(
            THREE,
            {(1, 2): SEQNO},
            Look(2, (outstanding(3, None, Why.NEVER_CONFIRMED),)),
            id="no row is outstanding",
        ),
        pytest.param(
            THREE,
            {(1, 2): SEQNO, (1, 3): None},
            Look(2, (outstanding(3, None, Why.NEVER_CONFIRMED),)),
            id="no row, named",
        ),
        pytest.param(
            THREE,
            {(1, 2): SEQNO, (1, 3): 0},
            Look(2, (outstanding(3, 0, Why.BEHIND),)),
            id="the row that ENABLE_NODE makes",
        ),
        pytest.param(
            THREE,
            {(2, 3): SEQNO, (3, 2): SEQNO, (2, 1): SEQNO, (1, 1): SEQNO},
            Look(
                2,
                (
                    outstanding(2, None, Why.NEVER_CONFIRMED),
                    outstanding(3, None, Why.NEVER_CONFIRMED),
                ),
            ),
            id="rows of other origins say nothing",
        ),
        pytest.param((node(1), node(2), node(3, active=False)), {(1, 2): SEQNO}, Look(1, ()), id="inactive"),
        pytest.param((node(1), node(2), node(3, failed=True)), {(1, 2): SEQNO}, Look(1, ()), id="failed"),
        pytest.param((node(1), node(2)), {(1, 2): SEQNO, (1, 3): 1}, Look(1, ()), id="a dropped one's row"),
        pytest.param((node(1),), {}, Look(0, (), impossible=Impossible.NO_RECEIVERS), id="alone"),
        pytest.param(
            (node(1), node(2, active=False)),
            {(1, 2): SEQNO},
            Look(0, (), impossible=Impossible.NO_RECEIVERS),
            id="nobody else is active",
        ),
        pytest.param(
            (node(2), node(3)),
            {(1, 2): SEQNO, (1, 3): SEQNO},
            Look(0, (), (1,), Impossible.ORIGIN_GONE),
            id="the origin was dropped",
        ),
    ],
)
def test_all_receivers_of_one_origin(
    nodes: tuple[Node, ...], confirmed: dict[tuple[int, int], int | None], expected: Look
) -> None:
    assert look(Awaited({1: SEQNO}), nodes, confirmed) == expected


@pytest.mark.parametrize(
    ("third", "confirmed", "expected"),
    [
        (node(3), {(1, 3): SEQNO}, Look(1, ())),
        (node(3), {(1, 2): SEQNO}, Look(1, (outstanding(3, None, Why.NEVER_CONFIRMED),))),
        (node(3), {(1, 3): SEQNO - 9}, Look(1, (outstanding(3, SEQNO - 9, Why.BEHIND),))),
        (node(3, active=False), {(1, 3): SEQNO}, Look(1, (outstanding(3, SEQNO, Why.NOT_ACTIVE),))),
        (node(3, failed=True), {(1, 3): SEQNO}, Look(1, (outstanding(3, SEQNO, Why.NOT_ACTIVE),))),
        (None, {(1, 3): SEQNO}, Look(0, (), impossible=Impossible.RECEIVER_GONE)),
    ],
)
def test_named_receiver(
    third: Node | None, confirmed: dict[tuple[int, int], int | None], expected: Look
) -> None:
    nodes = (node(1), node(2)) if third is None else (node(1), node(2), third)
    assert look(Awaited({1: SEQNO}, receiver=3), nodes, confirmed) == expected


def test_every_origin_leaves_out_the_named_receiver_itself() -> None:
    awaited = Awaited({1: SEQNO, 2: SEQNO, 3: SEQNO}, is_every_origin=True, receiver=3)
    found = look(awaited, THREE, {(1, 3): SEQNO})
    assert found == Look(2, (outstanding(3, None, Why.NEVER_CONFIRMED, origin=2),))


def test_every_origin_waits_no_longer_for_a_dropped_one() -> None:
    awaited = Awaited({1: SEQNO, 2: SEQNO, 3: SEQNO}, is_every_origin=True)
    confirmed: dict[tuple[int, int], int | None] = {(1, 2): SEQNO, (2, 1): SEQNO}
    before = look(awaited, THREE, confirmed)
    assert [(each.origin, each.receiver) for each in before.outstanding] == [(1, 3), (2, 3), (3, 1), (3, 2)]
    after = look(awaited, THREE[:2], confirmed)
    assert after == Look(2, (), (3,))
    assert after.is_satisfied


def test_node_that_becomes_active_counts_from_then_on() -> None:
    awaited, confirmed = Awaited({1: SEQNO}), {(1, 2): SEQNO}
    assert look(awaited, (*THREE[:2], node(3, active=False)), confirmed).is_satisfied
    assert look(awaited, THREE, confirmed).outstanding == (outstanding(3, None, Why.NEVER_CONFIRMED),)


def test_only_a_look_with_pairs_and_nothing_outstanding_is_satisfied() -> None:
    assert not Look(0, ()).is_satisfied
    assert not Look(1, (outstanding(2, 1, Why.BEHIND),)).is_satisfied
    assert not Look(1, (), impossible=Impossible.ORIGIN_GONE).is_satisfied
    assert Look(1, ()).is_satisfied


@pytest.mark.parametrize(
    ("confirmed", "behind"), [(None, None), (SEQNO - 40, 40), (SEQNO + 1, 0), (0, SEQNO)]
)
def test_behind_is_infinite_for_who_never_confirmed(confirmed: int | None, behind: int | None) -> None:
    assert outstanding(2, confirmed, Why.BEHIND).behind == behind


@pytest.mark.parametrize(
    ("waited_s", "pause"),
    [(0, 1), (59.9, 1), (60, 2), (599.9, 2), (600, 5), (3_599.9, 5), (3_600, 10), (1_000_000, 10)],
)
def test_pause_grows_with_the_wait(waited_s: float, pause: float) -> None:
    assert pause_s(waited_s) == pause


# -- random clusters

NODES = st.lists(st.tuples(st.booleans(), st.sampled_from([False, False, True])), min_size=1, max_size=5).map(
    lambda flags: tuple(node(i + 1, active=a, failed=f) for i, (a, f) in enumerate(flags))
)
ROWS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 4)), max_size=40)


def newest_rows(rows: list[tuple[int, int, int]]) -> dict[tuple[int, int], int | None]:
    newest: dict[tuple[int, int], int | None] = {}
    for origin, receiver, seqno in rows:
        newest[origin, receiver] = max(seqno, newest.get((origin, receiver)) or 0)
    return newest


def processed(rows: list[tuple[int, int, int]], origin: int, receiver: int) -> set[int]:
    """Every single event that a receiver has processed: a row means all events up to its own."""
    return {
        seqno
        for row_origin, row_receiver, upto in rows
        if (row_origin, row_receiver) == (origin, receiver)
        for seqno in range(upto + 1)
    }


def slonik_rows(
    nodes: tuple[Node, ...], rows: list[tuple[int, int, int]], origin: int, seqno: int
) -> set[int]:
    """What slonik's query finds: nodes that are active and have a row, their newest below the event."""
    joined: dict[int, list[int]] = {}
    for each in nodes:
        if each.id != origin and each.is_active:
            for row_origin, row_receiver, upto in rows:
                if (row_origin, row_receiver) == (origin, each.id):
                    joined.setdefault(each.id, []).append(upto)
    return {node_id for node_id, seqnos in joined.items() if max(seqnos) < seqno}


@given(nodes=NODES, rows=ROWS, awaited=st.dictionaries(st.integers(1, 6), st.integers(1, 4), min_size=1))
def test_all_of_all_equals_a_model_that_counts_single_events(
    nodes: tuple[Node, ...], rows: list[tuple[int, int, int]], awaited: dict[int, int]
) -> None:
    found = look(Awaited(awaited, is_every_origin=True), nodes, newest_rows(rows))
    ids = {each.id for each in nodes}
    alive = {each.id for each in nodes if each.is_active and not each.has_failed}
    pairs = {(origin, receiver) for origin in set(awaited) & ids for receiver in alive if receiver != origin}
    lacking = {pair for pair in pairs if awaited[pair[0]] not in processed(rows, *pair)}
    assert found.pairs == len(pairs)
    assert {(each.origin, each.receiver) for each in found.outstanding} == lacking
    assert found.origins_gone == tuple(sorted(set(awaited) - ids))
    assert found.is_satisfied == (bool(pairs) and not lacking)


@given(nodes=NODES, rows=ROWS, origin=st.integers(1, 6), receiver=st.integers(1, 6), seqno=st.integers(1, 4))
def test_one_of_one_equals_a_model_that_counts_single_events(
    nodes: tuple[Node, ...], rows: list[tuple[int, int, int]], origin: int, receiver: int, seqno: int
) -> None:
    found = look(Awaited({origin: seqno}, receiver=receiver), nodes, newest_rows(rows))
    by_id = {each.id: each for each in nodes}
    counts = origin in by_id and receiver in by_id and receiver != origin
    alive = counts and by_id[receiver].is_active and not by_id[receiver].has_failed
    assert found.is_satisfied == (alive and seqno in processed(rows, origin, receiver))


@given(nodes=NODES, rows=ROWS, origin=st.integers(1, 5), seqno=st.integers(1, 4))
def test_program_is_satisfied_earlier_only_by_nodes_without_a_row_and_later_only_by_failed_ones(
    nodes: tuple[Node, ...], rows: list[tuple[int, int, int]], origin: int, seqno: int
) -> None:
    found = look(Awaited({origin: seqno}, is_every_origin=True), nodes, newest_rows(rows))
    ours = {each.receiver: each.why for each in found.outstanding}
    theirs = slonik_rows(nodes, rows, origin, seqno)
    if origin in {each.id for each in nodes}:
        assert {receiver for receiver, why in ours.items() if why is Why.BEHIND} <= theirs
        assert all(ours[each] is Why.NEVER_CONFIRMED for each in set(ours) - theirs)
        assert all(each.has_failed for each in nodes if each.id in theirs - set(ours))
