"""Who holds a command of slonik back, and what to do: one line for each thing that is in the way."""

from collections.abc import Iterator
from typing import Final

from app.events.preconditions.models import HeldRead, HeldWhy, NotEvaluatedRead, NotEvaluatedWhy
from spark.events.preconditions.records import Bar, Missing, Newest, Obstacle, Verdict, View, Views
from spark.events.preconditions.shared import known
from spark.events.waiting import takes_part

_BARS: Final = {
    Bar.TRANSACTION_RUNS: "End it, or wait: LOCK SET waits until it has ended.",
    Bar.NO_PATH_TO_BACKUP: "STORE PATH with this server and this client, or name the node as failed too.",
    Bar.NOT_A_FORWARDER: "Choose another backup node, or subscribe it with forward = yes.",
    Bar.SLON_NOT_RUNNING: "Start its slon, or name the node as failed too.",
}
_NOT_ASKED: Final = {
    NotEvaluatedWhy.NOT_REGISTERED: "Register it: lethe store add NAME URL --kind SLONY --cluster CLUSTER.",
    NotEvaluatedWhy.UNREACHABLE: "Look at its server: lethe store check STORE. One that will not come back is"
    " dropped by DROP NODE.",
    NotEvaluatedWhy.NOT_PERMITTED: "Ask with a token that may read its store too.",
}


def held_by(
    verdict: Verdict, views: Views, not_asked: list[NotEvaluatedRead], *, store: str
) -> list[HeldRead]:
    """Name who holds it, by node.

    Args:
        store: through which it was asked; for the commands that are named.
    """
    found = [*_missing(verdict, views, store), *(_bar(each) for each in verdict.obstacles)]
    found += [_away(each) for each in not_asked]
    return sorted(found, key=lambda each: each.node)


def _missing(verdict: Verdict, views: Views, store: str) -> Iterator[HeldRead]:
    for each in verdict.missing:
        why, more, advice = _cause(each, views, f"lethe slony health {store}")
        yield HeldRead(node=each.node, why=why, detail=f"{_lacks(each)}{more}", advice=advice)


def _lacks(missing: Missing) -> str:
    what = (
        f"an event of node {missing.origin}"
        if missing.event is None
        else _named(missing.origin, missing.event)
    )
    if missing.confirmed_seqno is None:
        return f"node {missing.node} has not confirmed {what}, and none of node {missing.origin} ever"
    return f"node {missing.node} has not confirmed {what}, only up to {missing.confirmed_seqno}"


def _named(origin: int, event: Newest) -> str:
    return f"{event.type} ({origin},{event.seqno})"


def _cause(missing: Missing, views: Views, look: str) -> tuple[HeldWhy, str, str]:
    """Why it is so, what to add to the words, and what to do.

    Args:
        look: the command that looks at all nodes.
    """
    own, node = views.get(missing.node), missing.node
    if missing.origin not in known(views):
        gone = "; no node knows its origin any more"
        return HeldWhy.ORIGIN_GONE, gone, "It was dropped meanwhile: end the wait and ask anew."
    if own is not None and _has_it(own, missing):
        late = "; it has processed the event, and its confirmation has not come back yet"
        return HeldWhy.NOT_HEARD, late, f"If it stays so, look at the paths: {look}."
    if own is not None and own.has_slon is False:
        silent = "; its slon is not connected"
        return HeldWhy.SLON_NOT_RUNNING, silent, f"Start the slon of node {node}."
    if any((row := view.find(node)) is not None and not takes_part(row) for view in views.values()):
        inactive = "; it is not active, or has failed"
        return HeldWhy.NOT_ACTIVE, inactive, "Its slon must run for a new node; a failed one is dropped."
    return HeldWhy.BEHIND, "", f"If it stays so, look at node {node} and its slon: {look}."


def _has_it(own: View, missing: Missing) -> bool:
    confirmed = own.confirmed.get((missing.origin, missing.node))
    if confirmed is None or missing.event is None:
        return False
    return confirmed >= missing.event.seqno


def _bar(obstacle: Obstacle) -> HeldRead:
    why = HeldWhy(obstacle.bar.value)
    return HeldRead(node=obstacle.node, why=why, detail=obstacle.detail, advice=_BARS[obstacle.bar])


def _away(away: NotEvaluatedRead) -> HeldRead:
    detail = f"node {away.node} could not be asked" + (f": {away.detail}" if away.detail else "")
    why = HeldWhy(away.why.value)
    return HeldRead(node=away.node, why=why, detail=detail, advice=_NOT_ASKED[away.why])
