"""Counts and checksums of a replica, as one side of an audit gives them to the other."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.replication.audits.models import (
    CsnRange,
    DigestRequest,
    DigestsRead,
    EntriesDigestRead,
    EntriesRange,
    RangeDigestRead,
)
from app.replication.consumer.models import shown_vector
from app.replication.replica.replicas import require_readable
from spark.formats.part import Part
from spark.replication.replica.digest import FIRST_KEY, Digest, EntryKey, digest_changes, digest_entries
from spark.replication.replica.replica import snapshot
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to count and hash; `entries` is (after, upto), None: not at all.

    Attributes:
        buried: tombstones up to this CSN count for nothing: one side has purged them.
    """

    ranges: Mapping[int, CsnRange]
    entries: tuple[EntryKey, EntryKey | None] | None = None
    buried: str | None = None

    @classmethod
    def of(cls, request: DigestRequest) -> "Wanted":
        """As a peer has asked."""
        if not request.entries:
            return cls(request.ranges)
        part = request.entries_range or EntriesRange()
        after = FIRST_KEY if part.after is None else part.after.place
        upto = None if part.upto is None else part.upto.place
        return cls(request.ranges, (after, upto), request.buried)

    def body(self) -> dict[str, Any]:
        """As a peer is asked."""
        ranges = {str(rid): list(found) for rid, found in self.ranges.items()}
        if self.entries is None:
            return {"ranges": ranges, "entries": False}
        after, upto = self.entries
        part = {
            "after": None if after == FIRST_KEY else _point(after),
            "upto": None if upto is None else _point(upto),
        }
        buried = {} if self.buried is None else {"buried": self.buried}
        return {"ranges": ranges, "entries": True, "entries_range": part, **buried}


def compute_digests(
    conn: Connection, wanted: Wanted, *, should_stop: Callable[[], bool], part: Part | None = None
) -> DigestsRead:
    """Count and hash, and look at the vectors before and after.

    Args:
        part: as a consumer has it that holds only these keys; None: all that is here.
    Raises: DigestStopped; ReplicaInitializing; TargetError, ReplicationRefused.
    """
    require_readable(conn)
    before = snapshot(conn).vectors
    changes = {
        rid: digest_changes(conn, rid, after=after, upto=upto, should_stop=should_stop, part=part)
        for rid, (after, upto) in wanted.ranges.items()
    }
    entries = None
    if wanted.entries is not None:
        after, upto = wanted.entries
        entries = digest_entries(
            conn, after=after, upto=upto, should_stop=should_stop, part=part, buried=wanted.buried
        )
    seen = snapshot(conn)
    behind, buried = seen.vectors, seen.replica.buried
    require_readable(conn)  # a total initialisation may have emptied it meanwhile

    def shown(rid: int, found: Digest) -> RangeDigestRead:
        after, upto = wanted.ranges[rid]
        purged, known = behind.purged.get(rid), before.ruv.get(rid)
        is_whole = (purged is None or (after is not None and purged <= after)) and known is not None
        return RangeDigestRead(
            count=found.count, checksum=found.checksum, whole=is_whole and known is not None and upto <= known
        )

    return DigestsRead(
        rids={str(rid): shown(rid, found) for rid, found in sorted(changes.items())},
        entries=None
        if entries is None
        else EntriesDigestRead(
            count=entries.count,
            checksum=entries.checksum,
            quiet=before.ruv == behind.ruv and (buried or "") <= (wanted.buried or ""),
        ),
        ruv=shown_vector(behind.ruv),
        purged=shown_vector(behind.purged),
        buried=buried,
    )


def _point(place: EntryKey) -> dict[str, str]:
    return {"database": b64encode(place[0]).decode(), "key": b64encode(place[1]).decode()}
