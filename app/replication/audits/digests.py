"""Counts and checksums of a replica, as one side of an audit gives them to the other."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from app.replication.audits.models import (
    DigestRequest,
    DigestsRead,
    EntriesDigestRead,
    EntriesRange,
    RangeDigestRead,
)
from app.replication.consumer.models import shown_vector
from app.replication.replica.refusals import ReplicaInitializing
from spark.formats.part import Part
from spark.replication import session_errors
from spark.replication.errors import ReplicationRefused
from spark.replication.replica.digest import FIRST_KEY, Digest, EntryKey
from spark.replication.replica.digest_piece import Answered, Digested, Wanted, digest_piece
from spark.targets.connection import Connection


def wanted_by(request: DigestRequest) -> Wanted:
    """What a peer has asked for."""
    if not request.entries:
        return Wanted(request.ranges)
    part = request.entries_range or EntriesRange()
    after = FIRST_KEY if part.after is None else part.after.place
    upto = None if part.upto is None else part.upto.place
    return Wanted(request.ranges, (after, upto), request.buried)


def body_of(wanted: Wanted) -> dict[str, Any]:
    """How a peer is asked."""
    ranges = {str(rid): list(found) for rid, found in wanted.ranges.items()}
    if wanted.entries is None:
        return {"ranges": ranges, "entries": False}
    after, upto = wanted.entries
    part = {
        "after": None if after == FIRST_KEY else _point(after),
        "upto": None if upto is None else _point(upto),
    }
    buried = {} if wanted.buried is None else {"buried": wanted.buried}
    return {"ranges": ranges, "entries": True, "entries_range": part, **buried}


def compute_digests(
    conn: Connection, wanted: Wanted, *, should_stop: Callable[[], bool], part: Part | None = None
) -> DigestsRead:
    """Count and hash, and look at the vectors before and after.

    Args:
        part: as a consumer has it that holds only these keys; None: all that is here.
    Raises: DigestStopped; ReplicaInitializing; TargetError, ReplicationRefused.
    """
    try:
        found: Answered = digest_piece(conn, wanted, should_stop=should_stop, part=part)
    except session_errors.ReplicaInitializing as refused:
        found = refused
    return shown_digests(wanted, found)


def shown_digests(wanted: Wanted, found: Answered) -> DigestsRead:
    """An answer as peers exchange it, whoever has read the rows.

    Raises: ReplicaInitializing; ReplicationRefused.
    """
    if isinstance(found, session_errors.ReplicaInitializing):
        raise ReplicaInitializing(found.detail) from found
    if isinstance(found, ReplicationRefused):
        raise found
    behind, buried = found.behind.vectors, found.behind.replica.buried
    entries = found.entries
    return DigestsRead(
        rids={str(rid): _shown(wanted, rid, each, found) for rid, each in sorted(found.changes.items())},
        entries=None
        if entries is None
        else EntriesDigestRead(
            count=entries.count,
            checksum=entries.checksum,
            quiet=found.ruv == behind.ruv and (buried or "") <= (wanted.buried or ""),
        ),
        ruv=shown_vector(behind.ruv),
        purged=shown_vector(behind.purged),
        buried=buried,
    )


def _shown(wanted: Wanted, rid: int, digest: Digest, found: Digested) -> RangeDigestRead:
    after, upto = wanted.ranges[rid]
    purged, known = found.behind.vectors.purged.get(rid), found.ruv.get(rid)
    is_whole = (purged is None or (after is not None and purged <= after)) and known is not None
    return RangeDigestRead(
        count=digest.count, checksum=digest.checksum, whole=is_whole and known is not None and upto <= known
    )


def _point(place: EntryKey) -> dict[str, str]:
    return {"database": b64encode(place[0]).decode(), "key": b64encode(place[1]).decode()}
