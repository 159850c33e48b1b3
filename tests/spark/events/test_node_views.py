"""What a recorded node knows, and what the rules say of the recorded cluster."""

import pytest

from spark.events.catalog import read_catalog
from spark.events.node_views import newest_seqnos, read_view
from spark.events.preconditions.judge import judge
from spark.events.preconditions.records import Command, Newest, Question, View
from spark.events.waiting import Awaited, Outstanding, Why, look
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, State

pytestmark = pytest.mark.postgresql


def view_of(loaded: LoadedCatalog) -> View:
    with loaded.connect(read_only=True) as conn:
        return read_view(conn, read_catalog(conn, loaded.cluster))


def views_of(catalogs: Catalogs, state: State) -> dict[int, View]:
    return {node: view_of(catalogs.load(state, node)) for node in (1, 2, 3)}


def test_view_equals_the_recorded_rows_counted_one_by_one(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1, cluster='Night "Shift"')
    rows, view = loaded.rows(), view_of(loaded)
    events = [(row[0], row[1], row[4]) for row in rows["sl_event"]]
    for kind, types in (
        (view.any, {event[2] for event in events}),
        (view.config, {event[2] for event in events} - {"SYNC"}),
        (view.drop_set, {"DROP_SET"}),
    ):
        expected: dict[int, Newest] = {}
        for origin, seqno, name in sorted(events):
            if name in types:
                expected[origin] = Newest(seqno, name)
        assert kind == expected
    confirmed: dict[tuple[int, int], int] = {}
    for origin, receiver, seqno, _ in rows["sl_confirm"]:
        confirmed[origin, receiver] = max(seqno, confirmed.get((origin, receiver), 0))
    assert view.confirmed == {pair: seqno for pair, seqno in confirmed.items() if pair[0] != pair[1]}
    with loaded.connect() as conn:
        newest = newest_seqnos(conn, read_catalog(conn, loaded.cluster))
    assert newest == {origin: event.seqno for origin, event in view.any.items()}


def test_drop_set_is_the_newest_of_its_origin(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    loaded.execute(
        *(
            f"insert into sl_event (ev_origin, ev_seqno, ev_type) values ({origin}, {seqno}, '{kind}')"
            for origin, seqno, kind in (
                (2, 5_000_000_900, "DROP_SET"),
                (2, 5_000_000_905, "DROP_SET"),
                (2, 5_000_000_906, "STORE_PATH"),
                (2, 5_000_000_907, "SYNC"),
            )
        )
    )
    view = view_of(loaded)
    assert view.drop_set == {2: Newest(5_000_000_905, "DROP_SET")}
    assert (view.config[2], view.any[2]) == (
        Newest(5_000_000_906, "STORE_PATH"),
        Newest(5_000_000_907, "SYNC"),
    )


def test_nothing_is_known_of_an_empty_catalog(catalogs: Catalogs) -> None:
    loaded = catalogs.empty(node=4)
    assert view_of(loaded) == View(4, ())
    with loaded.connect() as conn:
        assert newest_seqnos(conn, read_catalog(conn, loaded.cluster)) == {}


def test_recorded_cluster_with_node_3_down_is_waited_for_and_caught_up_after(catalogs: Catalogs) -> None:
    """facts/slony, section 7: its confirmations of node 1's events are frozen at 5000000113 in fxa."""
    down = view_of(catalogs.load("fxa", 1))
    last = down.any[1].seqno
    found = look(Awaited({1: last}, receiver=3), down.nodes, down.confirmed)
    assert found.outstanding == (Outstanding(1, last, 3, down.confirmed[1, 3], Why.BEHIND),)
    assert down.confirmed[1, 3] < last
    up = view_of(catalogs.load("fxc", 1))
    assert look(Awaited({1: last}), up.nodes, up.confirmed).is_satisfied


def test_deleted_confirmations_are_outstanding_where_slonik_was_satisfied(catalogs: Catalogs) -> None:
    """facts/slony, section 6: slonik ended with 0 while node 3 was down, after its rows were deleted."""
    loaded = catalogs.load("fxa", 1)
    loaded.execute("delete from sl_confirm where con_received = 3")
    view = view_of(loaded)
    last = view.any[1].seqno
    found = look(Awaited({1: last}, receiver=3), view.nodes, view.confirmed)
    assert found.outstanding == (Outstanding(1, last, 3, None, Why.NEVER_CONFIRMED),)


@pytest.mark.parametrize("as_program", [False, True])
def test_every_command_may_be_submitted_to_the_recorded_cluster_at_rest(
    catalogs: Catalogs, as_program: bool
) -> None:
    views = views_of(catalogs, "fxc")
    questions = [
        Question(Command.SUBSCRIBE_SET, 2),
        Question(Command.CLONE_PREPARE, 1),
        Question(Command.CREATE_SET, 1),
        Question(Command.SUBMIT_TO_OTHER_NODE, 3, other=1),
    ]
    assert [judge(each, views, as_program=as_program).is_met for each in questions] == [True] * 4
