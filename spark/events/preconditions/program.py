"""The rules of slonik's code, as if it had an ADMIN CONNINFO for every node.

It skips nodes that it cannot reach; nothing here does. A receiver that is inactive, or has no row where it
looks, counts as confirmed in some of its queries and not in others: each rule says so.
Source: facts/slony, section 6; slonik of 2.2.11.
"""

from collections.abc import Mapping
from typing import Final

from spark.events.preconditions.documented import Rule
from spark.events.preconditions.records import (
    Command,
    Fixed,
    Found,
    Missing,
    Newest,
    Question,
    View,
    Views,
    What,
)
from spark.events.preconditions.shared import (
    active,
    asked,
    behind,
    failover,
    newest,
    settled,
    transactions,
)
from spark.events.waiting import Why

ENABLED: Final = "ENABLE_SUBSCRIPTION"


def _wanted(what: What, kind: str, node: int, views: Views, fixed: Fixed) -> dict[int, Newest | None]:
    """The last event of each other node by its own word, as it is at slonik's start."""
    origins = (set(views) | {origin for key, origin in fixed if key is what}) - {node}
    return {
        origin: fixed[what, origin] if (what, origin) in fixed else getattr(views[origin], kind).get(origin)
        for origin in origins
    }


def _caught_up(what: What, kind: str, question: Question, views: Views, fixed: Fixed) -> Found:
    """One node against the last event of each other, as it knows them; those inactive there are left out."""
    node, view = question.node, views.get(question.node)
    ignored = {question.other} if question.command is Command.STORE_NODE else set()
    needed = frozenset({node} | asked(what, active(views) - {node} - ignored, fixed))
    wanted = {o: e for o, e in _wanted(what, kind, node, views, fixed).items() if o not in ignored}
    now_fixed = settled(what, wanted, views, fixed)
    if view is None:
        return Found(needed, now_fixed)
    missing = []
    for origin, event in sorted(wanted.items()):
        its_row = view.find(origin)
        if event is None or (its_row is not None and not its_row.is_active):
            continue
        missing.append(behind(origin, node, event, view.confirmed.get((origin, node))))
    return Found(needed, now_fixed, tuple(each for each in missing if each is not None))


def _config(question: Question, views: Views, fixed: Fixed) -> Found:
    return _caught_up(What.CONFIG, "config", question, views, fixed)


def _drop_set(question: Question, views: Views, fixed: Fixed) -> Found:
    return _caught_up(What.DROP_SET, "drop_set", question, views, fixed)


def _waited(view: View | None, origin: int, event: Newest | None, receiver: int) -> tuple[Missing, ...]:
    """WAIT FOR EVENT for one receiver: one that is inactive or has no row there counts as confirmed."""
    if view is None or event is None:
        return ()
    known = view.find(receiver)
    confirmed = view.confirmed.get((origin, receiver))
    if known is None or not known.is_active or confirmed is None or confirmed >= event.seqno:
        return ()
    return (Missing(origin, receiver, event, confirmed, Why.BEHIND),)


def _drop_node(question: Question, views: Views, fixed: Fixed) -> Found:
    """Only the event node, and only for the last event of the dropped one that a remaining node has seen."""
    dropped, event_node = question.node, question.other
    assert event_node is not None
    key = (What.LAST, dropped)
    remaining = (active(views) | {event_node}) - {dropped}
    heard = newest("any", dropped, [view for node, view in views.items() if node != dropped])
    event = fixed.get(key, heard)
    needed = {event_node} if key in fixed else remaining
    now_fixed = {key: event} if needed <= set(views) or key in fixed else {}
    return Found(frozenset(needed), now_fixed, _waited(views.get(event_node), dropped, event, event_node))


def _submit(question: Question, views: Views, fixed: Fixed) -> Found:
    """As documented, but as the event node before knows it."""
    previous, key = question.other, (What.PREVIOUS, question.other or 0)
    assert previous is not None
    view = views.get(previous)
    event = fixed[key] if key in fixed else None if view is None else view.config.get(previous)
    now_fixed = {key: event} if key in fixed or view is not None else {}
    return Found(
        frozenset({question.node, previous}), now_fixed, _waited(view, previous, event, question.node)
    )


def _copied(question: Question, views: Views, _fixed: Fixed) -> Found:
    """MERGE SET: isSubscriptionInProgress of both sets, at their origin; a receiver without a row is none."""
    view = views.get(question.node)
    missing: tuple[Missing, ...] = ()
    for event in view.enabling if view is not None else ():
        confirmed = view.confirmed.get((event.origin, event.receiver)) if view is not None else None
        if event.type == ENABLED and event.set_id in question.sets and confirmed is not None:
            found = behind(event.origin, event.receiver, Newest(event.seqno, event.type), confirmed)
            missing += () if found is None else (found,)
    return Found(frozenset({question.node}), missing=missing)


def _nothing(_question: Question, _views: Views, _fixed: Fixed) -> Found:
    return Found(frozenset())


def _failover(question: Question, views: Views, _fixed: Fixed) -> Found:
    return failover(question, views)


def _transactions(question: Question, views: Views, fixed: Fixed) -> Found:
    return transactions(question, views, fixed, is_strict=False)


PROGRAM: Final[Mapping[Command, Rule]] = {
    Command.SUBSCRIBE_SET: _config,
    Command.RESUBSCRIBE_NODE: _config,
    Command.CLONE_PREPARE: _config,
    Command.STORE_NODE: _config,
    Command.CREATE_SET: _drop_set,
    Command.DROP_NODE: _drop_node,
    Command.SUBMIT_TO_OTHER_NODE: _submit,
    Command.MERGE_SET: _copied,
    Command.MOVE_SET: _nothing,
    Command.LOCK_SET: _transactions,
    Command.FAILOVER: _failover,
}
