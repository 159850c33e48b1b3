"""Audit rows are linked as they commit: no gaps, no forks, no false alarm."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from lethe_client.audit_chain import Link

from app.audit.reading import check_chain
from app.audit.witness import Witness
from app.auth.chain import adopt, forget
from app.db import Database
from tests.app.audit.ledger import EVENTS, Tables, event, faults, write, write_for_ever
from tests.app.forged import forged
from tests.app.jobs.workbench import in_threads


def _other(database: Database) -> Database:
    """Another process's."""
    return Database(database.url.render_as_string(hide_password=False), clock=database.clock)


def test_rows_of_many_writers_make_one_chain(database: Database) -> None:
    others = [database, _other(database)]
    stop = threading.Event()
    alarms: list[object] = []

    def check() -> None:
        while not stop.is_set():
            alarms.extend(faults(database))

    checker = threading.Thread(target=check)
    checker.start()
    try:
        done = in_threads(6, lambda number: write(others[number % 2], 25))
    finally:
        stop.set()
        checker.join()
        others[1].close()
    assert done == [None] * 6
    assert alarms == []
    rows = Tables.read(database).events
    assert [row["seq"] for row in rows] == [*range(1, len(rows) + 1)]
    assert faults(database) == []


def test_row_of_a_savepoint_that_is_rolled_back_leaves_no_gap(database: Database) -> None:
    class _Undone(Exception):
        pass

    with database.transaction() as db:
        db.add(event(1))
        try:
            with db.begin_nested():
                db.add(event(2))
                db.flush()
                raise _Undone
        except _Undone:
            db.add(event(3))
    assert [row["subject_id"] for row in Tables.read(database).events] == ["1", "3"]
    assert faults(database) == []


def _killed_writers(database: Database, rounds: int) -> None:
    rng = random.Random(17)
    for _ in range(rounds):
        url = database.url.render_as_string(hide_password=False)
        with forged(write_for_ever, url) as (_, one), forged(write_for_ever, url) as (_, other):
            for said in (one, other):
                assert said.readline() == "ready\n"
            time.sleep(rng.random() / 10)
        assert faults(database) == []
    rows = Tables.read(database).events
    assert [row["seq"] for row in rows] == [*range(1, len(rows) + 1)]


def test_killed_writers_leave_a_whole_chain(database: Database) -> None:
    _killed_writers(database, 1)


@pytest.mark.long
def test_many_killed_writers_leave_a_whole_chain(database: Database) -> None:
    _killed_writers(database, 40)


def test_retention_leaves_a_chain_that_holds(database: Database, tmp_path: Path) -> None:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    with database.transaction() as db:
        for number in range(20):
            db.add(event(number, at=now - timedelta(days=20 - number)))
    Witness(database, tmp_path).look()
    for rows_max in (4, 1_000):
        with database.transaction() as db:
            assert forget(db, before=now - timedelta(days=10), now=now, rows_max=rows_max) in (4, 6)
        assert faults(database, tmp_path) == []
    with database.transaction() as db:
        assert forget(db, before=now - timedelta(days=10), now=now, rows_max=1_000) == 0
    rows = Tables.read(database).events
    assert [row["subject_id"] for row in rows[:-2]] == [str(number) for number in range(10, 20)]
    assert [row["action"] for row in rows[-2:]] == ["audit.forget"] * 2


def test_a_check_goes_on_where_one_has_ended(database: Database) -> None:
    write(database, 30)
    edited = Tables.read(database)
    edited.events[20]["actor"] = "forged"
    edited.put(database)
    after: Link | None = None
    found = []
    for _ in range(10):
        checked = check_chain(database, after=after, rows_max=7)
        found += [fault.code for fault in checked.check.faults]
        after = checked.check.link
        if checked.is_whole:
            break
    assert (found, after.seq if after else 0) == (["ROW_CHANGED"], len(edited.events))


def test_two_instances_take_in_the_same_rows_once(database: Database) -> None:
    write(database, 3)
    rows = [event(number).model_dump(warnings=False) for number in range(40)]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(EVENTS), rows)
    others = [database, _other(database)]

    def take_in(number: int) -> None:
        for _ in range(12):
            with others[number].transaction() as db:
                adopt(db, now=database.now(db), rows_max=7)

    try:
        assert in_threads(2, take_in) == [None] * 2
    finally:
        others[1].close()
    assert faults(database) == []


def test_rows_of_a_former_version_are_told_and_taken_in(database: Database) -> None:
    write(database, 3)
    row = event(9).model_dump(warnings=False)
    with database.engine.begin() as connection:
        connection.execute(sa.insert(EVENTS), [row])
    assert [fault.code for fault in faults(database)] == ["ROW_UNCHAINED"]
    with database.transaction() as db:
        assert adopt(db, now=database.now(db), rows_max=100) == 1
    assert faults(database) == []
    last = Tables.read(database).events[-1]
    assert (last["action"], last["detail"]["first"]) == ("audit.adopt", row["id"])


def test_a_chain_that_begins_between_two_statements_of_a_check_is_no_alarm(database: Database) -> None:
    """The first rows and their head come by one commit, behind each statement of a check in turn."""
    empty, statements = Tables([], []), 0
    for at in range(1, 100):
        seen: list[int] = []

        def begin(*_: object, at: int = at, seen: list[int] = seen) -> None:
            seen.append(at)
            if len(seen) == at:
                other = _other(database)
                write(other, 3)
                other.close()

        empty.put(database)
        sa.event.listen(database.engine, "after_cursor_execute", begin)
        try:
            assert faults(database) == [], at
        finally:
            sa.event.remove(database.engine, "after_cursor_execute", begin)
        statements = len(seen)
        if at > statements:
            break
    assert 5 <= statements < 99, statements
