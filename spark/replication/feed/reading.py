"""One page of the change feed: what follows a position, of all replica ids, out of one snapshot.

Invariants:
- of each replica id the changes come in the order of their CSNs, each once, none left out: a hole is an
  error, as it is to a consumer (`prev`);
- a position is served only where all behind it is here: what was trimmed, put back, parted or of another
  generation is refused, and never an empty page;
- over all replica ids the changes of a page are in the order of their CSNs; over two pages they need not be;
- what is read is bounded in rows that are looked at, in rows and in bytes that are given.
Source: design.md, Replication; facts/replication-decision-table, section 6 (preconditions P1 and P2).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.feed.errors import (
    CursorAhead,
    CursorGeneration,
    CursorParted,
    CursorTrimmed,
    FeedTooWide,
)
from spark.replication.feed.position import RIDS_MAX, Place, Position
from spark.replication.proofs.history_points import Where, find_points
from spark.replication.records import RecordKind, ReplicaStatus, Snapshot
from spark.replication.replica.entries import end_of
from spark.replication.replica.layout import keep_filled
from spark.replication.replica.replica import snapshot
from spark.replication.supplier.changelog_pages import ChangelogIncomplete
from spark.targets.connection import Connection
from spark.targets.key_order import read_by_index

SCAN_ROWS: Final = 5_000
"""So many rows of a replica id are looked at for one page, where only some keys are wanted."""


class Starting(StrEnum):
    """Where a reader without a position begins; NEWEST: before the last records, as many as a page has."""

    EARLIEST = "earliest"
    NEWEST = "newest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Keys:
    """The only keys that are wanted: those of a database that begin with a prefix."""

    database: bytes
    prefix: bytes = b""


class FeedRecord(NamedTuple):
    """A record of the changelog, and the chain's value at it."""

    rid: int
    csn: str
    prev: str | None
    kind: str
    database: bytes
    key: bytes
    payload: bytes | None
    logged_at_s: int
    chain: bytes | None

    @property
    def place(self) -> Place:
        """Where a reader stands who was given it."""
        return Place.at(self.csn, self.chain)


@dataclass(frozen=True, slots=True)
class FeedPage:
    """What follows a position.

    Attributes:
        begin: the position that it follows.
        end: where a reader stands who was given all of it.
        more: whether more was there at that moment.
        is_initializing: a total initialisation is under way: nothing is shown.
    """

    begin: Position
    end: Position
    records: tuple[FeedRecord, ...] = ()
    more: bool = False
    is_initializing: bool = False


class _Head(NamedTuple):
    """What is known of a record before it is read; `size` in bytes."""

    csn: str
    prev: str | None
    chain: bytes | None
    size: int
    is_wanted: bool


def read_feed(
    conn: Connection,
    position: Position | Starting,
    *,
    keys: Keys | None,
    rows_max: int,
    bytes_max: int,
) -> FeedPage:
    """Read the next page behind a position, in a transaction of its own.

    Args:
        keys: other changes are passed over, and so are KEEPALIVEs; extinctions are always given, and changes
            without their keys (WITHHELD) never.
        bytes_max: of databases, keys and payloads; the last record may exceed it.
    Raises: CursorTrimmed, CursorParted, CursorGeneration, CursorAhead, FeedTooWide; ChangelogIncomplete: a
        record is missing. ReplicaMissing, LayoutUnknown; TargetError.
    """
    with conn.transaction(read_only=True):
        keep_filled(conn)
        seen = snapshot(conn)
        if seen.replica.status is ReplicaStatus.INITIALIZING:
            begin = position if isinstance(position, Position) else Position()
            return FeedPage(begin, begin, is_initializing=True)
        if len(seen.vectors.ruv) > RIDS_MAX:
            raise FeedTooWide(f"the replica knows {len(seen.vectors.ruv)} replica ids, a cursor {RIDS_MAX}")
        begin = _begin(conn, seen, position, rows_max=rows_max)
        read_by_index(conn)
        return _page(conn, seen, begin, keys, rows_max=rows_max, bytes_max=bytes_max)


def _begin(conn: Connection, seen: Snapshot, position: Position | Starting, *, rows_max: int) -> Position:
    vectors = seen.vectors
    if isinstance(position, Position):
        _judge(conn, seen, position)
        return Position(seen.replica.generation, position.places)
    if position is Starting.NEWEST:
        start = _before_newest(conn, seen, rows_max)
    else:
        start = vectors.purged if position is Starting.EARLIEST else vectors.ruv
    points = find_points(conn, start)
    places = {rid: Place.at(csn, points[rid].chain) for rid, csn in start.items()}
    return Position(seen.replica.generation, places)


def _before_newest(conn: Connection, seen: Snapshot, rows_max: int) -> Mapping[int, Csn]:
    """By replica id the CSN behind which the last records of all of them begin, whatever their keys are."""
    read_by_index(conn)
    last: list[tuple[str, str | None, int]] = []
    for rid, upto in seen.vectors.ruv.items():
        rows = conn.execute(
            f"select csn, prev from {tables_of(conn).changelog}"
            " where rid = :rid and csn <= :upto order by csn desc limit :limit",
            {"rid": rid, "upto": str(upto), "limit": rows_max},
        )
        last += [(csn, prev, rid) for csn, prev in rows]
    start: dict[int, Csn] = dict(seen.vectors.ruv)
    for _, prev, rid in sorted(last, key=lambda each: each[0], reverse=True)[:rows_max]:
        # What has left the changelog may have left behind the record before.
        before = max(prev or "", seen.vectors.purged.get(rid, ""))
        start.pop(rid, None)
        if before:
            start[rid] = Csn(before)
    return start


def _judge(conn: Connection, seen: Snapshot, position: Position) -> None:
    """Refuse a position behind which not everything is here."""
    generation, purged = seen.replica.generation, seen.vectors.purged
    if position.places and generation is not None and position.generation != generation:
        raise CursorGeneration(f"the cursor is of generation {position.generation}, the replica {generation}")
    points = find_points(conn, {rid: place.csn for rid, place in position.places.items()})
    ahead, trimmed, parted = [], [], []
    for rid, place in position.places.items():
        point = points[rid]
        if point.where is Where.AHEAD:
            ahead.append(rid)
        elif place.csn < purged.get(rid, ""):
            trimmed.append(rid)
        elif point.where is Where.FOREIGN or not place.fits(point.chain):
            parted.append(rid)
    trimmed += [rid for rid in purged if rid not in position.places]
    if parted:
        raise CursorParted(f"the cursor is of another history of replica {_listed(parted)}", parted)
    if trimmed:
        raise CursorTrimmed(
            f"changes of replica {_listed(trimmed)} behind the cursor are not in the changelog any more",
            trimmed,
        )
    if ahead:
        raise CursorAhead(
            f"the cursor has changes of replica {_listed(ahead)} that this replica lacks: it was"
            " restored from a backup, or is behind the replica that gave the cursor",
            ahead,
        )


def _listed(rids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(rids)))


def _page(
    conn: Connection, seen: Snapshot, begin: Position, keys: Keys | None, *, rows_max: int, bytes_max: int
) -> FeedPage:
    is_all = keys is None and seen.replica.part is None
    limit = rows_max if is_all else max(rows_max, SCAN_ROWS)
    heads: dict[int, list[_Head]] = {}
    cut: list[str] = []
    for rid, upto in seen.vectors.ruv.items():
        after = begin.places[rid].csn if rid in begin.places else ""
        if after >= upto:
            continue
        heads[rid] = _heads(conn, rid, after=after, upto=upto, keys=keys, limit=limit)
        if heads[rid][-1].csn < upto:
            cut.append(heads[rid][-1].csn)
    safe = min(cut, default=None)  # behind it a replica id has records that were not looked at
    rest = [(head.csn, rid, head) for rid, found in heads.items() for head in found]
    passed, wanted = dict[int, _Head](), dict[int, list[str]]()
    looked_at = rows = size = 0
    for csn, rid, head in sorted(rest, key=lambda each: each[0]):
        if rows >= rows_max or size >= bytes_max or (safe is not None and csn > safe):
            break
        passed[rid], looked_at = head, looked_at + 1
        if head.is_wanted:
            wanted.setdefault(rid, []).append(csn)
            rows, size = rows + 1, size + head.size
    records = [record for rid, csns in wanted.items() for record in _records(conn, rid, csns, keys)]
    return FeedPage(
        begin=begin,
        end=begin.moved({rid: Place.at(head.csn, head.chain) for rid, head in passed.items()}),
        records=tuple(sorted(records, key=lambda record: record.csn)),
        more=looked_at < len(rest) or bool(cut),
    )


def _heads(
    conn: Connection, rid: int, *, after: str, upto: Csn, keys: Keys | None, limit: int
) -> list[_Head]:
    """The first records behind a CSN: what a page needs to know of them before it reads them.

    Raises: ChangelogIncomplete.
    """
    length = "octet_length" if conn.dialect.name == "postgresql" else "length"
    rows = conn.execute(
        f"select csn, prev, chain, {length}(database) + {length}(key) + coalesce({length}(payload), 0),"
        f" case when {_wanted(keys)} then 1 else 0 end from {tables_of(conn).changelog}"
        " where rid = :rid and csn > :after and csn <= :upto order by csn limit :limit",
        {"rid": rid, "after": after, "upto": str(upto), "limit": limit, **_params(keys)},
    )
    found = [_Head(csn, prev, chain, int(size), bool(wanted)) for csn, prev, chain, size, wanted in rows]
    last = after
    for head in found:
        if head.prev is not None and head.prev > last:
            raise ChangelogIncomplete(rid=rid, upto=head.prev, last=last or None)
        last = head.csn
    if len(found) < limit and last != upto:
        raise ChangelogIncomplete(rid=rid, upto=str(upto), last=last or None)
    return found


def _records(conn: Connection, rid: int, csns: list[str], keys: Keys | None) -> list[FeedRecord]:
    rows = conn.execute(
        f"select rid, csn, prev, kind, database, key, payload, logged_at_s, chain"
        f" from {tables_of(conn).changelog}"
        f" where rid = :rid and csn >= :first and csn <= :last and {_wanted(keys)} order by csn",
        {"rid": rid, "first": csns[0], "last": csns[-1], **_params(keys)},
    )
    assert [row[1] for row in rows] == csns, "one snapshot"
    return [FeedRecord(*row) for row in rows]


def _wanted(keys: Keys | None) -> str:
    if keys is None:
        return f"kind <> '{RecordKind.WITHHELD}'"
    kinds = f"'{RecordKind.CHANGE}', '{RecordKind.KEEPALIVE}', '{RecordKind.WITHHELD}'"
    inside = "database = :database and key >= :prefix"
    if end_of(keys.prefix) is not None:
        inside += " and key < :prefix_end"
    return f"(kind not in ({kinds}) or (kind = '{RecordKind.CHANGE}' and {inside}))"


def _params(keys: Keys | None) -> Mapping[str, Any]:
    if keys is None:
        return {}
    end = end_of(keys.prefix)
    found: dict[str, Any] = {"database": keys.database, "prefix": keys.prefix}
    return found if end is None else found | {"prefix_end": end}
