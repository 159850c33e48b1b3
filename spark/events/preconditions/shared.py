"""What both rules of a precondition ask of the views."""

from collections.abc import Iterable, Mapping

from spark.events.preconditions.records import (
    Bar,
    Fixed,
    Found,
    Missing,
    Newest,
    Obstacle,
    Question,
    Runner,
    Running,
    View,
    Views,
    What,
)
from spark.events.waiting import Why, takes_part

TRANSACTIONS = "TRANSACTIONS"
RUNNERS_NAMED_MAX = 5
XIDS = 1 << 32


def active(views: Views) -> set[int]:
    """Who takes part by the word of at least one node: one that is being dropped counts until all know."""
    return {node.id for view in views.values() for node in view.nodes if takes_part(node)}


def known(views: Views) -> set[int]:
    """Whom at least one node knows."""
    return {node.id for view in views.values() for node in view.nodes}


def newest(kind: str, origin: int, views: Iterable[View]) -> Newest | None:
    """The newest event of an origin, by the word of any of these nodes.

    Args:
        kind: a field of View.
    """
    return newer(*(getattr(view, kind).get(origin) for view in views))


def newer(*events: Newest | None) -> Newest | None:
    """The one with the highest number; None: there is none."""
    return max(filter(None, events), key=lambda event: event.seqno, default=None)


def behind(origin: int, receiver: int, event: Newest | None, confirmed: int | None) -> Missing | None:
    """What is missing of one pair; a receiver without any row has never confirmed anything."""
    if confirmed is None:
        return Missing(origin, receiver, event, None, Why.NEVER_CONFIRMED)
    if event is not None and confirmed < event.seqno:
        return Missing(origin, receiver, event, confirmed, Why.BEHIND)
    return None


def settled(what: What, wanted: Mapping[int, Newest | None], views: Views, fixed: Fixed) -> Fixed:
    """What of `wanted` is fixed from now on: what was, and what the origin itself has told."""
    return {
        (what, origin): event for origin, event in wanted.items() if is_settled(what, origin, views, fixed)
    }


def is_settled(what: What, origin: int, views: Views, fixed: Fixed) -> bool:
    """Whether an origin need not be asked for its newest event."""
    return (what, origin) in fixed or origin in views


def asked(what: What, origins: Iterable[int], fixed: Fixed) -> set[int]:
    """Who of these must still be asked for its newest event."""
    return {origin for origin in origins if (what, origin) not in fixed}


def transactions(question: Question, views: Views, fixed: Fixed, *, is_strict: bool) -> Found:
    """LOCK SET: the transactions that ran when it was asked first have ended.

    The program locks the set, and waits until the oldest transaction that runs is not older than the end of
    the snapshot that it took then. A transaction that no younger one has overtaken, by ending, is not in it.

    Args:
        is_strict: those too that none has overtaken.
    """
    node = question.node
    view, key = views.get(node), (What.TRANSACTIONS, node)
    if view is None or view.running is None:
        return Found(frozenset({node}), {key: fixed[key]} if key in fixed else {})
    bound = fixed.get(key) or Newest(_bound(view.running, is_strict=is_strict), TRANSACTIONS)
    late = [each for each in view.running.runners if _is_older(each, bound.seqno)]
    obstacles: list[Obstacle] = []
    if view.running.oldest < bound.seqno:
        obstacles = [Obstacle(Bar.TRANSACTION_RUNS, node, _said(each), each.pid) for each in late]
        unseen = Obstacle(Bar.TRANSACTION_RUNS, node, "a transaction that pg_stat_activity does not show")
        obstacles = obstacles[:RUNNERS_NAMED_MAX] or [unseen]
    return Found(frozenset({node}), {key: bound}, obstacles=tuple(obstacles))


def _bound(running: Running, *, is_strict: bool) -> int:
    """The first transaction that is not waited for."""
    if not is_strict:
        return running.following
    ids = [running.following + _distance(each.xid, running.following) for each in running.runners]
    return max([running.following, *(xid + 1 for xid in ids)])


def _distance(xid: int, following: int) -> int:
    """From an id of 64 bits to one of 32, forwards or backwards, whatever is nearer."""
    ahead = (xid - following) % XIDS
    return ahead if ahead < XIDS // 2 else ahead - XIDS


def _is_older(runner: Runner, bound: int) -> bool:
    """Ids of sessions have 32 bits and come round; those of snapshots have 64."""
    return _distance(runner.xid, bound) < 0


def _said(runner: Runner) -> str:
    who = "a prepared transaction" if runner.pid is None else f"pid {runner.pid}"
    what = f"{runner.application or 'unnamed'}, {runner.state or 'state not shown'}"
    return f"{who} ({what}) of {runner.user or 'unknown'}, for {runner.age_s:.0f} s"


def survivors(question: Question, views: Views) -> set[int]:
    """FAILOVER: all other nodes, as the backup node knows them: slonik must reach each, active or not."""
    backup = views.get(question.other or 0)
    return set() if backup is None else {node.id for node in backup.nodes} - {question.node}


def failover(question: Question, views: Views) -> Found:
    """FAILOVER waits for nothing before it: it looks whether the backup node can take the place, or refuses.

    Every receiver that the failed node provides needs a path to the backup node, which must be a forwarding
    subscriber of every set of the failed node.
    """
    failed, backup = question.node, question.other
    assert backup is not None
    view = views.get(backup)
    needed = frozenset({backup} | survivors(question, views))
    if view is None or view.subscriptions is None:
        return Found(needed)
    rows, origins = view.subscriptions.rows, view.subscriptions.origins
    fed = sorted({r for _, provider, r, _ in rows if provider == failed and r not in (failed, backup)})
    forwarded = {set_id for set_id, _, receiver, forwards in rows if receiver == backup and forwards}
    paths = [
        Obstacle(Bar.NO_PATH_TO_BACKUP, each, f"node {each} has no path to the backup node {backup}", backup)
        for each in fed
        if (backup, each) not in view.paths
    ]
    sets = [
        Obstacle(Bar.NOT_A_FORWARDER, backup, f"it is no forwarding subscriber of set {set_id}", set_id)
        for set_id, origin in sorted(origins.items())
        if origin == failed and set_id not in forwarded
    ]
    return Found(needed, obstacles=(*paths, *sets))
