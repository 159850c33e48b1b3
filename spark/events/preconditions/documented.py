"""The document's rules: a node's own word counts, and one that never confirmed anything is behind.

Where the document names no wait of a command, but slonik has one, this is slonik's, by these words. A node
whose view is missing leaves a rule unmet.
Source: slony-events-confirmations, 4.1.4; facts/slony, section 6.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from spark.events.preconditions.records import (
    Bar,
    Command,
    Fixed,
    Found,
    Missing,
    Newest,
    Obstacle,
    Question,
    Views,
    What,
)
from spark.events.preconditions.shared import (
    active,
    asked,
    behind,
    failover,
    known,
    newer,
    newest,
    settled,
    survivors,
    transactions,
)

Wanted = Mapping[int, Newest | None]


def _origins(views: Views, receiver: int) -> set[int]:
    """Whose events a receiver must have: all other nodes but those that never took part nor made anything."""
    made = {origin for view in views.values() for origin in view.any}
    return ((known(views) & made) | active(views)) - {receiver}


def _unconfirmed(views: Views, receiver: int, wanted: Wanted) -> list[Missing]:
    """What of `wanted` (origin to event) a receiver has not confirmed, by its own word."""
    view = views.get(receiver)
    if view is None:
        return []
    pairs = (
        behind(origin, receiver, event, view.confirmed.get((origin, receiver)))
        for origin, event in wanted.items()
    )
    return [each for each in pairs if each is not None]


def _wanted(what: What, kind: str, origins: set[int], views: Views, fixed: Fixed) -> dict[int, Newest | None]:
    """The event of each origin: the one that is fixed, else the newest of a kind that anybody knows."""
    return {
        origin: fixed[what, origin] if (what, origin) in fixed else newest(kind, origin, views.values())
        for origin in origins
    }


def _caught_up(question: Question, views: Views, fixed: Fixed) -> Found:
    """A node has confirmed all configuration events of all others; STORE NODE: of the new one too, if any."""
    node = question.node
    ignored = {question.other} if question.command is Command.STORE_NODE else set()
    wanted = _wanted(What.CONFIG, "config", _origins(views, node) - ignored, views, fixed)
    return Found(
        frozenset({node} | asked(What.CONFIG, active(views) - {node} - ignored, fixed)),
        settled(What.CONFIG, wanted, views, fixed),
        tuple(_unconfirmed(views, node, wanted)),
    )


def _drop_set_everywhere(question: Question, views: Views, fixed: Fixed) -> Found:
    """The DROP SETs of all nodes are confirmed by all nodes."""
    receivers = active(views) | {question.node}
    wanted = _wanted(What.DROP_SET, "drop_set", known(views) | active(views), views, fixed)
    missing: list[Missing] = []
    for receiver in receivers:
        others = _origins(views, receiver)
        missing += _unconfirmed(views, receiver, {o: e for o, e in wanted.items() if o in others})
    return Found(frozenset(receivers), settled(What.DROP_SET, wanted, views, fixed), tuple(missing))


def _all_caught_up(question: Question, views: Views, fixed: Fixed) -> Found:
    """All nodes but the one to be dropped have caught up with all others, the one to be dropped too.

    Of that one the SYNCs that have reached a remaining node count as well: it may have been an origin before,
    and nobody can ask it for data later.
    """
    dropped, event_node = question.node, question.other
    assert event_node is not None
    receivers = (active(views) | {event_node}) - {dropped}
    wanted = _wanted(What.CONFIG, "config", known(views) | active(views), views, fixed)
    last = _last_words(dropped, views, fixed, is_config_too=True)
    missing: list[Missing] = []
    for receiver in receivers:
        others = _origins(views, receiver)
        events = {o: last if o == dropped else e for o, e in wanted.items() if o in others}
        missing += _unconfirmed(views, receiver, events)
    wanted.pop(dropped, None)
    now_fixed = dict(settled(What.CONFIG, wanted, views, fixed))
    if receivers <= set(views) or (What.LAST, dropped) in fixed:
        now_fixed[What.LAST, dropped] = last
    return Found(frozenset(receivers), now_fixed, tuple(missing))


def _last_words(dropped: int, views: Views, fixed: Fixed, *, is_config_too: bool) -> Newest | None:
    """The newest event of the dropped node that a remaining one has, and its own newest configuration."""
    if (What.LAST, dropped) in fixed:
        return fixed[What.LAST, dropped]
    heard = newest("any", dropped, [view for node, view in views.items() if node != dropped])
    return newer(heard, newest("config", dropped, views.values())) if is_config_too else heard


def _previous_confirmed(question: Question, views: Views, fixed: Fixed) -> Found:
    """The new event node has confirmed the last configuration event of the event node before."""
    previous, node = question.other, question.node
    assert previous is not None
    wanted = _wanted(What.PREVIOUS, "config", {previous}, views, fixed)
    return Found(
        frozenset({node} | asked(What.PREVIOUS, {previous}, fixed)),
        settled(What.PREVIOUS, wanted, views, fixed),
        tuple(_unconfirmed(views, node, wanted)),
    )


def _copied(question: Question, views: Views, _fixed: Fixed) -> Found:
    """MERGE SET: no subscription of either set is under way, by the word of their origin."""
    view, missing = views.get(question.node), []
    for event in view.enabling if view is not None else ():
        if event.set_id in question.sets and event.receiver in known(views):
            confirmed = view.confirmed.get((event.origin, event.receiver)) if view is not None else None
            newest_ = Newest(event.seqno, event.type)
            missing.append(behind(event.origin, event.receiver, newest_, confirmed))
    return Found(frozenset({question.node}), missing=tuple(each for each in missing if each is not None))


def _nothing(_question: Question, _views: Views, _fixed: Fixed) -> Found:
    """Only what is asked before every command that goes to another node than the one before."""
    return Found(frozenset())


def _failover(question: Question, views: Views, _fixed: Fixed) -> Found:
    """As slonik looks; and every survivor that takes part has a slon, for FAILOVER waits for each of them."""
    found = failover(question, views)
    still = (survivors(question, views) | {question.other}) & active(views)
    silent = [
        Obstacle(
            Bar.SLON_NOT_RUNNING, node, "FAILOVER waits until it confirms, and its slon is not connected"
        )
        for node in sorted(node for node in still if node is not None)
        if node in views and views[node].has_slon is False
    ]
    return replace(found, obstacles=(*found.obstacles, *silent))


def _transactions(question: Question, views: Views, fixed: Fixed) -> Found:
    return transactions(question, views, fixed, is_strict=True)


Rule = Callable[[Question, Views, Fixed], Found]

DOCUMENTED: Final[Mapping[Command, Rule]] = {
    Command.SUBSCRIBE_SET: _caught_up,
    Command.RESUBSCRIBE_NODE: _caught_up,
    Command.CLONE_PREPARE: _caught_up,
    Command.STORE_NODE: _caught_up,
    Command.CREATE_SET: _drop_set_everywhere,
    Command.DROP_NODE: _all_caught_up,
    Command.SUBMIT_TO_OTHER_NODE: _previous_confirmed,
    Command.MERGE_SET: _copied,
    Command.MOVE_SET: _nothing,
    Command.LOCK_SET: _transactions,
    Command.FAILOVER: _failover,
}
