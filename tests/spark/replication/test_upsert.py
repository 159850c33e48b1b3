"""The bulk path: what it writes is what a loop over single rows would have left, on either database."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from spark.formats.csn import Csn
from spark.formats.replica import TABLES, tables_of
from spark.replication.records import entry_schema, record_schema
from spark.replication.replica import upsert
from spark.replication.replica.entries import read_entries
from spark.replication.replica.inspect import inspect_replica
from spark.replication.replica.replica import ensure_layout
from spark.replication.replica.upsert import entries_of, newest_of, put_changes, put_entries, rids_of
from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.dialects import postgresql_copy
from spark.targets.errors import TargetError, TargetLockTimeout, TargetReadOnly, TargetRowConflict
from tests.spark.replication.replica_tables import NOW_S, csn, opened, postgresql_target

Row = tuple[bytes, bytes, bytes | None, str]
Newest = dict[tuple[bytes, bytes], tuple[bytes | None, str]]
NASTY = (b"\x00", b"\xff", b"\xff\xff", b"\\x41", b"\\N", b"'", b"\t\n\r", b"a\x00b", b"a", b"b", b"ab", b"")
FIRM = SessionLimits(lock_timeout_ms=5_000)


@pytest.fixture
def target(place: Target) -> Target:
    return place


@pytest.fixture
def conn(target: Target) -> Iterator[Connection]:
    with opened(target) as connection:
        ensure_layout(connection, rid=1, generation=csn(0, 1), incarnation="first")
        yield connection


def _entries(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    database, key, value, csns = columns
    dead = [each is None for each in value]
    arrays = [
        pa.array(column, field.type)
        for column, field in zip((database, key, value, csns, dead), entry_schema(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=entry_schema())


def _put(conn: Connection, *batches: Sequence[Row]) -> None:
    with conn.transaction():
        for rows in batches:
            put_entries(conn, tables_of(conn), _entries(rows))


def _held(conn: Connection) -> Newest:
    rows = conn.execute(f"select database, key, value, csn, is_tombstone from {tables_of(conn).entries}")
    assert all(bool(dead) == (value is None) for _, _, value, _, dead in rows)
    return {(database, key): (value, at) for database, key, value, at, _ in rows}


def _apply(model: Newest, rows: Sequence[Row]) -> None:
    for database, key, value, at in rows:
        if at > model.get((database, key), (None, ""))[1]:
            model[database, key] = (value, at)


def _random_rows(rng: random.Random, count: int) -> list[Row]:
    """CSNs are given once each, as in life; keys come again and again."""
    numbers = rng.sample(range(1_000_000), count)
    return [
        (
            rng.choice(NASTY[:4]),
            rng.choice(NASTY[:-1]) * rng.randint(1, 3),
            None if rng.random() < 0.2 else rng.choice(NASTY),
            csn(number, rng.randint(1, 9)),
        )
        for number in numbers
    ]


@pytest.mark.parametrize("direct_from", [2, 10_000])
@pytest.mark.parametrize("seed", range(6))
def test_entries_hold_the_greatest_csn_of_each_key(
    conn: Connection, seed: int, direct_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upsert, "_DIRECT_MIN_ROWS", direct_from)
    monkeypatch.setattr(upsert, "_SAMPLE_ROWS", 2)
    monkeypatch.setattr(upsert, "_BATCHES_BETWEEN_TRIES", 1)
    rng = random.Random(seed)
    model: Newest = {}
    for _ in range(25):
        batches = [_random_rows(rng, rng.choice([0, 1, 2, 3, 40])) for _ in range(rng.randint(1, 2))]
        _put(conn, *batches)
        for rows in batches:
            _apply(model, rows)
        assert _held(conn) == model


def test_an_older_change_that_comes_later_changes_nothing(conn: Connection) -> None:
    _put(conn, [(b"d", b"k", b"new", csn(5, 2))])
    _put(conn, [(b"d", b"k", b"old", csn(4, 9)), (b"d", b"k", None, csn(3, 9))])
    assert _held(conn) == {(b"d", b"k"): (b"new", csn(5, 2))}
    _put(conn, [(b"d", b"k", None, csn(6, 1))])
    assert _held(conn) == {(b"d", b"k"): (None, csn(6, 1))}


def test_an_empty_value_is_no_delete(conn: Connection) -> None:
    _put(conn, [(b"d", b"empty", b"", csn(1, 1)), (b"d", b"gone", None, csn(2, 1))])
    page = read_entries(conn, after=None, rows_max=10)
    assert page.column("value").to_pylist() == [b"", None]
    assert page.column("is_tombstone").to_pylist() == [False, True]


def test_a_direct_copy_that_meets_a_row_is_merged(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample misses the one key that is there; the rest of the transaction must live on."""
    monkeypatch.setattr(upsert, "_DIRECT_MIN_ROWS", 2)
    monkeypatch.setattr(upsert, "_SAMPLE_ROWS", 2)
    old = [(b"d", b"k%03d" % 7, b"old", csn(500, 1))]
    _put(conn, old)
    new = [(b"d", b"k%03d" % number, b"new", csn(number, 1)) for number in range(30)]
    tables = tables_of(conn)
    with conn.transaction():
        assert conn.dialect.name == "sqlite" or upsert._seem_new(conn, tables, newest_of(_entries(new)))
        put_entries(conn, tables, _entries(new))
        put_entries(conn, tables, _entries([(b"d", b"after", b"x", csn(600, 1))]))
    held = _held(conn)
    assert len(held) == 31
    assert held[b"d", b"k007"] == (b"old", csn(500, 1))
    assert held[b"d", b"k008"] == (b"new", csn(8, 1))


@pytest.mark.postgresql
def test_the_sample_is_looked_up_by_its_keys(
    postgresql_place: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL knows nothing yet of a table that grows: it must not read it from end to end."""
    with opened(postgresql_place) as conn:
        ensure_layout(conn, rid=1, generation=csn(0, 1), incarnation="first")
        rows: list[Row] = [(b"d", b"%06d" % number, b"v" * 50, csn(number, 1)) for number in range(5_000)]
        _put(conn, rows)
        asked: list[tuple[str, dict[str, object]]] = []
        monkeypatch.setattr(conn, "execute", lambda sql, params: asked.append((sql, params)))
        upsert._seem_new(conn, tables_of(conn), _entries(rows[:1_000]))
        monkeypatch.undo()
        [(sql, params)] = asked
        plan = [row[0] for row in conn.execute(f"explain {sql}", params)]
    assert any("Index" in line for line in plan)
    assert not any("Seq Scan" in line for line in plan)


def test_large_values_and_many_rows_pass(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_copy, "_BODY_MAX_BYTES", 100_000)
    rows: list[Row] = [
        (b"d", b"k%05d" % number, b"v" * (number % 50), csn(number, 1)) for number in range(2_000)
    ]
    rows.append((b"d" * 255, b"k" * 2_000, bytes(range(256)) * 4_096, csn(5_000, 1)))
    _put(conn, rows)
    assert _held(conn) == {(database, key): (value, at) for database, key, value, at in rows}


def test_two_writers_of_the_same_keys_neither_fail_nor_go_back(target: Target) -> None:
    """Each takes the keys in one order, so no circle; the greater CSN is there at the end."""
    with opened(target) as conn:
        ensure_layout(conn, rid=1, generation=csn(0, 1), incarnation="first")
    failed: list[BaseException] = []

    def write(rid: int) -> None:
        rng = random.Random(rid)
        try:
            with opened(target, limits=FIRM) as own:
                for turn in range(15):
                    keys = rng.sample(range(60), 40)
                    _put(own, [(b"d", b"%d" % key, b"%d" % rid, csn(turn * 10 + rid, rid)) for key in keys])
        except TargetError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(rid,)) for rid in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    model: Newest = {}
    for rid in (1, 2, 3):
        rng = random.Random(rid)
        for turn in range(15):
            at = csn(turn * 10 + rid, rid)
            _apply(model, [(b"d", b"%d" % key, b"%d" % rid, at) for key in rng.sample(range(60), 40)])
    with opened(target) as conn:
        assert _held(conn) == model


def test_a_writer_that_waits_too_long_says_so(target: Target) -> None:
    with opened(target) as first, opened(target) as second:
        ensure_layout(first, rid=1, generation=csn(0, 1), incarnation="first")
        with first.transaction():
            put_entries(first, tables_of(first), _entries([(b"d", b"k", b"1", csn(1, 1))]))
            with pytest.raises(TargetLockTimeout):
                _put(second, [(b"d", b"k", b"2", csn(2, 1))])
        _put(second, [(b"d", b"k", b"2", csn(2, 1))])
        assert _held(first) == {(b"d", b"k"): (b"2", csn(2, 1))}


Record = tuple[str, str | None, str, bytes, bytes, bytes | None]


def _records(rows: Sequence[Record]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * 6
    arrays = [pa.array(column, field.type) for column, field in zip(columns, record_schema(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=record_schema())


def _logged(conn: Connection) -> list[tuple[object, ...]]:
    return conn.execute(
        "select csn, prev, kind, database, key, payload, rid, logged_at_s"
        f" from {tables_of(conn).changelog} order by csn"
    )


def test_records_are_logged_byte_by_byte(conn: Connection) -> None:
    rows: list[Record] = [
        (csn(number, rid), None if number < 3 else csn(number - 2, rid), "CHANGE", each, each + b"k", each)
        for number, (rid, each) in enumerate(zip([1, 2, 65_534] * 4, NASTY, strict=True))
    ]
    rows.append((csn(100, 1), csn(99, 1), "KEEPALIVE é", b"d", b"k", None))
    with conn.transaction():
        put_changes(conn, tables_of(conn), _records(rows), logged_at_s=NOW_S)
        put_changes(conn, tables_of(conn), _records([]), logged_at_s=NOW_S)
    assert _logged(conn) == [(*row, Csn(row[0]).rid, NOW_S) for row in sorted(rows)]


def test_a_slice_of_a_batch_is_written_as_that_slice(conn: Connection) -> None:
    rows: list[Record] = [
        (csn(number, 1), None, "CHANGE", b"d%d" % number, b"k", None if number % 2 else b"v")
        for number in range(20)
    ]
    with conn.transaction():
        put_changes(conn, tables_of(conn), _records(rows).slice(5, 7), logged_at_s=NOW_S)
        put_entries(conn, tables_of(conn), entries_of(_records(rows).slice(5, 7)))
    assert [row[:6] for row in _logged(conn)] == rows[5:12]
    assert _held(conn) == {(row[3], row[4]): (row[5], row[0]) for row in rows[5:12]}


def test_a_record_that_is_there_is_a_conflict(conn: Connection) -> None:
    record: Record = (csn(1, 1), None, "CHANGE", b"d", b"k", b"v")
    with conn.transaction():
        put_changes(conn, tables_of(conn), _records([record]))
    with pytest.raises(TargetRowConflict), conn.transaction():
        put_changes(conn, tables_of(conn), _records([record]))
    assert len(_logged(conn)) == 1


def test_the_time_of_logging_is_the_targets(conn: Connection) -> None:
    before = upsert.clock_s(conn)
    with conn.transaction():
        put_changes(conn, tables_of(conn), _records([(csn(1, 1), None, "CHANGE", b"d", b"k", b"v")]))
    [(at_s,)] = conn.execute(f"select logged_at_s from {tables_of(conn).changelog}")
    assert before <= at_s <= upsert.clock_s(conn)


@pytest.mark.parametrize(
    "put", [put_entries, lambda conn, tables, batch: put_changes(conn, tables, _records([]))]
)
def test_nothing_is_written_outside_a_transaction(conn: Connection, put: Callable[..., None]) -> None:
    with pytest.raises(AssertionError):
        put(conn, tables_of(conn), _entries([(b"d", b"k", b"v", csn(1, 1))]))


def test_newest_of_sorts_and_keeps_one_row_a_key() -> None:
    rows = [
        (b"b", b"k", b"1", csn(1, 1)),
        (b"a\x00", b"k", b"2", csn(2, 1)),
        (b"a", b"\x00k", None, csn(9, 1)),  # not the key above, though both together read the same
        (b"b", b"k", None, csn(7, 1)),
        (b"a", b"\xff", b"3", csn(3, 1)),
        (b"b", b"k", b"4", csn(4, 2)),
    ]
    found = newest_of(_entries(rows))
    assert [tuple(row.values())[:4] for row in found.to_pylist()] == [rows[2], rows[4], rows[1], rows[3]]
    assert newest_of(_entries([])).num_rows == 0


def test_rids_come_out_of_csns() -> None:
    csns = [csn(1, 1), csn(2, 65_534), csn(3, 1), csn(4, 256)]
    assert rids_of(pa.array(csns, pa.string())).to_pylist() == [1, 65_534, 1, 256]
    assert rids_of(pa.array([], pa.string())).to_pylist() == []


@pytest.mark.postgresql
def test_the_right_to_temporary_tables_is_asked_for(postgresql_url: str) -> None:
    role = f"lethe_{uuid.uuid4().hex[:8]}"
    with opened(postgresql_target(postgresql_url)) as conn:
        ensure_layout(conn, rid=1, generation=csn(0, 1), incarnation="first")
        database = conn.execute("select current_database()")[0][0]
        conn.execute(f"create role {role}")
        try:
            for table in TABLES:
                conn.execute(
                    f"grant select, insert, update, delete on {getattr(tables_of(conn), table)} to {role}"
                )
            conn.execute(f"set role {role}")
            assert inspect_replica(conn).permissions_missing == ()
            conn.execute("reset role")
            conn.execute(f"revoke temporary on database {database} from public")
            conn.execute(f"set role {role}")
            assert inspect_replica(conn).permissions_missing == ((database, "TEMPORARY"),)
            with pytest.raises(TargetReadOnly):
                _put(conn, [(b"d", b"%d" % number, b"v", csn(number, 1)) for number in range(20)])
            assert _held(conn) == {}
        finally:
            conn.execute("reset role")
            conn.execute(f"drop owned by {role}")
            conn.execute(f"drop role {role}")
