"""The units behind a position: per SYNC the rows of both log tables that it sees and the one before does not.

The selection is slon's own: a range of log_txid between the two snapshots, by the index of the log tables,
and the few transactions that ran at the first and had ended at the second. Order: log_actionseq.
Source: slony-events-confirmations, 4.1.1; remote_worker.c, sync_event.
"""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from spark.events.events import config_events
from spark.events.feed.beside import Beside
from spark.events.feed.errors import ReaderTooSlow
from spark.events.feed.making import change_of
from spark.events.feed.position import (
    copied_position,
    hold_log,
    next_syncs,
    oldest_position,
    read_position,
    read_tables,
    require_origin,
    require_sets,
)
from spark.events.feed.records import Change, Position, Sync, Tables
from spark.events.feed.snapshot import TxidSnapshot
from spark.events.records import Catalog, Event
from spark.formats.slony import LOG_TABLES
from spark.targets.connection import Connection

BLOCK_ROWS: Final = 5_000
"""Fetched at most at once from the server's cursor."""
BLOCK_BYTES: Final = 8 * 2**20
"""About so many bytes of values are held at once: rows may be a mebibyte each."""
FIRST_ROWS: Final = 100
"""Of a unit, before it is known how wide they are; later blocks grow by GROWTH at most."""
GROWTH: Final = 4
_SAMPLED: Final = 50
HOLD_MAX_S: Final = 900.0
"""So long a page may keep a log table from being emptied."""
LOG_SCRIPT: Final = "sl_log_script"
_CURSOR: Final = "lethe_feed"
_Sequence = tuple[int | None, str | None, str | None, int, int]
"""Set, schema, name; its number and its last value."""
_LOG: Final = (
    "select log_actionseq, log_txid, log_tableid, log_tablenspname, log_tablerelname, log_cmdtype::text,"
    " log_cmdupdncols, log_cmdargs from {table} where log_origin = :origin"
)
_SCRIPT: Final = (
    "select log_actionseq, log_txid, null::integer, null::text, null::text, log_cmdtype::text, null::integer,"
    " log_cmdargs from {table} where log_origin = :origin"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which units are read.

    Args:
        after: seqno of the position; None: from the oldest SYNC left.
        snapshot: of the position, as it was remembered; None: not compared.
        copied: snapshot of a first copy made behind the position: what it saw comes in no unit.
        sets: only tables and sequences of these; none: of all.
        units_max: at most so many units.
        rows_max: no further unit begins once so many rows were read; a unit is never cut.
    """

    origin: int
    after: int | None
    snapshot: str | None = None
    copied: TxidSnapshot | None = None
    sets: frozenset[int] = frozenset()
    units_max: int = 100
    rows_max: int = 100_000


@dataclass(frozen=True, slots=True)
class Page:
    """The units of one reading, each read when its turn comes."""

    start: Position
    blocks: Generator[list[Change], None, None]


def read_page(
    conn: Connection, catalog: Catalog, asked: Asked, *, clock: Callable[[], float] = time.monotonic
) -> Page:
    """The units behind a position, in blocks of records; the caller's transaction must have just begun.

    Raises: NeedsTotal, PositionNotASync, OriginElsewhere, FeedSetUnknown; TargetLockTimeout. While the blocks
        are read: ReaderTooSlow, TargetError.
    """
    require_origin(catalog, asked.origin)
    hold_log(conn, catalog)
    began_s = clock()
    if asked.after is None:
        assert asked.copied is None, "a copy names its position"
        start = oldest_position(conn, catalog, asked.origin)
    else:
        start = read_position(conn, catalog, asked.origin, asked.after, snapshot=asked.snapshot)
    base = start if asked.copied is None else copied_position(start, asked.copied)
    if asked.sets:
        require_sets(conn, catalog, asked.origin, asked.sets)
    tables = read_tables(conn, catalog)
    reading = _Reading(conn, catalog, asked, tables, clock, began_s + HOLD_MAX_S)
    return Page(start, reading.blocks(base))


@dataclass(frozen=True, slots=True)
class _Reading:
    conn: Connection
    catalog: Catalog
    asked: Asked
    tables: Tables
    clock: Callable[[], float]
    until_s: float

    def blocks(self, start: Position) -> Generator[list[Change], None, None]:
        position, rows = start, 0
        syncs = next_syncs(self.conn, self.catalog, start, limit=self.asked.units_max)
        last = syncs[-1].seqno if syncs else start.seqno
        events, sequences = Beside(self._events, last), Beside(self._sequences, last)
        for sync in syncs:
            if rows >= self.asked.rows_max:
                return
            count = 0
            for block in self._unit(position, sync, events, sequences):
                count += len(block)
                self._check(position, sync)
                yield block
            detail = {"at": sync.at.isoformat(), "snapshot": sync.text, "records": count}
            yield [Change(sync.seqno, "SYNC", detail=detail)]
            rows += count
            position = replace(position, seqno=sync.seqno, snapshot=sync.snapshot)

    def _check(self, before: Position, sync: Sync) -> None:
        if self.clock() <= self.until_s:
            return
        advice = "Ask again from the last SYNC, for fewer units, and read faster"
        if before.seqno == self.asked.after:
            advice = (
                f"SYNC {before.origin},{sync.seqno} alone takes longer: read faster, or begin again with a"
                " first copy"
            )
        raise ReaderTooSlow(
            f"the log was held for {HOLD_MAX_S:.0f} s: it cannot be emptied meanwhile. {advice}"
        )

    def _unit(
        self, before: Position, sync: Sync, events: Beside[Event], sequences: Beside[_Sequence]
    ) -> Iterator[list[Change]]:
        """Configuration first: slon processes it before the SYNC that follows it."""
        configured = events.of_unit(before.seqno, sync.seqno)
        if configured:
            yield [
                Change(
                    sync.seqno,
                    "EVENT",
                    detail={"seqno": event.seqno, "type": event.type, "data": list(event.data)},
                )
                for event in configured
            ]
        yield from self._rows(before, sync)
        last_values = [
            Change(
                sync.seqno,
                "SEQUENCE",
                set_id=set_id,
                schema=schema,
                table=name,
                detail={"sequence_id": number, "last_value": value},
            )
            for set_id, schema, name, number, value in sequences.of_unit(before.seqno, sync.seqno)
            if not self.asked.sets or set_id is None or set_id in self.asked.sets
        ]
        if last_values:
            yield last_values

    def _rows(self, before: Position, sync: Sync) -> Iterator[list[Change]]:
        sql, params = self._selection(before, sync)
        self.conn.execute(f"declare {_CURSOR} no scroll cursor for {sql}", params)
        make = change_of(sync.seqno, self.tables.tables)
        asked = FIRST_ROWS
        while block := self.conn.execute_made(f"fetch forward {asked} from {_CURSOR}", make):
            is_last = len(block) < asked
            asked = min(BLOCK_ROWS, asked * GROWTH, max(1, BLOCK_BYTES // _width(block)))
            yield block
            if is_last:
                break
        self.conn.execute(f"close {_CURSOR}")

    def _selection(self, before: Position, sync: Sync) -> tuple[str, dict[str, Any]]:
        """The statement and its parameters; where nothing happened its ranges are empty."""
        params: dict[str, Any] = {
            "origin": before.origin,
            "low": before.snapshot.xmax,
            "high": sync.snapshot.xmax,
        }
        ranges = "log_txid >= :low and log_txid < :high"
        running = [txid for txid in sync.snapshot.in_progress if txid >= before.snapshot.xmax]
        if running:
            ranges += " and log_txid <> all(cast(:running as bigint[]))"
            params["running"] = running
        conditions = [ranges]
        ended = sync.snapshot.ended_since(before.snapshot)
        if ended:
            conditions.append("log_txid = any(cast(:ended as bigint[]))")
            params["ended"] = ended
        only = ""
        others = self.tables.others(self.asked.sets) if self.asked.sets else []
        if others:
            only = " and (log_tableid is null or log_tableid <> all(cast(:others as integer[])))"
            params["others"] = others
        parts = [
            f"{_LOG.format(table=self._name(table))} and {condition}{only}"
            for table in LOG_TABLES
            for condition in conditions
        ]
        script = _SCRIPT.format(table=self._name(LOG_SCRIPT))
        parts += [f"{script} and {condition}" for condition in conditions]
        return f"{' union all '.join(parts)} order by 1", params

    def _events(self, after: int, upto: int, limit: int | None) -> list[tuple[int, Event]]:
        origin = self.asked.origin
        found = config_events(self.conn, self.catalog, origin, after=after, upto=upto, limit=limit)
        return [(event.seqno, event) for event in found]

    def _sequences(self, after: int, upto: int, limit: int | None) -> list[tuple[int, _Sequence]]:
        rows = self.conn.execute(
            f"select seql_ev_seqno, seql_seqid, seql_last_value from {self._name('sl_seqlog')}"
            " where seql_origin = :origin and seql_ev_seqno > :after and seql_ev_seqno <= :upto"
            " order by seql_ev_seqno, seql_seqid limit cast(:limit as bigint)",
            {"origin": self.asked.origin, "after": after, "upto": upto, "limit": limit},
        )
        known = self.tables.sequences
        return [
            (int(seqno), (*known.get(int(number), (None, None, None)), int(number), value))
            for seqno, number, value in rows
        ]

    def _name(self, table: str) -> str:
        return self.conn.dialect.qualify(self.catalog.schema, table)


def _width(block: list[Change]) -> int:
    """About how many characters a row of a block has, at least one, by some of them."""
    some = block[:: max(1, len(block) // _SAMPLED)]
    texts = (
        text for change in some for values in (change.key, change.values) for text in (values or {}).values()
    )
    return 1 + sum(len(text) for text in texts if text) // len(some)
