"""The document "Events & Confirmations" of Slony-I, section 4.1.4, sentence by sentence.

Each sentence is asked of the rule over one small cluster; where slonik's own code does otherwise, that stands
beside it (`as_program`). The same rules over real catalogs and HTTP:
tests/http/test_slony_preconditions.py and test_slony_wait.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from spark.events.preconditions.judge import judge
from spark.events.preconditions.records import Command, Newest, Question, Verdict, View
from spark.events.records import Node
from spark.events.waiting import TELL_EVERY_S, Awaited, look

NODES = (1, 2, 3)
CONFIG = {1: Newest(10, "STORE_SET"), 2: Newest(20, "STORE_PATH"), 3: Newest(30, "STORE_PATH")}
SYNCS = {origin: Newest(event.seqno + 5, "SYNC") for origin, event in CONFIG.items()}
DROP_SET = {2: Newest(15, "DROP_SET")}


@dataclass
class Cluster:
    """Three nodes; `lags` says, by (origin, receiver), how far the receiver is where it is not up to date."""

    lags: dict[tuple[int, int], int] = field(default_factory=dict)
    inactive: frozenset[int] = frozenset()
    unasked: frozenset[int] = frozenset()

    def ask(
        self, command: Command, node: int, other: int | None = None, *, as_program: bool = False
    ) -> Verdict:
        confirmed = {(o, r): SYNCS[o].seqno for o in NODES for r in NODES if o != r} | self.lags
        nodes = tuple(Node(each, each not in self.inactive, False, None) for each in NODES)
        views = {
            each: View(each, nodes, any=SYNCS, config=CONFIG, drop_set=DROP_SET, confirmed=confirmed)
            for each in set(NODES) - self.unasked
        }
        return judge(Question(command, node, other), views, as_program=as_program)

    def lacking(
        self, command: Command, node: int, other: int | None = None, *, as_program: bool = False
    ) -> list[tuple[int, int, int]]:
        """(origin, seqno of the event, node that lacks it)."""
        verdict = self.ask(command, node, other, as_program=as_program)
        assert verdict.is_met == (verdict.missing == ())
        return [
            (each.origin, each.event.seqno, each.node) for each in verdict.missing if each.event is not None
        ]


@pytest.mark.parametrize("as_program", [False, True])
def test_an_event_of_another_node_waits_for_the_last_configuration_event(as_program: bool) -> None:
    # "Before slonik submits an event to a node, it waits until that node has confirmed the last configuration
    # event from the previous event node."
    submit = Command.SUBMIT_TO_OTHER_NODE
    assert Cluster({(1, 2): 9}).lacking(submit, 2, 1, as_program=as_program) == [(1, 10, 2)]
    assert Cluster({(1, 2): 10}).lacking(submit, 2, 1, as_program=as_program) == []  # its SYNCs do not matter
    assert Cluster({(3, 2): 0}).lacking(submit, 2, 1, as_program=as_program) == []  # nor do other nodes


@pytest.mark.parametrize("as_program", [False, True])
def test_subscribe_set_wants_a_provider_that_has_all_configuration_events(as_program: bool) -> None:
    # "Before slonik submits a SLONIK SUBSCRIBE SET command, it verifies that the provider node has
    # confirmed all configuration events from all other nodes."
    lagging = Cluster({(1, 2): 9, (3, 2): 29, (2, 1): 0, (1, 3): 0})
    assert lagging.lacking(Command.SUBSCRIBE_SET, 2, as_program=as_program) == [(1, 10, 2), (3, 30, 2)]
    only_syncs = Cluster({(1, 2): 10, (3, 2): 30})
    assert only_syncs.lacking(Command.SUBSCRIBE_SET, 2, as_program=as_program) == []


def test_drop_node_wants_all_other_nodes_caught_up() -> None:
    # "Before slonik submits a SLONIK DROP NODE event, it verifies that all nodes in the cluster (aside
    # from the one being dropped, of course!) have already caught up with all other nodes"
    lagging = Cluster({(1, 2): 9, (3, 2): 34, (1, 3): 0, (2, 3): 0})
    assert lagging.lacking(Command.DROP_NODE, 3, 1) == [(1, 10, 2), (3, 35, 2)]
    # The program's code: only the event node, and only of the dropped node's events, SYNCs among them.
    assert lagging.lacking(Command.DROP_NODE, 3, 1, as_program=True) == []
    behind = Cluster({(3, 1): 34})
    assert behind.lacking(Command.DROP_NODE, 3, 1, as_program=True) == [(3, 35, 1)]
    assert behind.lacking(Command.DROP_NODE, 3, 1) == [(3, 35, 1)]


@pytest.mark.parametrize("as_program", [False, True])
def test_clone_prepare_wants_the_cloned_node_caught_up(as_program: bool) -> None:
    # "Before slonik submits a SLONIK CLONE PREPARE it verifies that the node being cloned is caught up
    # with all other nodes in the cluster."
    lagging = Cluster({(1, 2): 9, (2, 3): 0})
    assert lagging.lacking(Command.CLONE_PREPARE, 2, as_program=as_program) == [(1, 10, 2)]


def test_create_set_wants_drop_sets_confirmed_by_all_nodes() -> None:
    # "Before slonik submits a SLONIK CREATE SET command it verifies that any SLONIK DROP SET commands have
    # been confirmed by all nodes."
    lagging = Cluster({(2, 3): 14, (1, 3): 0})
    assert lagging.lacking(Command.CREATE_SET, 1) == [(2, 15, 3)]
    # The program's code: only the origin of the new set.
    assert lagging.lacking(Command.CREATE_SET, 1, as_program=True) == []
    assert lagging.lacking(Command.CREATE_SET, 3, as_program=True) == [(2, 15, 3)]


@pytest.mark.parametrize("as_program", [False, True])
@pytest.mark.parametrize("command", [Command.SUBSCRIBE_SET, Command.CLONE_PREPARE, Command.CREATE_SET])
def test_every_node_is_asked_for_its_last_event(command: Command, as_program: bool) -> None:
    # "When slonik starts up, it contacts all nodes for which it has SLONIK ADMIN CONNINFO information, to
    # find the last non-SYNC event from each node." One that it cannot reach it skips; here nothing is met
    # without it.
    verdict = Cluster(unasked=frozenset({3})).ask(command, 1, as_program=as_program)
    assert (verdict.is_met, verdict.missing, verdict.not_evaluated) == (False, (), (3,))
    gone = Cluster(unasked=frozenset({3}), inactive=frozenset({3}))
    assert gone.ask(command, 1, as_program=as_program).is_met


def test_outstanding_events_are_named_every_ten_seconds() -> None:
    # "Whenever slonik is waiting for an event confirmation, it displays a message every 10 seconds indicating
    # which events are still outstanding." (The stream itself: tests/http/test_slony_wait.py.)
    assert TELL_EVERY_S == 10
    nodes = [Node(each, True, False, None) for each in NODES]
    found = look(Awaited({1: 10, 2: 20}, is_every_origin=True), nodes, {(1, 2): 10, (1, 3): 9, (2, 1): 20})
    assert [(each.origin, each.seqno, each.receiver, each.behind) for each in found.outstanding] == [
        (1, 10, 3, 1),
        (2, 20, 3, None),
    ]
