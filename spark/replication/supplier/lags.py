"""How far the consumers of a replica are behind, replica id by replica id; the consumers are not asked."""

from collections.abc import Mapping
from dataclasses import dataclass

from spark.formats.csn import Csn
from spark.replication.agreements import read_agreements
from spark.replication.records import Snapshot
from spark.replication.replica.replica import snapshot
from spark.replication.supplier.backlog import count_missing, oldest_by_rid
from spark.replication.supplier.decide import Window
from spark.targets.connection import Connection, target_now


@dataclass(frozen=True, slots=True)
class Lag:
    """What a consumer has not acknowledged of one replica id.

    Attributes:
        changes: records in the changelog.
        lag_s: how long ago the first of them was logged here, by the target's clock.
        is_purged: some of what it lacks has left the changelog: only a total initialisation helps.
    """

    changes: int
    lag_s: int
    acknowledged: Csn | None
    upto: Csn
    is_purged: bool


@dataclass(frozen=True, slots=True)
class Lags:
    """A replica and all its consumers, of one moment.

    Attributes:
        agreements: by agreement, by RID; a RID of which nothing is missing is there with 0.
    """

    seen: Snapshot
    agreements: Mapping[str, Mapping[int, Lag]]


def read_lags(conn: Connection) -> Lags:
    """Read them in one read transaction.

    Raises: TargetError, ReplicaMissing.
    """
    with conn.transaction(read_only=True):
        seen = snapshot(conn)
        now_s = target_now(conn).timestamp()
        found = {
            each.agreement_id: _lags(conn, seen, each.acknowledged, now_s=now_s)
            for each in read_agreements(conn)
            if each.removed_at_s is None
        }
    return Lags(seen, found)


def _lags(
    conn: Connection, seen: Snapshot, acknowledged: Mapping[int, Csn], *, now_s: float
) -> dict[int, Lag]:
    ruv, purged = seen.vectors.ruv, seen.vectors.purged
    windows = {
        rid: Window(acknowledged.get(rid), upto)
        for rid, upto in ruv.items()
        if acknowledged.get(rid, "") < upto
    }
    counted, oldest = count_missing(conn, windows), oldest_by_rid(conn, windows)
    return {
        rid: Lag(
            changes=counted.get(rid, 0),
            lag_s=max(0, round(now_s - oldest[rid].logged_at_s)) if rid in oldest else 0,
            acknowledged=acknowledged.get(rid),
            upto=upto,
            is_purged=rid in windows and acknowledged.get(rid, "") < purged.get(rid, ""),
        )
        for rid, upto in sorted(ruv.items())
    }
