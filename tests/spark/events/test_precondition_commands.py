"""Commands beside the document's five, by both rules, and what is fixed at the first look."""

from dataclasses import replace
from typing import Final

import pytest

from spark.events.preconditions.judge import judge
from spark.events.preconditions.records import (
    Bar,
    Command,
    Enabling,
    Newest,
    Question,
    Runner,
    Running,
    Subscriptions,
    What,
)
from spark.events.waiting import Why
from tests.spark.events.test_preconditions import LAST, Views, cluster, confirms, knows, node

LATER: Final = Newest(40, "STORE_SET")
MERGE: Final = Question(Command.MERGE_SET, 1, event_node=1, sets=frozenset({7, 8}))
LOCK: Final = Question(Command.LOCK_SET, 1)
FAILOVER: Final = Question(Command.FAILOVER, 1, other=2)
BOTH: Final = pytest.mark.parametrize("as_program", [False, True])


def changed(views: Views, node_id: int, **fields: object) -> None:
    views[node_id] = replace(views[node_id], **fields)  # type: ignore[arg-type]


# -- what is fixed


@BOTH
def test_younger_event_is_not_waited_for(as_program: bool) -> None:
    views, question = cluster(), Question(Command.SUBSCRIBE_SET, 2)
    confirms(views, 3, 2, 29)
    first = judge(question, views, as_program=as_program)
    assert first.fixed[What.CONFIG, 3] == LAST[3]
    changed(views, 3, config={**LAST, 3: LATER}, any={**LAST, 3: LATER})
    confirms(views, 3, 2, 30)
    assert judge(question, views, as_program=as_program, fixed=first.fixed).is_met
    assert not judge(question, views, as_program=as_program).is_met


@BOTH
def test_origin_that_has_told_need_not_be_asked_again(as_program: bool) -> None:
    views, question = cluster(), Question(Command.SUBSCRIBE_SET, 2)
    confirms(views, 3, 2, 29)
    fixed = judge(question, views, as_program=as_program).fixed
    del views[3]
    again = judge(question, views, as_program=as_program, fixed=fixed)
    assert ([each.origin for each in again.missing], again.not_evaluated) == ([3], ())
    assert judge(question, views, as_program=as_program).not_evaluated == (3,)


@BOTH
def test_origin_that_was_away_is_fixed_by_its_own_word_alone(as_program: bool) -> None:
    views, question = cluster(), Question(Command.SUBSCRIBE_SET, 2)
    third = views.pop(3)
    first = judge(question, views, as_program=as_program)
    assert (What.CONFIG, 3) not in first.fixed
    views[3] = replace(third, config={**LAST, 3: LATER})
    again = judge(question, views, as_program=as_program, fixed=first.fixed)
    assert [each.event for each in again.missing] == [LATER]


@BOTH
def test_receiver_that_dies_leaves_it_unmet(as_program: bool) -> None:
    views, question = cluster(), Question(Command.SUBSCRIBE_SET, 2)
    fixed = judge(question, views, as_program=as_program).fixed
    del views[2]
    assert judge(question, views, as_program=as_program, fixed=fixed).not_evaluated == (2,)
    assert judge(question, {}, as_program=as_program, fixed=fixed).not_evaluated == (2,)


def test_origin_that_was_dropped_meanwhile_is_waited_for_by_the_program_alone() -> None:
    """slonik reads no row of it as 0, which is never far enough."""
    views, question = cluster(), Question(Command.SUBSCRIBE_SET, 2)
    confirms(views, 3, 2, 29)
    fixed = {rule: judge(question, views, as_program=rule).fixed for rule in (False, True)}
    del views[3]
    for each in (1, 2):
        known = {o: e for o, e in LAST.items() if o != 3}
        changed(views, each, nodes=(node(1), node(2)), any=known, config=known)
    confirms(views, 3, 2, None)
    assert judge(question, views, fixed=fixed[False]).is_met
    waited = judge(question, views, as_program=True, fixed=fixed[True])
    assert [each.origin for each in waited.missing] == [3]


# -- STORE NODE, MOVE SET, and the node before


@BOTH
def test_new_node_is_not_waited_for(as_program: bool) -> None:
    views = cluster()
    confirms(views, 3, 1, 29)
    assert judge(Question(Command.STORE_NODE, 1, other=3, event_node=1), views, as_program=as_program).is_met
    found = judge(Question(Command.STORE_NODE, 1, other=9, event_node=1), views, as_program=as_program)
    assert [(each.origin, each.node) for each in found.missing] == [(3, 1)]


@BOTH
@pytest.mark.parametrize("command", [Command.MOVE_SET, Command.CREATE_SET, Command.CLONE_PREPARE])
def test_command_waits_for_the_event_node_before_too(command: Command, as_program: bool) -> None:
    views = cluster()
    question = Question(command, 1, event_node=1, previous=2)
    assert judge(question, views, as_program=as_program).is_met
    confirms(views, 2, 1, 19)
    found = judge(question, views, as_program=as_program)
    assert [(each.origin, each.node) for each in found.missing] == [(2, 1)]
    same = replace(question, command=Command.MOVE_SET, previous=1)
    assert judge(same, views, as_program=as_program).is_met


# -- MERGE SET


def enabling(kind: str, *, set_id: int = 7, seqno: int = 40) -> tuple[Enabling, ...]:
    return (Enabling(1, seqno, kind, set_id, 3),)


@BOTH
def test_subscription_under_way_holds_the_merge(as_program: bool) -> None:
    views = cluster()
    changed(views, 1, enabling=enabling("ENABLE_SUBSCRIPTION"))
    confirms(views, 1, 3, 40, at={2, 3})  # what the origin has not heard
    found = judge(MERGE, views, as_program=as_program)
    assert [(each.origin, each.node, each.event) for each in found.missing] == [
        (1, 3, Newest(40, "ENABLE_SUBSCRIPTION"))
    ]
    confirms(views, 1, 3, 40, at={1})
    assert judge(MERGE, views, as_program=as_program).is_met
    changed(views, 1, enabling=enabling("ENABLE_SUBSCRIPTION", set_id=9, seqno=50))
    assert judge(MERGE, views, as_program=as_program).is_met


def test_receiver_without_a_row_and_a_copy_that_has_not_begun_hold_it_by_the_strict_rule_alone() -> None:
    views = cluster()
    changed(views, 1, enabling=enabling("SUBSCRIBE_SET"))
    assert [each.why for each in judge(MERGE, views).missing] == [Why.BEHIND]
    assert judge(MERGE, views, as_program=True).is_met
    changed(views, 1, enabling=enabling("ENABLE_SUBSCRIPTION"))
    confirms(views, 1, 3, None)
    assert [each.why for each in judge(MERGE, views).missing] == [Why.NEVER_CONFIRMED]
    assert judge(MERGE, views, as_program=True).is_met


# -- LOCK SET

WRAPPED: Final = (5 << 32) + 3
"""A little after the ids of 32 bits came round."""


def running(views: Views, oldest: int, following: int, *xids: int) -> None:
    runners = tuple(Runner(4711, xid % (1 << 32), "app", "ann", "idle in transaction", 60.0) for xid in xids)
    changed(views, 1, running=Running(oldest, following, runners))


@BOTH
@pytest.mark.parametrize("first", [1_000, WRAPPED - 2])
def test_transaction_that_ran_then_holds_the_lock_and_a_younger_one_does_not(
    as_program: bool, first: int
) -> None:
    views = cluster()
    running(views, first, first + 5, first)
    found = judge(LOCK, views, as_program=as_program)
    assert [(each.bar, each.other) for each in found.obstacles] == [(Bar.TRANSACTION_RUNS, 4711)]
    assert "pid 4711 (app, idle in transaction) of ann, for 60 s" in found.obstacles[0].detail
    running(views, first + 6, first + 7, first + 6)
    assert judge(LOCK, views, as_program=as_program, fixed=found.fixed).is_met


def test_transaction_that_none_has_overtaken_is_seen_by_the_strict_rule_alone() -> None:
    views = cluster()
    running(views, WRAPPED, WRAPPED, WRAPPED)
    strict = judge(LOCK, views)
    assert ([each.other for each in strict.obstacles], judge(LOCK, views, as_program=True).is_met) == (
        [4711],
        True,
    )
    running(views, WRAPPED + 1, WRAPPED + 1)
    assert judge(LOCK, views, fixed=strict.fixed).is_met


def test_transaction_that_is_not_shown_holds_it_too() -> None:
    views = cluster()
    running(views, 1_000, 1_005)
    assert "does not show" in judge(LOCK, views).obstacles[0].detail


# -- FAILOVER


def failing() -> Views:
    views = cluster()
    rows = ((7, 1, 2, True), (7, 1, 3, False))
    for each in views:
        changed(
            views,
            each,
            subscriptions=Subscriptions({7: 1}, rows),
            paths=frozenset({(2, 3), (3, 2)}),
            has_slon=True,
        )
    del views[1]
    return views


@BOTH
def test_backup_that_can_take_over_is_ready_without_the_failed_node(as_program: bool) -> None:
    assert judge(FAILOVER, failing(), as_program=as_program).is_met


@BOTH
def test_failover_is_refused_without_path_or_forwarder_and_wants_every_survivor(as_program: bool) -> None:
    views = failing()
    changed(views, 2, paths=frozenset({(3, 2)}))
    [bar] = judge(FAILOVER, views, as_program=as_program).obstacles
    assert (bar.bar, bar.node, bar.other) == (Bar.NO_PATH_TO_BACKUP, 3, 2)
    views = failing()
    changed(views, 2, subscriptions=Subscriptions({7: 1, 8: 1}, ((7, 1, 2, True),)))
    [bar] = judge(FAILOVER, views, as_program=as_program).obstacles
    assert (bar.bar, bar.node, bar.other) == (Bar.NOT_A_FORWARDER, 2, 8)
    views = failing()
    del views[3]
    assert judge(FAILOVER, views, as_program=as_program).not_evaluated == (3,)


def test_survivor_without_its_slon_holds_failover_by_the_strict_rule_alone() -> None:
    views = failing()
    changed(views, 3, has_slon=False)
    assert [(each.bar, each.node) for each in judge(FAILOVER, views).obstacles] == [(Bar.SLON_NOT_RUNNING, 3)]
    assert judge(FAILOVER, views, as_program=True).is_met
    knows(views, node(3, active=False))
    assert judge(FAILOVER, views).is_met
    changed(views, 2, has_slon=None)
    assert judge(FAILOVER, views).is_met
