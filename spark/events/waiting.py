"""WAIT FOR EVENT: who has confirmed what is waited for, and who has not. Pure: values in, values out.

Slonik is satisfied when its query finds no active receiver whose newest confirmation is too old; a receiver
without any row is not in that query, and counts as confirmed. Here every pair of origin and receiver is
looked at, and one without a row is outstanding.

Rules:
- nothing is satisfied by nobody: without a single pair of origin and receiver a wait does not succeed;
- who takes part is asked anew at every look: inactive and failed nodes do not count, one that has become
  active does, one that was dropped does not any more.
Source: slony-events-confirmations, 4.1.2 and 4.1.4; facts/slony, section 6.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark.events.records import Node

TELL_EVERY_S: Final = 10.0
"""As slonik does: "it displays a message every 10 seconds"."""
POLL_PACE_S: Final = ((60.0, 1.0), (600.0, 2.0), (3600.0, 5.0))
"""(waited less than, seconds between two looks)."""
POLL_SLOWEST_S: Final = TELL_EVERY_S
"""Each look is two events of the job: a wait of days looks no oftener than it tells."""


class Why(StrEnum):
    """Why a receiver is outstanding."""

    NEVER_CONFIRMED = "NEVER_CONFIRMED"
    BEHIND = "BEHIND"
    NOT_ACTIVE = "NOT_ACTIVE"


class Impossible(StrEnum):
    """Why no confirmation can end a wait any more."""

    ORIGIN_GONE = "ORIGIN_GONE"
    RECEIVER_GONE = "RECEIVER_GONE"
    NO_RECEIVERS = "NO_RECEIVERS"


@dataclass(frozen=True, slots=True)
class Awaited:
    """What is waited for.

    Args:
        seqnos: origin to the event that is to be confirmed.
        is_every_origin: all nodes were meant: one that is dropped meanwhile is waited for no longer.
        receiver: who is to confirm; None: every active node but the origin.
    """

    seqnos: Mapping[int, int]
    is_every_origin: bool = False
    receiver: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class Outstanding:
    """A receiver that has not confirmed an event.

    Args:
        confirmed_seqno: the newest of this origin that it has confirmed; None: none at all.
    """

    origin: int
    seqno: int
    receiver: int
    confirmed_seqno: int | None
    why: Why

    @property
    def behind(self) -> int | None:
        """How far behind, in sequence numbers: at most so many events. None: it never confirmed anything."""
        return None if self.confirmed_seqno is None else max(0, self.seqno - self.confirmed_seqno)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the confirmations tells.

    Args:
        pairs: how many pairs of origin and receiver were looked at.
        origins_gone: of those waited for; dropped since.
        impossible: why waiting is in vain.
    """

    pairs: int
    outstanding: tuple[Outstanding, ...]
    origins_gone: tuple[int, ...] = ()
    impossible: Impossible | None = None

    @property
    def is_satisfied(self) -> bool:
        """Whether all have confirmed."""
        return self.impossible is None and self.pairs > 0 and not self.outstanding


def look(awaited: Awaited, nodes: Iterable[Node], confirmed: Mapping[tuple[int, int], int | None]) -> Look:
    """Compare what is waited for with what one node knows now.

    Args:
        nodes: the rows of its sl_node.
        confirmed: (origin, receiver) to the newest confirmed seqno; a pair without any row is None or absent.
    """
    known = {node.id: node for node in nodes}
    gone = tuple(sorted(origin for origin in awaited.seqnos if origin not in known))
    if gone and not awaited.is_every_origin:
        return Look(0, (), gone, Impossible.ORIGIN_GONE)
    if awaited.receiver is not None and awaited.receiver not in known:
        return Look(0, (), gone, Impossible.RECEIVER_GONE)
    pairs, outstanding = 0, []
    for origin in sorted(set(awaited.seqnos) - set(gone)):
        for receiver in _receivers(awaited, origin, known):
            pairs += 1
            found = _outstanding(
                origin, awaited.seqnos[origin], receiver, confirmed.get((origin, receiver.id))
            )
            outstanding += [] if found is None else [found]
    return Look(pairs, tuple(outstanding), gone, None if pairs else Impossible.NO_RECEIVERS)


def takes_part(node: Node) -> bool:
    """Whether a node counts among all: active, and not failed."""
    return node.is_active and not node.has_failed


def _receivers(awaited: Awaited, origin: int, known: Mapping[int, Node]) -> list[Node]:
    if awaited.receiver is not None:  # whoever names it means it, also while it is not active
        return [] if awaited.receiver == origin else [known[awaited.receiver]]
    return [node for _, node in sorted(known.items()) if node.id != origin and takes_part(node)]


def _outstanding(origin: int, seqno: int, receiver: Node, confirmed: int | None) -> Outstanding | None:
    if not takes_part(receiver):
        return Outstanding(origin, seqno, receiver.id, confirmed, Why.NOT_ACTIVE)
    if confirmed is None:
        return Outstanding(origin, seqno, receiver.id, None, Why.NEVER_CONFIRMED)
    if confirmed < seqno:
        return Outstanding(origin, seqno, receiver.id, confirmed, Why.BEHIND)
    return None


def pause_s(waited_s: float) -> float:
    """How long to rest before the next look."""
    return next((pace for before, pace in POLL_PACE_S if waited_s < before), POLL_SLOWEST_S)
