"""What real 389 servers sent, from real tables: by CLASSIC in the same order, by WINDOW the same set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.supplier.changelog_pages import ChangelogIncomplete
from spark.replication.supplier.classic import ClassicReader
from spark.replication.supplier.decide import Consumer, Outcome, Strategy, Supplier, decide
from spark.replication.supplier.window import WindowReader
from spark.targets.connection import Connection
from tests.oracles.replication_recordings import (
    FIRST_CSNS,
    RESTORED_SESSION,
    SESSIONS,
    every_csn,
    is_read,
    steps,
    vector,
)
from tests.spark.replication.changelog_rows import (
    Row,
    as_rows,
    empty_changelog,
    put_rows,
    real_rows,
    rows_of,
    target_of,
    windows_over,
)
from tests.spark.replication.replica_tables import DIALECTS

MIB = 1_048_576
FULL = "s1-changelog-full.ldif.gz"
"""Server s1's changelog before it was trimmed: 2,019 changes."""


def every_row() -> list[Row]:
    """The full changelog, and the changes that only sessions name."""
    known = {row[0]: row for row in real_rows("s1-changelog-trimmed.ldif") + real_rows(FULL)}
    rows = [known.get(row[0], row) for row in rows_of(every_csn())]
    assert len(known) > 2_000
    return rows


@pytest.fixture(params=DIALECTS)
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    with empty_changelog(target_of(request, tmp_path)) as found:
        yield found


def sent_by_classic(conn: Connection, session: dict[str, Any], log: list[Csn]) -> list[str]:
    """Follow a session load by load; each buffer is as long as the server's was."""
    reader = ClassicReader(conn, rows_max=1, bytes_max=64 * MIB)
    begun = vector(session["loads"][0], "consumer_max")
    sent: list[str] = []
    for step in steps(session):
        supplier = Supplier(step.snapshot, FIRST_CSNS)
        seen = begun | {Csn(csn).rid: Csn(csn) for csn in sent}
        ahead = decide(supplier, Consumer(seen), strategy=Strategy.CLASSIC, previous=step.previous)
        if ahead.anchor is None:
            return sent
        buffer = [csn for csn in log if is_read(csn, ahead.anchor) and csn <= step.buffer_end]
        reader.rows_max = len(buffer)
        load = reader.next_load(supplier, Consumer(begun))
        assert load.decision.anchor == ahead.anchor
        sent += load.batch.column("csn").to_pylist()
    assert sum(counts.total() for counts in reader.counts.values()) == reader.rows_read
    return sent


def sent_by_window(conn: Connection, session: dict[str, Any]) -> list[str]:
    """The same snapshots, one window each."""
    seen = vector(session["loads"][0], "consumer_max")
    sent: list[str] = []
    for step in steps(session):
        decision = decide(Supplier(step.snapshot), Consumer(seen), strategy=Strategy.WINDOW)
        if decision.outcome is not Outcome.SEND:
            continue
        reader = WindowReader(conn, decision.windows, rows_max=100, bytes_max=4 * MIB)
        found = [csn for batch in reader for csn in batch.column("csn").to_pylist()]
        assert reader.rows_read == len(found)
        sent += found
        seen |= {rid: window.upto for rid, window in decision.windows.items()}
    return sent


def test_both_strategies_send_what_every_recorded_session_sent(conn: Connection) -> None:
    rows = every_row()
    put_rows(conn, rows)
    log = [Csn(row[0]) for row in rows]
    sent = 0
    for number, session in enumerate(SESSIONS):
        if number == RESTORED_SESSION:
            continue
        assert sent_by_classic(conn, session, log) == session["sent"], number
        by_window = sent_by_window(conn, session)
        assert sorted(by_window) == sorted(session["sent"]), number
        assert len(set(by_window)) == len(by_window), number
        sent += len(by_window)
    assert sent > 2_500


def test_hole_of_the_restored_server_is_seen_in_the_links_of_its_changelog(conn: Connection) -> None:
    """Session 77's RUVs cover thirteen changes that the server had lost, and all was green: test_recorded."""
    session = SESSIONS[RESTORED_SESSION]
    rows = every_row()
    put_rows(conn, rows)
    lost = set(sent_by_window(conn, session)) - set(session["sent"])
    assert len(lost) == 13
    changelog = tables_of(conn).changelog
    conn.execute_many(f"delete from {changelog} where csn = :csn", [{"csn": csn} for csn in lost])
    windows = decide(
        Supplier(next(steps(session)).snapshot),
        Consumer(vector(session["loads"][0], "consumer_max")),
        strategy=Strategy.WINDOW,
    ).windows
    found = as_rows(WindowReader(conn, windows, rows_max=100, bytes_max=4 * MIB))
    assert sorted(row[0] for row in found) == sorted(session["sent"])
    # What is left of replica 1 names, as the change before it, one that was never sent: PREV_GAP.
    reached = {rid: str(window.after) for rid, window in windows.items() if window.after is not None}
    gaps = []
    for csn, prev, *_ in found:
        rid = Csn(csn).rid
        if prev != reached.get(rid):
            gaps.append((rid, prev in lost))
        reached[rid] = csn
    assert gaps == [(1, True)]


def test_real_changelog_comes_out_as_it_went_in(conn: Connection) -> None:
    rows = real_rows(FULL)
    assert len(rows) == 2_019
    put_rows(conn, rows)
    reader = WindowReader(conn, windows_over(rows), rows_max=500, bytes_max=4 * MIB)
    assert as_rows(reader) == rows
    assert reader.rows_read == 2_019


def test_window_over_the_trimmed_changelog_is_never_silent(conn: Connection) -> None:
    """Without the purge vector's word (NEEDS_TOTAL) changes that are gone would still show in the links."""
    full = real_rows(FULL)
    left = {row[0] for row in real_rows("s1-changelog-trimmed.ldif")}
    put_rows(conn, [row for row in full if row[0] in left])
    outcomes = {}
    for rid, window in windows_over(full).items():
        reader = WindowReader(conn, {rid: window}, rows_max=500, bytes_max=4 * MIB)
        try:
            outcomes[rid] = "GAP" if as_rows(reader)[0][1] is not None else "WHOLE"
        except ChangelogIncomplete:
            outcomes[rid] = "INCOMPLETE"
    # Replica 3's last changes and one of replica 1 have left too; of 2 and 4 the last one is still there.
    assert outcomes == {1: "INCOMPLETE", 2: "GAP", 3: "INCOMPLETE", 4: "GAP"}
