"""The waits that slonik does by itself before a command, each as a question: is it met, or what is missing?

An event is known as its own origin knows it, a confirmation as the receiver itself knows it: a node's own row
of sl_confirm comes with the event's effect, in one transaction; every other node learns of it later. What the
rules need is therefore one view of each node; a node whose view is missing leaves them unmet.

The rule of the document and the one of slonik's code differ (`as_program`): see DOCUMENTED and PROGRAM. The
program is asked as if it had an ADMIN CONNINFO for every node: it skips nodes that it cannot reach, nothing
here does.
Source: slony-events-confirmations, 4.1.4; facts/slony, section 6.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark.events.records import Node
from spark.events.waiting import Why, takes_part


class Command(StrEnum):
    """Before what slonik waits."""

    SUBSCRIBE_SET = "SUBSCRIBE_SET"
    DROP_NODE = "DROP_NODE"
    CLONE_PREPARE = "CLONE_PREPARE"
    CREATE_SET = "CREATE_SET"
    SUBMIT_TO_OTHER_NODE = "SUBMIT_TO_OTHER_NODE"


@dataclass(frozen=True, slots=True)
class Question:
    """A command that is to be submitted.

    Args:
        node: SUBSCRIBE_SET, CLONE_PREPARE: the provider. CREATE_SET: the origin of the set. DROP_NODE: the
            one to be dropped. SUBMIT_TO_OTHER_NODE: the new event node.
        other: DROP_NODE: the event node. SUBMIT_TO_OTHER_NODE: the event node before. Else None.
    """

    command: Command
    node: int
    other: int | None = None


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest event of an origin and of a kind."""

    seqno: int
    type: str


@dataclass(frozen=True, slots=True)
class View:
    """What one node knows.

    Args:
        nodes: its sl_node.
        any, config, drop_set: origin to its newest event here: of any type, of any type but SYNC, DROP_SET.
        confirmed: (origin, receiver) to the newest confirmed seqno; a pair without any row is absent.
    """

    node: int
    nodes: tuple[Node, ...]
    any: Mapping[int, Newest] = field(default_factory=dict)
    config: Mapping[int, Newest] = field(default_factory=dict)
    drop_set: Mapping[int, Newest] = field(default_factory=dict)
    confirmed: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def find(self, node: int) -> Node | None:
        """A node as this one knows it."""
        return next((each for each in self.nodes if each.id == node), None)


@dataclass(frozen=True, slots=True, order=True)
class Missing:
    """An event that a node has not confirmed.

    Args:
        event: None: no such event is left, but the node has never confirmed anything of this origin.
        confirmed_seqno: the newest that it has confirmed; None: none at all.
    """

    origin: int
    node: int
    event: Newest | None
    confirmed_seqno: int | None
    why: Why


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer.

    Args:
        not_evaluated: nodes whose view is needed and was not there.
    """

    missing: tuple[Missing, ...]
    not_evaluated: tuple[int, ...]

    @property
    def is_met(self) -> bool:
        """Whether slonik's command may be submitted."""
        return not self.missing and not self.not_evaluated


Views = Mapping[int, View]


def judge(question: Question, views: Views, *, as_program: bool = False) -> Verdict:
    """Evaluate a precondition.

    Args:
        views: node id to its view; nodes that could not be asked are absent. At least one.
        as_program: the rule of slonik's code instead of the document's.
    """
    assert views, "somebody has asked"
    rule = PROGRAM[question.command] if as_program else DOCUMENTED[question.command]
    needed, missing = rule(question, views)
    return Verdict(tuple(sorted(missing, key=_order)), tuple(sorted(needed - set(views))))


def _order(missing: Missing) -> tuple[int, int]:
    return missing.origin, missing.node


Found = tuple[set[int], list[Missing]]
"""The nodes whose views a rule needs, and what it has found missing in those that are there."""


def _active(views: Views) -> set[int]:
    """Who takes part by the word of at least one node: one that is being dropped counts until all know."""
    return {node.id for view in views.values() for node in view.nodes if takes_part(node)}


def _known(views: Views) -> set[int]:
    return {node.id for view in views.values() for node in view.nodes}


def _newest(kind: str, origin: int, views: Iterable[View]) -> Newest | None:
    return _newer(*(getattr(view, kind).get(origin) for view in views))


def _newer(*events: Newest | None) -> Newest | None:
    return max(filter(None, events), key=lambda newest: newest.seqno, default=None)


def _origins(views: Views, receiver: int) -> set[int]:
    """Whose events a receiver must have: all other nodes but those that never took part nor made anything."""
    made = {origin for view in views.values() for origin in view.any}
    return ((_known(views) & made) | _active(views)) - {receiver}


def _unconfirmed(views: Views, receiver: int, wanted: Mapping[int, Newest | None]) -> list[Missing]:
    """What of `wanted` (origin to event) a receiver has not confirmed, by its own word."""
    view = views.get(receiver)
    if view is None:
        return []
    missing = []
    for origin, event in wanted.items():
        confirmed = view.confirmed.get((origin, receiver))
        if confirmed is None:
            missing.append(Missing(origin, receiver, event, None, Why.NEVER_CONFIRMED))
        elif event is not None and confirmed < event.seqno:
            missing.append(Missing(origin, receiver, event, confirmed, Why.BEHIND))
    return missing


# -- as documented


def _caught_up(question: Question, views: Views) -> Found:
    """The provider has confirmed all configuration events of all other nodes."""
    others = _origins(views, question.node)
    wanted = {origin: _newest("config", origin, views.values()) for origin in others}
    return _active(views) | {question.node}, _unconfirmed(views, question.node, wanted)


def _drop_set_everywhere(question: Question, views: Views) -> Found:
    """The DROP SETs of all nodes are confirmed by all nodes."""
    receivers = _active(views) | {question.node}
    missing = []
    for receiver in receivers:
        others = _origins(views, receiver)
        wanted = {origin: _newest("drop_set", origin, views.values()) for origin in others}
        missing += _unconfirmed(views, receiver, wanted)
    return receivers, missing


def _all_caught_up(question: Question, views: Views) -> Found:
    """All nodes but the one to be dropped have caught up with all others, the one to be dropped too.

    Of that one the SYNCs that have reached a remaining node count as well: it may have been an origin before,
    and nobody can ask it for data later.
    """
    dropped, event_node = question.node, question.other
    assert event_node is not None
    receivers = (_active(views) | {event_node}) - {dropped}
    remaining = [view for node, view in views.items() if node != dropped]
    last_words = _newer(_newest("config", dropped, views.values()), _newest("any", dropped, remaining))
    missing = []
    for receiver in receivers:
        others = _origins(views, receiver)
        wanted = {origin: _newest("config", origin, views.values()) for origin in others}
        if dropped in wanted:
            wanted[dropped] = last_words
        missing += _unconfirmed(views, receiver, wanted)
    return receivers, missing


def _previous_confirmed(question: Question, views: Views) -> Found:
    """The new event node has confirmed the last configuration event of the event node before."""
    previous = question.other
    assert previous is not None
    wanted = {previous: _newest("config", previous, views.values())}
    return {question.node, previous}, _unconfirmed(views, question.node, wanted)


# -- as slonik's code


def _program_caught_up(kind: str, question: Question, views: Views) -> Found:
    """slonik_wait_config_caughtup: one node against the last event of each node, inactive ones left out."""
    needed = _active(views) | {question.node}
    view = views.get(question.node)
    if view is None:
        return needed, []
    missing = []
    for origin in sorted(set(views) - {question.node}):
        event: Newest | None = getattr(views[origin], kind).get(origin)
        known = view.find(origin)
        if event is None or (known is not None and not known.is_active):
            continue
        confirmed = view.confirmed.get((origin, question.node))
        if confirmed is None or confirmed < event.seqno:
            why = Why.NEVER_CONFIRMED if confirmed is None else Why.BEHIND
            missing.append(Missing(origin, question.node, event, confirmed, why))
    return needed, missing


def _program_config(question: Question, views: Views) -> Found:
    return _program_caught_up("config", question, views)


def _program_drop_set(question: Question, views: Views) -> Found:
    return _program_caught_up("drop_set", question, views)


def _program_wait(view: View | None, origin: int, event: Newest | None, receiver: int) -> list[Missing]:
    """slonik_wait_event for one receiver: one that is inactive or has no row there counts as confirmed."""
    if view is None or event is None:
        return []
    known = view.find(receiver)
    confirmed = view.confirmed.get((origin, receiver))
    if known is None or not known.is_active or confirmed is None or confirmed >= event.seqno:
        return []
    return [Missing(origin, receiver, event, confirmed, Why.BEHIND)]


def _program_drop_node(question: Question, views: Views) -> Found:
    """Only the event node, and only for the last event of the dropped one that a remaining node has seen."""
    dropped, event_node = question.node, question.other
    assert event_node is not None
    event = _newest("any", dropped, [view for node, view in views.items() if node != dropped])
    needed = (_active(views) | {event_node}) - {dropped}
    return needed, _program_wait(views.get(event_node), dropped, event, event_node)


def _program_submit(question: Question, views: Views) -> Found:
    """As documented, but as the event node before knows it."""
    previous = question.other
    assert previous is not None
    view = views.get(previous)
    event = None if view is None else view.config.get(previous)
    return {question.node, previous}, _program_wait(view, previous, event, question.node)


DOCUMENTED = {
    Command.SUBSCRIBE_SET: _caught_up,
    Command.DROP_NODE: _all_caught_up,
    Command.CLONE_PREPARE: _caught_up,
    Command.CREATE_SET: _drop_set_everywhere,
    Command.SUBMIT_TO_OTHER_NODE: _previous_confirmed,
}
PROGRAM = {
    Command.SUBSCRIBE_SET: _program_config,
    Command.DROP_NODE: _program_drop_node,
    Command.CLONE_PREPARE: _program_config,
    Command.CREATE_SET: _program_drop_set,
    Command.SUBMIT_TO_OTHER_NODE: _program_submit,
}
