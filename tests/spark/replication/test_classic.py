"""CLASSIC over real tables: the document's loads, its skip rules, and that it always ends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.replication.supplier import classic
from spark.replication.supplier.changelog_pages import ChangelogIncomplete
from spark.replication.supplier.classic import ClassicReader
from spark.replication.supplier.decide import Anchor, Consumer, Outcome, Reason, Supplier
from spark.replication.supplier.skip import Verdict
from spark.targets.connection import Connection
from tests.spark.replication.changelog_rows import (
    Row,
    as_rows,
    csn_at,
    empty_changelog,
    put_rows,
    rows_of,
    target_of,
)
from tests.spark.replication.replica_tables import DIALECTS

MIB = 1_048_576


@pytest.fixture(params=DIALECTS)
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    with empty_changelog(target_of(request, tmp_path)) as found:
        yield found


def supplier_of(rows: list[Row]) -> Supplier:
    """The honest vectors of a replica that holds these changes."""
    ruv: dict[int, Csn] = {}
    least: dict[int, Csn] = {}
    for row in rows:
        csn = Csn(row[0])
        ruv[csn.rid] = max(csn, ruv.get(csn.rid, csn))
        least[csn.rid] = min(csn, least.get(csn.rid, csn))
    return Supplier(ruv, least)


def sent_of(
    conn: Connection, reader: ClassicReader, supplier: Supplier, seen: Mapping[int, Csn]
) -> list[Row]:
    """Load until nothing is left to do, over one unchanging changelog."""
    sent: list[Row] = []
    for _ in range(10_000):
        load = reader.next_load(supplier, Consumer(seen))
        if load.decision.outcome is Outcome.UP_TO_DATE:
            return sent
        assert load.decision.outcome is Outcome.SEND
        sent += as_rows([load.batch])
    raise AssertionError("it does not end")


def total(reader: ClassicReader) -> Counter[Verdict]:
    return sum(reader.counts.values(), Counter())


@pytest.mark.parametrize("buffer_rows", [1, 5, 1_000])
def test_loads_send_what_is_missing_and_count_what_they_skip(conn: Connection, buffer_rows: int) -> None:
    rng = random.Random(buffer_rows)
    rows = rows_of({csn_at(rng.randrange(300), rng.choice((1, 2, 3))) for _ in range(260)})
    put_rows(conn, rows)
    of = {rid: [Csn(row[0]) for row in rows if Csn(row[0]).rid == rid] for rid in (1, 2)}
    seen = {1: of[1][10], 2: of[2][-4], 9: csn_at(1, 9)}
    missing = [row for row in rows if Csn(row[0]) > seen.get(Csn(row[0]).rid, "")]
    reader = ClassicReader(conn, rows_max=buffer_rows, bytes_max=MIB)
    assert sent_of(conn, reader, supplier_of(rows), seen) == missing
    counted = total(reader)
    assert counted[Verdict.SENT] == len(missing)
    assert counted.total() == reader.rows_read
    # From replica 3's first change on everything is read, and none of it twice: the log does not change.
    first = next(number for number, row in enumerate(rows) if Csn(row[0]).rid == 3)
    assert reader.rows_read == len(rows) - first
    assert counted[Verdict.COVERED] == reader.rows_read - len(missing) > 0


def test_buffer_goes_on_behind_the_last_record_it_held(conn: Connection) -> None:
    rows = rows_of(csn_at(number, 1) for number in range(10))
    put_rows(conn, rows)
    reader = ClassicReader(conn, rows_max=4, bytes_max=MIB)
    supplier = supplier_of(rows)
    loads = [reader.next_load(supplier, Consumer({})) for _ in range(3)]
    assert [load.decision.anchor for load in loads] == [
        Anchor(Csn(rows[0][0]), inclusive=True),
        Anchor(Csn(rows[3][0]), inclusive=False),
        Anchor(Csn(rows[7][0]), inclusive=False),
    ]
    assert [len(load.batch) for load in loads] == [4, 4, 2]


def test_changes_beyond_the_snapshot_and_of_new_replicas_are_left_for_the_next_load(conn: Connection) -> None:
    before = rows_of(csn_at(number, 1) for number in range(0, 20, 2))
    supplier = supplier_of(before)
    put_rows(conn, before)
    late = rows_of([csn_at(21, 1), csn_at(5, 7)])
    put_rows(conn, late)
    reader = ClassicReader(conn, rows_max=100, bytes_max=MIB)
    first = reader.next_load(supplier, Consumer({}))
    assert as_rows([first.batch]) == before
    assert reader.counts[1][Verdict.BEYOND_SNAPSHOT] == 1
    assert reader.counts[7] == {Verdict.NEW_RID: 1}
    second = reader.next_load(supplier_of(before + late), Consumer({1: Csn(before[-1][0])}))
    assert as_rows([second.batch]) == late
    # Replica 7 is unknown to the consumer: from its first change, and what lies behind it is read again.
    assert second.decision.anchor == Anchor(csn_at(5, 7), inclusive=True)
    assert reader.counts[1][Verdict.COVERED] == len([row for row in before if row[0] > csn_at(5, 7)])


def test_what_was_picked_counts_as_seen_before_it_is_acknowledged(conn: Connection) -> None:
    rows = rows_of(csn_at(number, 1) for number in range(6))
    put_rows(conn, rows)
    reader = ClassicReader(conn, rows_max=10, bytes_max=MIB)
    assert len(reader.next_load(supplier_of(rows), Consumer({})).batch) == 6
    assert reader.next_load(supplier_of(rows), Consumer({})).decision.outcome is Outcome.UP_TO_DATE


def test_changes_that_the_consumer_got_elsewhere_meanwhile_are_not_sent(conn: Connection) -> None:
    rows = rows_of(csn_at(number, 1) for number in range(6))
    put_rows(conn, rows)
    reader = ClassicReader(conn, rows_max=2, bytes_max=MIB)
    reader.next_load(supplier_of(rows), Consumer({}))
    second = reader.next_load(supplier_of(rows), Consumer({1: Csn(rows[4][0])}))
    assert as_rows([second.batch]) == []
    assert as_rows([reader.next_load(supplier_of(rows), Consumer({})).batch]) == [rows[5]]


@pytest.mark.parametrize("bytes_max", [4_000, 20_000])
def test_buffer_keeps_its_bytes(conn: Connection, bytes_max: int) -> None:
    rows = rows_of((csn_at(number, 1 + number % 2) for number in range(60)), sizes=[0, 900, 30, 6_000])
    put_rows(conn, rows)
    reader = ClassicReader(conn, rows_max=1_000, bytes_max=bytes_max)
    supplier = supplier_of(rows)
    sent: list[Row] = []
    while (load := reader.next_load(supplier, Consumer({}))).decision.outcome is Outcome.SEND:
        assert len(load.batch) == 1 or load.batch.nbytes <= bytes_max
        sent += as_rows([load.batch])
    assert sent == rows


def test_more_replicas_than_one_statement_names_are_all_read(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classic, "REPLICAS_AT_ONCE", 3)
    rows = rows_of(csn_at(number, 1 + number % 10) for number in range(100))
    put_rows(conn, rows)
    reader = ClassicReader(conn, rows_max=7, bytes_max=MIB)
    assert sent_of(conn, reader, supplier_of(rows), {}) == rows
    assert total(reader).total() == 100 < reader.rows_read


def test_a_hundred_replicas_are_one_statement(conn: Connection) -> None:
    rows = rows_of(csn_at(number, 1 + number % 100) for number in range(300))
    put_rows(conn, rows)
    reader = ClassicReader(conn, rows_max=50, bytes_max=MIB)
    assert sent_of(conn, reader, supplier_of(rows), {}) == rows
    assert reader.rows_read == 300


def test_purged_changes_need_a_total_and_nothing_is_read(conn: Connection) -> None:
    rows = rows_of(csn_at(number, 1) for number in range(5))
    put_rows(conn, rows)
    supplier = Supplier(supplier_of(rows).ruv, purged={1: Csn(rows[1][0])})
    reader = ClassicReader(conn, rows_max=10, bytes_max=MIB)
    load = reader.next_load(supplier, Consumer({1: Csn(rows[0][0])}))
    assert (load.decision.outcome, load.decision.reason) == (Outcome.NEEDS_TOTAL, Reason.PURGED)
    assert len(load.batch) == reader.rows_read == 0
    assert reader.next_load(supplier, Consumer(None)).decision.reason is Reason.NO_RUV


def test_changelog_that_ends_before_the_ruv_is_told_instead_of_loaded_for_ever(conn: Connection) -> None:
    rows = rows_of(csn_at(number, 1) for number in range(5))
    put_rows(conn, rows[:-1])
    reader = ClassicReader(conn, rows_max=10, bytes_max=MIB)
    assert len(reader.next_load(supplier_of(rows), Consumer({})).batch) == 4
    with pytest.raises(ChangelogIncomplete) as told:
        reader.next_load(supplier_of(rows), Consumer({}))
    assert (told.value.rid, told.value.upto, told.value.last) == (1, rows[4][0], rows[3][0])
