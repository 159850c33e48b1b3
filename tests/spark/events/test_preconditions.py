"""The waits before slonik's commands: the document's rule and the program's side by side, and a model."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.events.preconditions.judge import judge
from spark.events.preconditions.records import Command, Missing, Newest, Question, Verdict, View
from spark.events.records import Node
from spark.events.waiting import Why

Views = dict[int, View]
MET: Final = Verdict((), ())
LAST: Final = {1: Newest(10, "STORE_SET"), 2: Newest(20, "SUBSCRIBE_SET"), 3: Newest(30, "STORE_PATH")}
"""Of each origin: the newest event that is not a SYNC; SYNCs follow each."""
DROPPED: Final = {2: Newest(15, "DROP_SET")}
SYNCED: Final = {origin: Newest(event.seqno + 5, "SYNC") for origin, event in LAST.items()}


def node(node_id: int, *, active: bool = True, failed: bool = False) -> Node:
    return Node(id=node_id, is_active=active, has_failed=failed, comment=None)


def cluster() -> Views:
    """Three nodes that have all confirmed everything of each other, SYNCs too."""
    confirmed = {(o, r): SYNCED[o].seqno for o in LAST for r in LAST if o != r}
    nodes = tuple(node(each) for each in LAST)
    return {
        each: View(each, nodes, any=SYNCED, config=LAST, drop_set=DROPPED, confirmed=confirmed)
        for each in LAST
    }


def confirms(
    views: Views, origin: int, receiver: int, seqno: int | None, *, at: set[int] | None = None
) -> None:
    """Set, at some nodes or all, how far a receiver has confirmed an origin's events."""
    for each in at or set(views):
        rows = dict(views[each].confirmed)
        rows.pop((origin, receiver), None)
        if seqno is not None:
            rows[origin, receiver] = seqno
        views[each] = replace(views[each], confirmed=rows)


def knows(views: Views, *nodes: Node, at: set[int] | None = None) -> None:
    """Set, at some nodes or all, what their sl_node says of these nodes."""
    for each in at or set(views):
        rows = {old.id: old for old in views[each].nodes} | {new.id: new for new in nodes}
        views[each] = replace(views[each], nodes=tuple(rows.values()))


def missing(origin: int, at: int, confirmed: int | None, event: Newest | None = None) -> Missing:
    why = Why.NEVER_CONFIRMED if confirmed is None else Why.BEHIND
    return Missing(origin, at, event or LAST[origin], confirmed, why)


def unmet(*found: Missing) -> Verdict:
    return Verdict(found, ())


SUBSCRIBE = Question(Command.SUBSCRIBE_SET, 2)
CLONE = Question(Command.CLONE_PREPARE, 2)
CREATE = Question(Command.CREATE_SET, 1)
DROP = Question(Command.DROP_NODE, 3, other=1)
SUBMIT = Question(Command.SUBMIT_TO_OTHER_NODE, 2, other=1)
ALL = (SUBSCRIBE, CLONE, CREATE, DROP, SUBMIT)


@pytest.mark.parametrize("as_program", [False, True])
@pytest.mark.parametrize("question", ALL, ids=lambda each: each.command)
def test_everything_confirmed_is_met(question: Question, as_program: bool) -> None:
    assert judge(question, cluster(), as_program=as_program) == MET


def behind(origin: int, receiver: int, seqno: int | None) -> Callable[[Views], None]:
    return lambda views: confirms(views, origin, receiver, seqno)


def inactive(node_id: int) -> Callable[[Views], None]:
    return lambda views: knows(views, node(node_id, active=False))


def failed(node_id: int) -> Callable[[Views], None]:
    return lambda views: knows(views, node(node_id, failed=True))


Case = tuple[Question, tuple[Callable[[Views], None], ...], Verdict, Verdict]
CASES: Final[Mapping[str, Case]] = {
    # what, how it differs from everything confirmed, as documented, as the program
    "provider lacks an event of another node": (
        SUBSCRIBE,
        (behind(1, 2, 9),),
        unmet(missing(1, 2, 9)),
        unmet(missing(1, 2, 9)),
    ),
    "provider lacks only SYNCs": (SUBSCRIBE, (behind(1, 2, 10), behind(3, 2, 30)), MET, MET),
    "provider has no row": (
        SUBSCRIBE,
        (behind(3, 2, None),),
        unmet(missing(3, 2, None)),
        unmet(missing(3, 2, None)),
    ),
    "another node than the provider lacks": (SUBSCRIBE, (behind(1, 3, 0), behind(2, 1, 0)), MET, MET),
    "provider lacks an event of an inactive node": (
        SUBSCRIBE,
        (behind(3, 2, 29), inactive(3)),
        unmet(missing(3, 2, 29)),
        MET,
    ),
    "provider lacks an event of a failed node": (
        SUBSCRIBE,
        (behind(3, 2, 29), failed(3)),
        unmet(missing(3, 2, 29)),
        unmet(missing(3, 2, 29)),
    ),
    "cloned node lacks an event": (
        CLONE,
        (behind(3, 2, 29),),
        unmet(missing(3, 2, 29)),
        unmet(missing(3, 2, 29)),
    ),
    "cloned node lacks only SYNCs": (CLONE, (behind(3, 2, 30),), MET, MET),
    "another node than the set's origin lacks a DROP SET": (
        CREATE,
        (behind(2, 3, 14),),
        unmet(missing(2, 3, 14, DROPPED[2])),
        MET,
    ),
    "set's origin lacks a DROP SET": (
        CREATE,
        (behind(2, 1, 14),),
        unmet(missing(2, 1, 14, DROPPED[2])),
        unmet(missing(2, 1, 14, DROPPED[2])),
    ),
    "other events than DROP SET are no matter": (CREATE, (behind(2, 1, 15), behind(1, 3, 1)), MET, MET),
    "who lacks a DROP SET is inactive": (CREATE, (behind(2, 3, 14), inactive(3)), MET, MET),
    "who lacks a DROP SET has failed": (CREATE, (behind(2, 3, 14), failed(3)), MET, MET),
    "who has no row of the DROP SET's origin": (
        CREATE,
        (behind(2, 3, None),),
        unmet(missing(2, 3, None, DROPPED[2])),
        MET,
    ),
    "event node lacks a SYNC of the dropped node": (
        DROP,
        (behind(3, 1, 34),),
        unmet(missing(3, 1, 34, SYNCED[3])),
        unmet(missing(3, 1, 34, SYNCED[3])),
    ),
    "another node lacks a SYNC of the dropped node": (
        DROP,
        (behind(3, 2, 34),),
        unmet(missing(3, 2, 34, SYNCED[3])),
        MET,
    ),
    "another node lacks an event of a third": (DROP, (behind(1, 2, 9),), unmet(missing(1, 2, 9)), MET),
    "the dropped node itself lacks everything": (DROP, (behind(1, 3, 0), behind(2, 3, None)), MET, MET),
    "event node has no row of the dropped node": (
        DROP,
        (behind(3, 1, None),),
        unmet(missing(3, 1, None, SYNCED[3])),
        MET,
    ),
    "new event node lacks the last event": (
        SUBMIT,
        (behind(1, 2, 9),),
        unmet(missing(1, 2, 9)),
        unmet(missing(1, 2, 9)),
    ),
    "new event node lacks only SYNCs": (SUBMIT, (behind(1, 2, 10),), MET, MET),
    "new event node has no row": (SUBMIT, (behind(1, 2, None),), unmet(missing(1, 2, None)), MET),
    "new event node lacks it and is inactive": (
        SUBMIT,
        (behind(1, 2, 9), inactive(2)),
        unmet(missing(1, 2, 9)),
        MET,
    ),
    "new event node has it, and the one before does not know yet": (
        SUBMIT,
        (lambda views: confirms(views, 1, 2, 9, at={1}),),
        MET,
        unmet(missing(1, 2, 9)),
    ),
    "new event node lacks an event of a third": (SUBMIT, (behind(3, 2, 0),), MET, MET),
}


@pytest.mark.parametrize("name", CASES)
def test_truth_table(name: str) -> None:
    question, changes, documented, program = CASES[name]
    views = cluster()
    for change in changes:
        change(views)
    assert (judge(question, views), judge(question, views, as_program=True)) == (documented, program)


@pytest.mark.parametrize("as_program", [False, True])
@pytest.mark.parametrize(
    ("question", "absent"),
    [(SUBSCRIBE, 1), (SUBSCRIBE, 2), (CLONE, 2), (CREATE, 1), (CREATE, 3), (DROP, 1), (DROP, 2), (SUBMIT, 1)],
    ids=lambda each: each.command if isinstance(each, Question) else f"without {each}",
)
def test_node_without_a_view_leaves_it_unmet(question: Question, absent: int, as_program: bool) -> None:
    views = cluster()
    del views[absent]
    assert judge(question, views, as_program=as_program) == Verdict((), (absent,))


@pytest.mark.parametrize("as_program", [False, True])
def test_view_of_the_dropped_node_is_not_needed(as_program: bool) -> None:
    views = cluster()
    del views[3]
    assert judge(DROP, views, as_program=as_program) == MET


@pytest.mark.parametrize("change", [inactive(3), failed(3)])
def test_view_of_a_node_that_takes_no_part_is_not_needed(change: Callable[[Views], None]) -> None:
    views = cluster()
    del views[3]
    change(views)
    assert [judge(question, views) for question in (SUBSCRIBE, CLONE, CREATE)] == [MET, MET, MET]


def test_event_that_only_another_node_knows_of_is_found_missing() -> None:
    views = cluster()
    del views[3]
    confirms(views, 3, 2, 29)
    assert judge(SUBSCRIBE, views) == Verdict((missing(3, 2, 29),), (3,))


def test_node_that_is_dropped_in_one_view_counts_until_all_know() -> None:
    views = cluster()
    del views[3]
    for each in (1, 2):
        views[each] = replace(views[each], nodes=tuple(node(n) for n in (1, 2)))
    assert judge(SUBSCRIBE, views) == MET
    knows(views, node(3), at={2})
    assert judge(SUBSCRIBE, views) == Verdict((), (3,))


def test_node_that_never_took_part_and_made_nothing_is_no_origin() -> None:
    views = cluster()
    knows(views, node(4, active=False))
    assert judge(SUBSCRIBE, views) == MET
    knows(views, node(4))
    assert judge(SUBSCRIBE, views) == Verdict((Missing(4, 2, None, None, Why.NEVER_CONFIRMED),), (4,))


def test_node_that_the_provider_does_not_know_is_waited_for_by_both_rules() -> None:
    """slonik's query gives NULL for it, which libpq tells as an empty string, and 0 is not far enough."""
    views = cluster()
    views[2] = replace(views[2], nodes=tuple(node(n) for n in (1, 2)))
    confirms(views, 3, 2, None)
    assert judge(SUBSCRIBE, views) == unmet(missing(3, 2, None))
    assert judge(SUBSCRIBE, views, as_program=True) == unmet(missing(3, 2, None))


def test_words_of_the_dropped_node_that_nobody_else_knows_count_unless_they_are_syncs() -> None:
    views = cluster()
    heard = {**SYNCED, 3: Newest(32, "SYNC")}
    for each in (1, 2):
        views[each] = replace(views[each], any=heard)
        confirms(views, 3, each, 32)
    assert judge(DROP, views) == MET
    late = Newest(34, "STORE_PATH")
    views[3] = replace(views[3], config={**LAST, 3: late})
    assert judge(DROP, views) == unmet(missing(3, 1, 32, late), missing(3, 2, 32, late))
    assert judge(DROP, views, as_program=True) == MET


# -- random clusters, and a model that has every single event of every node as a set

SIZE = 4
MODELLED = tuple(each.command for each in ALL)
KINDS = ("SYNC", "STORE_SET", "DROP_SET")


@st.composite
def random_clusters(draw: st.DrawFn) -> tuple[Views, dict[int, dict[int, list[str]]]]:
    """Views, and of each node the types of the events that it knows, by origin, from seqno 1 on."""
    ids = range(1, draw(st.integers(2, SIZE)) + 1)
    made = {o: draw(st.lists(st.sampled_from(KINDS), max_size=4)) for o in ids}
    nodes = tuple(
        node(each, active=draw(st.sampled_from([True, True, False])), failed=draw(st.booleans()))
        for each in ids
    )
    views, knowledge = {}, {}
    for each in ids:
        heard = {o: made[o][: len(made[o]) if o == each else draw(st.integers(0, len(made[o])))] for o in ids}
        rows = {
            (o, r): draw(st.integers(0, len(made[o])))
            for o in ids
            for r in ids
            if o != r and draw(st.integers(0, 3))
        }
        views[each] = View(
            each,
            nodes,
            any=newest(heard, set(KINDS)),
            config=newest(heard, {"STORE_SET", "DROP_SET"}),
            drop_set=newest(heard, {"DROP_SET"}),
            confirmed=rows,
        )
        knowledge[each] = heard
    for each in draw(st.sets(st.sampled_from(list(ids)), max_size=len(ids) - 1)):
        del views[each]
    return views, knowledge


def newest(heard: Mapping[int, list[str]], types: set[str]) -> dict[int, Newest]:
    found = {o: [(i, t) for i, t in enumerate(events, 1) if t in types] for o, events in heard.items()}
    return {o: Newest(*of[-1]) for o, of in found.items() if of}


def lacking(
    views: Views,
    knowledge: dict[int, dict[int, list[str]]],
    receiver: int,
    wanted: Callable[[int, int, str], bool],
) -> set[tuple[int, int]]:
    """(origin, receiver) where an event that somebody knows of and that is wanted has not been processed."""
    found = set()
    for knower in views:
        for origin, events in knowledge[knower].items():
            row = views[receiver].confirmed.get((origin, receiver)) if receiver in views else None
            processed = set() if row is None else set(range(1, row + 1))
            for seqno, kind in enumerate(events, 1):
                if receiver in views and origin != receiver and wanted(knower, origin, kind):
                    found |= {(origin, receiver)} if seqno not in processed else set()
    return found


def rowless(views: Views, receiver: int) -> set[tuple[int, int]]:
    """Pairs of origins that take part or have made something, and a receiver without any row of them."""
    if receiver not in views:
        return set()
    alive = {n.id for n in next(iter(views.values())).nodes if n.is_active and not n.has_failed}
    makers = {origin for view in views.values() for origin in view.any}
    return {
        (o, receiver) for o in (alive | makers) - {receiver} if (o, receiver) not in views[receiver].confirmed
    }


@settings(max_examples=300)
@given(random=random_clusters(), command=st.sampled_from(MODELLED), data=st.data())
def test_documented_rule_equals_a_model_that_counts_single_events(
    random: tuple[Views, dict[int, dict[int, list[str]]]], command: Command, data: st.DataObject
) -> None:
    views, knowledge = random
    ids = sorted(knowledge)
    first = data.draw(st.sampled_from(ids))
    second = data.draw(st.sampled_from([each for each in ids if each != first]))
    pairwise = command in (Command.DROP_NODE, Command.SUBMIT_TO_OTHER_NODE)
    verdict = judge(Question(command, first, other=second if pairwise else None), views)
    alive = {n.id for n in next(iter(views.values())).nodes if n.is_active and not n.has_failed}

    def wanted(knower: int, origin: int, kind: str) -> bool:
        if command is Command.CREATE_SET:
            return kind == "DROP_SET"
        if command is Command.DROP_NODE and origin == first and knower != first:
            return True
        if command is Command.SUBMIT_TO_OTHER_NODE:
            return kind != "SYNC" and origin == second
        return kind != "SYNC"

    receivers, needed = {first}, alive | {first}
    if command is Command.CREATE_SET:
        receivers = needed
    elif command is Command.DROP_NODE:
        receivers = needed = (alive | {second}) - {first}
    elif command is Command.SUBMIT_TO_OTHER_NODE:
        needed = {first, second}
    expected: set[tuple[int, int]] = set()
    for receiver in receivers:
        expected |= lacking(views, knowledge, receiver, wanted)
        without = rowless(views, receiver)
        if command is Command.SUBMIT_TO_OTHER_NODE:
            without = (
                {(second, first)}
                if first in views and (second, first) not in views[first].confirmed
                else set()
            )
        expected |= without
    assert {(each.origin, each.node) for each in verdict.missing} == expected
    assert set(verdict.not_evaluated) == needed - set(views)
    assert verdict.is_met == (not expected and needed <= set(views))


@settings(max_examples=300)
@given(random=random_clusters(), command=st.sampled_from(MODELLED), data=st.data())
def test_documented_rule_is_met_only_where_the_programs_is_as_all_know_the_same(
    random: tuple[Views, dict[int, dict[int, list[str]]]], command: Command, data: st.DataObject
) -> None:
    views, _ = random
    ids = sorted(views)
    first = data.draw(st.sampled_from(ids))
    second = data.draw(st.sampled_from([each for each in (1, 2, 3) if each != first]))
    own = {
        pair: seqno
        for each, view in views.items()
        for pair, seqno in view.confirmed.items()
        if pair[1] == each
    }
    agreed = {each: replace(view, confirmed=own) for each, view in views.items()}
    pairwise = command in (Command.DROP_NODE, Command.SUBMIT_TO_OTHER_NODE)
    question = Question(command, first, other=second if pairwise else None)
    if judge(question, agreed).is_met:
        assert judge(question, agreed, as_program=True).is_met
