"""Whether a supplier can go on with a copy that was begun before.

Invariant: all that is gone on with is part of the supplier's history, and what it lacks is in its changelog.
"""

from collections.abc import Mapping

from spark.formats.csn import Csn
from spark.replication.proofs.history_points import Where, find_points
from spark.replication.records import Snapshot
from spark.targets.connection import Connection


def is_behind(ruv: Mapping[int, str], wanted: Mapping[int, str]) -> bool:
    """Whether a replica of that RUV lacks something of what is wanted."""
    return any(ruv.get(rid, "") < csn for rid, csn in wanted.items())


def still_holds(seen: Snapshot, *, generation: str, incarnation: str, begun: Mapping[int, Csn]) -> bool:
    """Whether a supplier is the one that a copy was begun from, as far as it knows by itself."""
    replica = seen.replica
    is_same = (replica.generation, replica.incarnation) == (generation, incarnation)
    return is_same and not is_behind(seen.vectors.ruv, begun)


def is_below_bound(begun: Mapping[int, str], seen: Snapshot, buried: Csn | None) -> bool:
    """Whether changes that follow a copy may be from below the bound that it would take along.

    Args:
        begun: the RUV that the copy stands for.
        seen: the supplier, when all entries are sent.
        buried: the greatest bound that any page was read under.
    """
    bound = buried or ""
    return any(begun.get(rid, "") < min(bound, csn) for rid, csn in seen.vectors.ruv.items())


def can_resume(
    conn: Connection,
    seen: Snapshot,
    *,
    begun: Mapping[int, Csn],
    copied: Mapping[int, Csn],
    applied: Mapping[int, Csn] | None,
) -> bool:
    """Compare what the consumer has of a copy with this supplier's history; no transaction is open.

    Args:
        seen: the supplier, before the acquire.
        begun: the RUV that the copy stands for.
        copied: of each replica id the newest entry that the consumer has.
        applied: of a copy that is whole the consumer's RUV; changes follow it. None: entries follow.
    """
    if is_behind(begun if applied is None else applied, seen.vectors.purged):
        return False
    own_rid = seen.replica.rid
    for vector in (begun, copied, applied or {}):
        for rid, point in find_points(conn, vector).items():
            # What the consumer has applied of this replica's own and this one lacks tells of a loss here.
            is_loss = vector is applied and rid == own_rid and point.where is Where.AHEAD
            if point.where in (Where.FOREIGN, Where.AHEAD) and not is_loss:
                return False
    return True
