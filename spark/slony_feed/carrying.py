"""Carries the units of a node into a replica: each in one transaction, with the cursor.

Rules:
- a transaction begins with the fence; then come the locks that keep sessions and local writers away, held to
  the commit. The cursor must stand where the reading began, and the RUV where the last unit left it: whatever
  else was written since is seen, and nothing is written over it;
- the cursor, the entries and the RUV are committed together: a death anywhere leaves a unit whole or not at
  all, and the next attempt reads the cursor;
- a first copy is one transaction too. What it does not have is deleted from the feed's own database.
Source: slony-events-confirmations, 4.1.1; design.md, Events and Replication.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from spark.events.feed.copying import read_copy
from spark.events.feed.position import newest_position
from spark.events.feed.reading import Asked, read_page
from spark.events.feed.records import Change
from spark.events.feed.snapshot import TxidSnapshot
from spark.events.records import Catalog
from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.errors import ReplicaNotOnline
from spark.replication.records import ReplicaStatus
from spark.replication.replica.appending import Appender, read_own
from spark.replication.replica.conditions import hold_arrivals
from spark.replication.replica.extinction_index import index_of
from spark.replication.replica.replica import (
    Expected,
    lock_replica,
    loss_of,
    mark_loss,
    read_vectors,
    recalled,
)
from spark.replication.snapshots.place import ReplicaNotBlank
from spark.slony_feed.cursor import Cursor, Feed, put_cursor, read_cursor
from spark.slony_feed.errors import FeedDiffers, FeedMoved, FeedNotAlone
from spark.slony_feed.keys import SYNC_KEY, value_of
from spark.slony_feed.printing import printed_alike
from spark.slony_feed.source import (
    Known,
    origin_sets,
    read_instant,
    read_known,
    read_life,
    require_counted,
    require_instant,
    require_known,
    require_life,
    require_same_tables,
)
from spark.slony_feed.writing import UnitWriter
from spark.targets.connection import Connection

UNITS_AT_ONCE: Final = 100
ROWS_AT_ONCE: Final = 100_000
COPY_MAX_MS: Final = 6 * 3600 * 1000
"""Of the COPY of one table: the time counts in which the replica writes what has come."""
NAME_IT: Final = "name a new first copy (`first_copy`) to go on"


@dataclass(frozen=True, slots=True)
class Hands:
    """What the caller does around each transaction of the replica.

    Args:
        expected: what it remembers of the replica, read before the transaction begins.
        turn: held for the transaction.
        fence: the first statement in it; raises where another one may write there by now.
        committed: called with the greatest own CSN, behind the commit.
        now_s: the service's clock, for CSNs.
        check: called between two blocks; raises where the job must stop.
    """

    expected: Callable[[], Expected]
    turn: Callable[[], AbstractContextManager[None]]
    fence: Callable[[], None]
    committed: Callable[[str | None], None]
    now_s: Callable[[], int]
    check: Callable[[], None]


@dataclass(slots=True)
class _Held:
    """A replica under the locks: its cursor, its RUV, and what writes into it."""

    cursor: Cursor | None
    ruv: Mapping[int, Csn]
    appender: Appender
    writer_of: Callable[[Feed, Known], UnitWriter]


class Carrier:
    """One feed into one replica."""

    def __init__(
        self, replica: Connection, node: Connection, catalog: Catalog, feed: Feed, hands: Hands
    ) -> None:
        self._replica, self._node, self._catalog = replica, node, catalog
        self._feed, self._hands = feed, hands

    def newest(self) -> int:
        """The number of the newest SYNC.

        Raises: NeedsTotal: there is none yet.
        """
        with self._node.transaction(read_only=True):
            return newest_position(self._node, self._catalog, self._feed.origin).seqno

    def begin(self, *, job_id: str, first_copy: bool) -> Cursor:
        """The cursor to go on from; a first copy where it is asked for, or where the replica is blank.

        Args:
            job_id: whoever has made the copy before does not make it again.
        Raises: FeedDiffers, FeedNotAlone, ReplicaNotBlank, ReplicaNotOnline, ReplicaWasRestored, NeedsTotal;
            TargetError.
        """
        with self._held() as held:
            cursor = held.cursor
            is_anew = first_copy and (cursor is None or cursor.copied_by != job_id)
            if not is_anew and cursor is not None:
                self._require_own(cursor)
                _require_alone(cursor, held)
            self._require_place(cursor, is_anew=is_anew)
            if cursor is None and not is_anew:
                _require_blank(self._replica)
        return self._copy(job_id, cursor) if is_anew or cursor is None else cursor

    def carry(self, cursor: Cursor, *, upto: int, units_max: int) -> Generator[Cursor, None, None]:
        """Apply the units behind a cursor, some page of them; the cursor behind each.

        Args:
            upto: no unit behind the first one that reaches it.
        Raises: NeedsTotal, FeedMoved, FeedNotAlone, FeedRowTooLarge, FeedKeyExtinct, ReplicaNotOnline,
            ReplicaWasRestored; TargetError.
        """
        asked = Asked(
            cursor.feed.origin,
            cursor.seqno,
            snapshot=cursor.snapshot,
            copied=None if cursor.copied is None else TxidSnapshot.parse(cursor.copied),
            sets=cursor.feed.sets,
            units_max=min(units_max, UNITS_AT_ONCE),
            rows_max=ROWS_AT_ONCE,
        )
        with self._node.transaction(read_only=True):
            page = read_page(self._node, self._catalog, asked)
            self._require_node(cursor)
            for first in page.blocks:
                if cursor.seqno >= upto:
                    return
                cursor = self._unit(cursor, first, page.blocks)
                yield cursor

    def _require_node(self, cursor: Cursor) -> None:
        """Whatever could have become another one since, in the reading's own transaction."""
        node, catalog, feed = self._node, self._catalog, cursor.feed
        require_instant(node, catalog, feed.origin, cursor.seqno, cursor.at_us)
        if cursor.life is not None:
            require_life(node, catalog, cursor.life)
        if cursor.copied is not None:
            require_counted(node, TxidSnapshot.parse(cursor.copied))
        now = read_known(node, catalog, feed.origin, sets=feed.sets, names=feed.tables)
        require_known(cursor.known, now)

    def _unit(self, before: Cursor, first: list[Change], rest: Generator[list[Change], None, None]) -> Cursor:
        begun = [first]
        while begun[-1][0].kind == "EVENT":  # behind it the node sorts the unit: nothing is locked meanwhile
            begun.append(next(rest))
        blocks = chain(begun, rest)
        with self._held() as held:
            if held.cursor is None or held.cursor != before:
                raise FeedMoved("another attempt has moved the cursor: this one begins where it stands")
            _require_alone(before, held)
            writer = held.writer_of(before.feed, before.known)
            while (block := next(blocks))[0].kind != "SYNC":
                self._hands.check()
                require_same_tables(before.known, [each for each in block if each.kind == "EVENT"])
                writer.take(printed_alike(self._node, before.known, block))
            [sync] = block
            detail = sync.detail or {}
            at_us = read_instant(self._node, self._catalog, before.feed.origin, sync.seqno)
            if writer.records:
                label = {"origin": before.feed.origin, "seqno": sync.seqno, "at": detail["at"]}
                writer.put(SYNC_KEY, value_of(label))
                writer.flush()
            after = replace(
                before,
                seqno=sync.seqno,
                snapshot=str(detail["snapshot"]),
                at_us=at_us,
                copied=None,
                life=None,
                seen=self._seen(),
                units=before.units + 1,
                records=before.records + writer.records,
                scripts=before.scripts + writer.scripts,
                scripted=sync.seqno if writer.scripts else before.scripted,
            )
            put_cursor(self._replica, after)
        self._hands.committed(held.appender.own.max_csn)
        return after

    def _copy(self, job_id: str, before: Cursor | None) -> Cursor:
        """The first copy, in one transaction of the node and one of the replica."""
        node, catalog, feed = self._node, self._catalog, self._feed
        sets = feed.sets or origin_sets(node, catalog, feed.origin)
        with node.transaction(read_only=True):
            node.allow(COPY_MAX_MS, silent_ms=node.limits.statement_timeout_ms)
            copy = read_copy(node, catalog, feed.origin, sets, only=feed.tables)
            # Of the sets that are copied: one that came meanwhile differs at the first unit.
            known = read_known(node, catalog, feed.origin, sets=frozenset(sets), names=feed.tables)
            life = read_life(node, catalog)
            at_us = read_instant(node, catalog, feed.origin, copy.start.seqno)
            # What is left of the COPY ends before the transaction does: no ROLLBACK passes it.
            with closing(copy.blocks), self._held() as held:
                if held.cursor != before:
                    raise FeedMoved("another attempt has moved the cursor: this one begins where it stands")
                for csn in held.ruv.values():
                    held.appender.pass_over(csn)
                writer = held.writer_of(feed, known)
                for block in copy.blocks:
                    self._hands.check()
                    writer.take(block)
                label = {"origin": feed.origin, "seqno": copy.start.seqno, "copied": str(copy.copied)}
                writer.put(SYNC_KEY, value_of(label))
                writer.remove_others()
                after = Cursor(
                    feed=feed,
                    seqno=copy.start.seqno,
                    snapshot=str(copy.start.snapshot),
                    at_us=at_us,
                    copied=str(copy.copied),
                    life=life,
                    known=known,
                    seen=self._seen(),
                    copied_by=job_id,
                    copies=1 + (0 if before is None else before.copies),
                    copied_rows=writer.records + (0 if before is None else before.copied_rows),
                    units=0 if before is None else before.units,
                    records=0 if before is None else before.records,
                    scripts=0 if before is None else before.scripts,
                )
                put_cursor(self._replica, after, with_known=True)
        self._hands.committed(held.appender.own.max_csn)
        return after

    @contextmanager
    def _held(self) -> Iterator[_Held]:
        """The replica in a transaction that is committed at the end, under its locks.

        Raises: ReplicaWasRestored: found now; it is marked, nothing else was written. ReplicaNotOnline.
        """
        conn, tables = self._replica, tables_of(self._replica)
        expected, now_s = self._hands.expected(), self._hands.now_s()
        with self._hands.turn():
            with conn.transaction():
                self._hands.fence()
                hold_arrivals(conn, tables)
                row, state = lock_replica(conn, tables)
                own = read_own(conn, tables, row.rid)
                expected = recalled(row, own.max_csn, expected)
                lost = loss_of(row, own.max_csn, expected)
                if lost is None:
                    if row.status not in (ReplicaStatus.EMPTY, ReplicaStatus.ONLINE):
                        raise ReplicaNotOnline(row.status)
                    appender = Appender(conn, tables, row, state, own, now_s=now_s)
                    index = index_of(conn, tables, own.extinctions)
                    yield _Held(
                        read_cursor(conn),
                        read_vectors(conn).ruv,
                        appender,
                        lambda feed, known: UnitWriter(conn, tables, appender, feed, known, index),
                    )
                else:
                    mark_loss(conn, tables, row, expected, lost)
            if lost is not None:
                raise lost

    def _seen(self) -> dict[int, str]:
        return {rid: str(csn) for rid, csn in read_vectors(self._replica).ruv.items()}

    def _require_own(self, cursor: Cursor) -> None:
        if cursor.feed != self._feed:
            raise FeedDiffers(
                f"this replica is filled from {_said(cursor.feed)}, not from {_said(self._feed)}: one feed"
                f" fills a replica; use another store, or {NAME_IT} with this one"
            )

    def _require_place(self, cursor: Cursor | None, *, is_anew: bool) -> None:
        if cursor is not None and is_anew and cursor.feed.cluster != self._feed.cluster:
            raise FeedDiffers(
                f"this replica is filled from cluster {cursor.feed.cluster}: its entries would stay beside"
                f" those of {self._feed.cluster}; use another store"
            )


def _require_alone(cursor: Cursor, held: _Held) -> None:
    now = {rid: str(csn) for rid, csn in held.ruv.items()}
    if now == dict(cursor.seen):
        return
    strange = sorted(rid for rid in {*now, *cursor.seen} if now.get(rid) != cursor.seen.get(rid))
    names = ", ".join(f"replica {rid} at {now.get(rid, 'none')}" for rid in strange[:5])
    raise FeedNotAlone(
        f"somebody else has written here since SYNC {cursor.feed.origin},{cursor.seqno} ({names}): what of"
        f" the feed's entries is changed nobody knows; end that, and {NAME_IT}"
    )


def _require_blank(conn: Connection) -> None:
    tables = tables_of(conn)
    for name in (tables.ruv, tables.entries, tables.changelog, tables.extinctions):
        if conn.execute(f"select 1 from {name} limit 1"):
            raise ReplicaNotBlank(
                f"the replica holds what is not of a feed: use a blank one, or {NAME_IT} beside it"
            )


def _said(feed: Feed) -> str:
    sets = f", sets {', '.join(map(str, sorted(feed.sets)))}" if feed.sets else ""
    tables = f", tables {', '.join(sorted(feed.tables)[:5])}" if feed.tables else ""
    prefix = f", prefix {feed.prefix!r}" if feed.prefix else ""
    return f"node {feed.origin} of {feed.cluster}{sets}{tables}{prefix}"
