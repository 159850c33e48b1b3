"""The waits that slonik does by itself before a command, each as a question: is it met, or what is missing?

An event is known as its own origin knows it, a confirmation as the receiver itself knows it: a node's own row
of sl_confirm comes with the event's effect, in one transaction; every other node learns of it later. What the
rules need is therefore one view of each node; a node whose view is missing leaves them unmet.

The rule of the document and the one of slonik's code differ (`as_program`): see DOCUMENTED and PROGRAM. Each
command has a rule of its own; one that is not the first of its script has that of SUBMIT_TO_OTHER_NODE too.
Slonik fixes at its start up to where it waits: a verdict says what is fixed, and takes it again.
Source: slony-events-confirmations, 4.1.4; facts/slony, section 6.
"""

from spark.events.preconditions.documented import DOCUMENTED
from spark.events.preconditions.program import PROGRAM
from spark.events.preconditions.records import (
    Command,
    Fixed,
    Missing,
    Obstacle,
    Question,
    Verdict,
    Views,
)

NOTHING_FIXED: Fixed = {}


def judge(
    question: Question, views: Views, *, as_program: bool = False, fixed: Fixed = NOTHING_FIXED
) -> Verdict:
    """Evaluate a precondition.

    Args:
        views: node id to its view; nodes that could not be asked are absent.
        as_program: the rule of slonik's code instead of the document's.
        fixed: of an earlier verdict: younger events are not waited for.
    """
    rules = PROGRAM if as_program else DOCUMENTED
    found = [rules[each.command](each, views, fixed) for each in (question, *_submitted(question))]
    needed = frozenset[int]().union(*(each.needed for each in found))
    missing = {each for one in found for each in one.missing}
    return Verdict(
        tuple(sorted(missing, key=_order)),
        tuple(sorted(needed - set(views))),
        tuple(sorted((each for one in found for each in one.obstacles), key=_place)),
        fixed={key: event for each in found for key, event in each.fixed.items()},
        needed=needed,
    )


def _submitted(question: Question) -> list[Question]:
    """What is asked because the command before was submitted to another node."""
    if question.previous is None or question.event_node in (None, question.previous):
        return []
    assert question.event_node is not None
    return [Question(Command.SUBMIT_TO_OTHER_NODE, question.event_node, other=question.previous)]


def _order(missing: Missing) -> tuple[int, int, int]:
    return missing.origin, missing.node, 0 if missing.event is None else missing.event.seqno


def _place(obstacle: Obstacle) -> tuple[int, str, str]:
    return obstacle.node, obstacle.bar, obstacle.detail
