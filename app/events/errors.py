"""Errors of events and confirmations, as clients see them.

ServiceError -> NodeCopied, ClusterNotFound, EventNotFound, UnknownNode, ReceiverIsOrigin, SeqnoOfTheFuture,
                NotProcessedByReceiver, ReceiverNotAsked

What is wrong with the database itself are errors of `spark.events.errors`.
"""

from collections.abc import Sequence

from app.errors import Conflict, NotFound, Unprocessable


class NodeCopied(Conflict):
    """Two databases say that they are one node of one cluster: the slons follow one of them only."""

    def __init__(self, node: int, store: str, others: Sequence[str], *, original: str | None) -> None:
        names = ", ".join(others)
        if original is None:
            detail = (
                f"stores {store} and {names} are different databases that both say they are node {node}, and"
                " the paths of the cluster (sl_path) do not tell which the slons follow: remove the store of"
                " the copy, or register the node by the address that the paths have"
            )
        else:
            detail = (
                f"store {store} is a copy of node {node}: the paths of the cluster (sl_path) lead to store"
                f" {original}. Nothing is written to a copy; remove the store, or name {original}"
            )
        super().__init__(detail, extra={"node": node, "original": original, "stores": [store, *others]})


class ClusterNotFound(NotFound):
    """No store that the caller may see is a node of a cluster of that name."""


class EventNotFound(NotFound):
    """The node's sl_event has no such event: it was cleaned away, or has not arrived."""


class UnknownNode(Unprocessable):
    """The cluster has no such node, as the asked one knows it."""

    def __init__(self, node: int, *, pointer: str, known: tuple[int, ...]) -> None:
        names = ", ".join(map(str, known))
        fault = {"pointer": pointer, "detail": f"none of the cluster's nodes {names}"}
        super().__init__(f"node {node} is none of the cluster's nodes {names}", errors=[fault])


class ReceiverIsOrigin(Unprocessable):
    """A node does not confirm its own events."""


class SeqnoOfTheFuture(Unprocessable):
    """The origin has not made that event yet, as far as is known here."""

    def __init__(self, origin: int, seqno: int, *, last: int | None) -> None:
        newest = "none is known here" if last is None else f"the newest known here is {last}"
        super().__init__(
            f"event {seqno} of node {origin} is of the future: {newest}",
            errors=[{"pointer": "/seqno", "detail": "of the future"}],
            extra={"last_seqno": last},
        )


class NotProcessedByReceiver(Conflict):
    """The receiver's own catalog does not hold the event: a false confirmation would lose its rows."""


class ReceiverNotAsked(Conflict):
    """The receiver is not registered as a store, or does not answer: nobody knows what it holds."""
