"""Up to which CSN tombstones may go: every change from below it is here, and at every consumer.

A tombstone is needed as long as a change of its key from before the delete may come. Such a change comes from
a replica id whose changes are not all here up to the delete, and it can come to a consumer as well, which may
be about to copy this replica. So these hold tombstones back:
- a replica id, above its element of the RUV; all of it, where it is known of and nothing of it is here: a
  consumer has changes of it, one of its changes was refused, or an extinction of it was announced. One that
  belongs to a consumer may be silent: when the consumer acknowledged its RUV it had no change of its own that
  is not here, and what it begins to write from then on is greater than everything it had. A write that was
  under way then has read its clock before: for it, nobody asks to purge what is younger than a day, and the
  bound refuses it if it takes longer;
- an agreement, above what it has acknowledged of a replica id of which it lacks something; one that has
  acknowledged nothing of a replica id holds all. As the floors of trimming, removed ones for a while too.
The own replica id holds nothing: what it writes is greater than all that is here.

Source: design.md, Replication; 389's replica_get_purge_csn (the least of all elements of the RUV).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.agreements import Agreement, floors
from spark.replication.dead_letters import Direction
from spark.replication.replica.replica import read_vectors
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds tombstones above `upto` (None: all): an agreement, or a replica id."""

    name: str
    upto: Csn | None


@dataclass(frozen=True, slots=True)
class TombstoneCeiling:
    """Up to where tombstones may go now; None: none may."""

    upto: Csn | None
    holders: tuple[Holder, ...] = ()

    def held_by(self, newest: str | None) -> tuple[str, ...]:
        """Who keeps a tombstone from going: all that are below it.

        Args:
            newest: the greatest one that is old enough; None: there is none.
        """
        return tuple(each.name for each in self.holders if newest is not None and (each.upto or "") < newest)


def name_of_rid(rid: int) -> str:
    """How a replica id is named beside agreements."""
    return f"RID {rid}"


def ceiling(conn: Connection, *, now_s: int, gone: Collection[int] = ()) -> TombstoneCeiling:
    """Look who holds tombstones, and up to where they may go.

    Args:
        now_s: the target's clock.
        gone: replica ids that an operator has declared gone: nothing of theirs is waited for.
    Raises: ReplicaMissing.
    """
    counted = floors(conn, now_s=now_s).agreements
    ruv = read_vectors(conn).ruv
    if not ruv:
        return TombstoneCeiling(None)
    rids = (_known_rids(conn, ruv, counted) - {_own_rid(conn)}) - set(gone)
    holders = [Holder(name_of_rid(rid), _covered(rid, ruv, counted)) for rid in sorted(rids)]
    for each in counted:
        lacking = _lacking(each, ruv)
        if lacking:
            holders.append(Holder(each.agreement_id, Csn(min(lacking)) if min(lacking) else None))
    uptos = [each.upto or "" for each in holders]
    least = min([*uptos, max(ruv.values())])
    return TombstoneCeiling(Csn(least) if least else None, tuple(holders))


def _own_rid(conn: Connection) -> int:
    [(rid,)] = conn.execute(f"select rid from {tables_of(conn).replica}")
    return int(rid)


def _known_rids(conn: Connection, ruv: Mapping[int, Csn], counted: Collection[Agreement]) -> set[int]:
    """Whoever may bring changes of its own: it has, here or at a consumer, or it is a peer itself."""
    tables = tables_of(conn)
    rows = conn.execute(
        f"select rid from {tables.peers} where role = 'SUPPLIER' union select rid from {tables.announced}"
        f" union select rid from {tables.dead_letters}"
        f" where direction = '{Direction.RECEIVED}' and resolved_at_s is null"
    )
    consumers = {each.consumer_rid for each in counted if each.consumer_rid is not None}
    elsewhere = {rid for each in counted for rid in each.acknowledged}
    return {*ruv, *consumers, *elsewhere, *(int(rid) for (rid,) in rows)}


def _covered(rid: int, ruv: Mapping[int, Csn], counted: Collection[Agreement]) -> Csn | None:
    """The CSN up to which every change of a replica id is here, whether it has made one or not."""
    found = ruv.get(rid)
    for each in counted:
        has_brought_all = each.acknowledged.get(rid, "") <= ruv.get(rid, "")
        if each.consumer_rid == rid and each.acknowledged and has_brought_all:
            newest = max(each.acknowledged.values())
            found = newest if found is None else max(found, newest)
    return found


def _lacking(agreement: Agreement, ruv: Mapping[int, Csn]) -> list[str]:
    """What it has acknowledged of each replica id of which it lacks something; empty: nothing of it."""
    acknowledged = {rid: agreement.acknowledged.get(rid, "") for rid in ruv}
    return [acknowledged[rid] for rid, own in ruv.items() if acknowledged[rid] < own]
