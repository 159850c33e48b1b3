"""Whether anybody knows the node and the channel that were asked for: a typo is not an empty backlog."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.errors import NotFound
from app.kit.instants import instant_text
from app.purge.backlog.models import LookKept
from app.purge.backlog.rows import BacklogLook
from app.purge.backlog.service import is_late
from spark.formats.symmetricds import UNROUTED_NODE

NAMED_MAX: Final = 10


def require_known(
    look: BacklogLook | None, *, node: str | None, channel: str | None, prefix: str, now: datetime
) -> None:
    """Refuse a node, and a channel, that the last look has found nowhere.

    A look that is late or could not read refuses nothing: its status is UNKNOWN in any case.

    Args:
        prefix: of the tables of SymmetricDS.
    Raises: NotFound: NODE_NOT_FOUND, CHANNEL_NOT_FOUND.
    """
    if look is None or look.found is None or look.problem is not None or is_late(look, now=now):
        return
    found = LookKept.model_validate(look.found)
    node_fault = channel_fault = None
    if not _is_known(node, found.nodes, UNROUTED_NODE):
        table = f"{prefix}node"
        known = _known(found.nodes, table)
        node_fault = f"node {node} is not in {table}, and no batch waits for it; {known}"
    if not _is_known(channel, found.channels):
        table = f"{prefix}channel"
        known = _known(found.channels, table)
        channel_fault = f"channel {channel} is not in {table}, and no batch of it waits; {known}"
    faults = ". ".join(fault for fault in (node_fault, channel_fault) if fault is not None)
    seen = f"as of the look of {instant_text(look.at)}. Correct the name, or look again where it is new"
    if node_fault is not None:
        raise NotFound(f"{faults}; {seen}", code="NODE_NOT_FOUND")
    if channel_fault is not None:
        raise NotFound(f"{faults}; {seen}", code="CHANNEL_NOT_FOUND")


def _is_known(asked: str | None, known: Sequence[str] | None, *always: str) -> bool:
    return asked is None or known is None or asked in known or asked in always


def _known(names: Sequence[str] | None, table: str) -> str:
    named = [each for each in names or () if each][:NAMED_MAX]
    if not named:
        return "none is known"
    more = len(names or ()) - len(named)
    rest = f" and {more:,} more in {table}" if more > 0 else ""
    return f"known are {', '.join(named)}{rest}"
