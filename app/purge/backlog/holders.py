"""What holds a purge back: the oldest batch of each node, and why it still waits."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from app.purge.backlog.models import BacklogHolderRead, HolderWhy, LookKept, PairKept
from app.purge.backlog.samples import Pair
from spark.formats.symmetricds import UNROUTED_NODE

ADVICE: Final[Mapping[HolderWhy, str]] = {
    HolderWhy.NODE_UNKNOWN: "The node is not in sym_node: if it is gone for good, a purge with stranded MARK"
    " turns its batches to OK.",
    HolderWhy.NODE_DISABLED: "Enable the node (sync_enabled), or give its backlog up: a purge with stranded"
    " MARK turns its batches to OK, and it never gets them.",
    HolderWhy.BATCH_IN_ERROR: "Look at the error of this batch in SymmetricDS, and mend or ignore it: nothing"
    " behind it goes on this channel.",
    HolderWhy.NODE_SILENT: "Start SymmetricDS at the node, or mend the way to it. If it is gone for good,"
    " disable it in SymmetricDS; then a purge with stranded MARK frees the rows.",
    HolderWhy.STUCK: "The node has taken nothing of this channel in the whole window: look whether it runs,"
    " and whether the channel is suspended for it.",
    HolderWhy.UNDER_WAY: "Look again later: while its oldest batch changes, it is delivered in its order.",
}
UNROUTED_ADVICE: Final = (
    "Rows that were routed to nobody wait in a batch that is not OK: a purge with stranded MARK turns it to"
    " OK."
)


def holders_of(
    found: LookKept,
    pairs: Iterable[PairKept],
    *,
    as_of: datetime,
    silent: timedelta,
    stuck: Mapping[Pair, bool],
) -> list[BacklogHolderRead]:
    """The oldest batch of each node, the oldest first.

    Args:
        pairs: those that were asked for, by their oldest batches.
        as_of: by the target's clock.
        silent: from when on a node without heartbeat is silent; zero: never.
        stuck: pairs whose oldest batch has been the same for the whole window.
    """
    oldest: dict[str, PairKept] = {}
    for pair in pairs:
        oldest.setdefault(pair.node, pair)
    return [
        _holder(pair, found, as_of=as_of, silent=silent, is_stuck=stuck.get((pair.node, pair.channel), False))
        for pair in oldest.values()
    ]


def _holder(
    pair: PairKept, found: LookKept, *, as_of: datetime, silent: timedelta, is_stuck: bool
) -> BacklogHolderRead:
    age = None if pair.oldest_at is None else max(as_of - pair.oldest_at, timedelta(0))
    why = _why(pair, as_of=as_of, silent=silent, is_stuck=is_stuck)
    is_unrouted = pair.node == UNROUTED_NODE and why is HolderWhy.NODE_UNKNOWN
    return BacklogHolderRead(
        node=pair.node,
        channel=pair.channel,
        batch=pair.oldest_batch,
        status=pair.status,
        at=pair.oldest_at,
        age=age,
        holds_purge=age is not None and age > timedelta(minutes=found.retention_minutes),
        why=why,
        heartbeat_at=pair.heartbeat_at,
        advice=UNROUTED_ADVICE if is_unrouted else ADVICE[why],
    )


def _why(pair: PairKept, *, as_of: datetime, silent: timedelta, is_stuck: bool) -> HolderWhy:
    if pair.is_enabled is None:
        return HolderWhy.NODE_UNKNOWN
    if not pair.is_enabled:
        return HolderWhy.NODE_DISABLED
    if pair.is_in_error:
        return HolderWhy.BATCH_IN_ERROR
    if silent and pair.heartbeat_at is not None and as_of - pair.heartbeat_at > silent:
        return HolderWhy.NODE_SILENT
    return HolderWhy.STUCK if is_stuck else HolderWhy.UNDER_WAY
