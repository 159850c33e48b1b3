"""The document's way: from an anchor the changelog is read buffer by buffer; what is not wanted is skipped.

Each load looks at the RUVs anew, decides on its anchor (`decide`, CLASSIC), reads one buffer over all
replicas from there and judges each record (`SkipRules`). It reads more than it sends; WINDOW does not.

Invariants:
- the snapshot of a load is older than everything that the load reads: the caller takes it first;
- a record that was sent in this session is not sent again: what was picked is seen, acknowledged or not;
- a load that is due and finds nothing to read is an error: by itself it would be repeated for ever.
Source: replication-session-changelog; facts/replication-decision-table, sections 1 to 3.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from spark.formats.changes.batch import BATCH_BYTES, row_bytes
from spark.formats.csn import Csn
from spark.formats.part import Part
from spark.formats.replica import tables_of
from spark.replication.proofs.withholding import withhold
from spark.replication.records import record_schema
from spark.replication.supplier.changelog_pages import (
    AFTER_ALL,
    BEFORE_ALL,
    ChangelogIncomplete,
    Page,
    range_source,
    read_page,
)
from spark.replication.supplier.decide import (
    Anchor,
    Consumer,
    Decision,
    Outcome,
    Previous,
    Strategy,
    Supplier,
    decide,
)
from spark.replication.supplier.skip import SkipRules, Verdict
from spark.targets.connection import Connection

REPLICAS_AT_ONCE: Final = 100
"""Replicas in one statement; more are read in several, whose rows beyond the buffer are read again later."""


@dataclass(frozen=True, slots=True)
class Load:
    """One load: what was decided, and of its buffer what is sent (record_schema(); may be empty)."""

    decision: Decision
    batch: pa.RecordBatch


class ClassicReader:
    """Loads one buffer after the other.

    Args:
        conn: used for each load, free between two.
        rows_max: of a buffer, sent or skipped.
        bytes_max: what a batch may take once it is decoded; a row that is larger by itself comes alone.
        part: which keys the consumer holds; None: all.
    """

    def __init__(self, conn: Connection, *, rows_max: int, bytes_max: int, part: Part | None = None) -> None:
        assert rows_max >= 1, rows_max
        assert bytes_max >= 1, bytes_max
        self.rows_max = rows_max
        self.bytes_max = bytes_max
        self.rows_read = 0
        """Rows that came from the database."""
        self.counts: dict[int, Counter[Verdict]] = {}
        """By replica, what became of the records of all buffers."""
        self._conn = conn
        self._part = part
        self._previous: Previous | None = None
        self._seen: dict[int, Csn] = {}

    def next_load(self, supplier: Supplier, consumer: Consumer) -> Load:
        """Decide and load.

        Args:
            supplier: a snapshot of now.
            consumer: with its RUV as last acknowledged.
        Returns: an empty batch with any outcome but SEND; with SEND too where all of the buffer was skipped.
        Raises: ChangelogIncomplete: changes are wanted, and no more are there. ChangelogDamaged. TargetError.
        """
        if consumer.ruv is not None:
            self._see(consumer)
            consumer = replace(consumer, ruv=dict(self._seen))
        decision = decide(supplier, consumer, strategy=Strategy.CLASSIC, previous=self._previous)
        if decision.outcome is not Outcome.SEND:
            return Load(decision, _nothing())
        assert decision.anchor is not None, "CLASSIC sends from an anchor"
        buffer = self._read(decision.anchor)
        if not len(buffer):
            rid = decision.need[0]
            raise ChangelogIncomplete(rid=rid, upto=supplier.ruv[rid], last=self._seen.get(rid))
        rules = SkipRules(snapshot=supplier.ruv, seen=self._seen)
        csns = [Csn(text) for text in buffer.column("csn").to_pylist()]
        is_sent = [self._judge(rules, csn) for csn in csns]
        self._seen = rules.seen
        self._previous = Previous(dict(supplier.ruv), csns[-1])
        return Load(decision, buffer.filter(pa.array(is_sent)))

    def _see(self, consumer: Consumer) -> None:
        assert consumer.ruv is not None
        for rid, csn in consumer.ruv.items():
            if csn > self._seen.get(rid, BEFORE_ALL):
                self._seen[rid] = csn

    def _judge(self, rules: SkipRules, csn: Csn) -> bool:
        verdict = rules.judge(csn)
        self.counts.setdefault(csn.rid, Counter())[verdict] += 1
        return verdict is Verdict.SENT

    def _read(self, anchor: Anchor) -> pa.RecordBatch:
        """Read the buffer behind an anchor, over all replicas that the changelog has now."""
        rids = _rids_logged(self._conn)
        found = [
            self._read_some(rids[first : first + REPLICAS_AT_ONCE], anchor)
            for first in range(0, len(rids), REPLICAS_AT_ONCE)
        ]
        if not found:
            return _nothing()
        self.rows_read += sum(map(len, found))
        buffer = found[0] if len(found) == 1 else pa.concat_batches(found).sort_by("csn")
        # Before it is measured: the digest of a small change is longer than the change.
        buffer = withhold(buffer, self._part)
        sizes = np.cumsum(row_bytes(buffer[: self.rows_max]))
        fitting = int(np.searchsorted(sizes, self.bytes_max - BATCH_BYTES, side="right"))
        return buffer[: max(1, fitting)]

    def _read_some(self, rids: list[int], anchor: Anchor) -> pa.RecordBatch:
        is_open = not anchor.inclusive or anchor.csn is None
        sources = [range_source(self._conn, rid=rid, is_open=is_open) for rid in rids]
        params = {"after": str(anchor.csn or BEFORE_ALL), "upto": AFTER_ALL}
        page = Page(" union all ".join(sources), params, rows_max=self.rows_max, bytes_max=self.bytes_max)
        return read_page(self._conn, page)


def _nothing() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=record_schema())


def _rids_logged(conn: Connection) -> list[int]:
    """The replicas that have changes in the changelog, by steps over its key."""
    changelog = tables_of(conn).changelog
    rows = conn.execute(
        f"with recursive known (rid) as (select min(rid) from {changelog} union all"
        f" select (select min(rid) from {changelog} where rid > known.rid) from known"
        " where known.rid is not null) select rid from known where rid is not null order by rid"
    )
    return [rid for (rid,) in rows]
