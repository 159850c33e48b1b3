"""An audit finds the same whoever reads the supplier's side: one connection, or workers in any order."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.jobs.errors import JobStopped
from app.replication.audits import service, sides
from app.replication.audits.models import AuditResult
from app.replication.audits.on_engine import working
from app.replication.peer.answers import PeerUnanswered
from spark.formats.part import Part, Prefix
from spark.formats.replica import tables_of
from spark.replication.errors import LayoutUnknown
from spark.targets.connection import Connection
from spark.targets.errors import TargetCancelled
from tests.app.replication.audit_sides import (
    CHANGES,
    DIGEST_NAME,
    RIDS,
    Context,
    Row,
    World,
    bury,
    fill,
    purge,
    withhold_rows,
    write,
)
from tests.spark.replication.replica_tables import csn, opened, postgresql_target, sqlite_target

FORMS = ("own", "threads", "shuffled")
WORKING = FORMS[1:]
PART = Part.of([Prefix(b"db", b"a")])
PIECE = 7


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PIECE_ROWS", PIECE)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Two empty databases; the consumer's is SQLite always."""
    folder = tmp_path / "consumer"
    folder.mkdir()
    if request.param == "postgresql":
        target = postgresql_target(request.getfixturevalue("postgresql_url"))
    else:
        target = sqlite_target(tmp_path)
    with opened(target) as supplier, opened(sqlite_target(folder)) as consumer:
        yield World(supplier, consumer)


def _changes(rng: random.Random) -> list[Row]:
    keys = [b"a%02d", b"b%02d"]
    return [
        Row(csn(number, rid), rng.choice(keys) % rng.randint(0, 18), rng.choice([None, b"", b"v" * 9]))
        for rid in RIDS
        for number in range(1, CHANGES + 1)
    ]


def _entries(rng: random.Random) -> list[Row]:
    keys = [form % number for form in (b"a%02d", b"b%02d") for number in range(18)]
    return [
        Row(csn(rng.randint(1, CHANGES), rng.choice(RIDS)), key, rng.choice([None, b"", b"v" * 9]))
        for key in keys
    ]


@pytest.fixture
def level(pair: World) -> World:
    """Both hold the same."""
    rng = random.Random(3)
    changes, entries = _changes(rng), _entries(rng)
    fill(pair.supplier, changes, entries, rid=1)
    fill(pair.consumer, changes, entries, rid=2)
    return pair


def _same_by_all(world: World, **asked: Any) -> AuditResult:
    own, *others = (world.audit(form, **asked) for form in FORMS)
    assert [each for each in others if each != own] == []
    return own


def test_level_replicas_agree_by_every_reader(level: World) -> None:
    found = _same_by_all(level)
    assert (found.agrees, found.complete, found.truncated) == (True, True, False)
    assert [row.supplier.count for row in found.rids if row.supplier] == [CHANGES, CHANGES]
    assert found.entries.supplier is not None
    assert found.entries.supplier.count == 36


def _broken(rng: random.Random, rows: list[Row]) -> list[Row]:
    """With a few rows gone, and a few of other values."""
    left = [row for row in rows if rng.random() > 0.04]
    return [Row(row.csn, row.key, b"other") if rng.random() < 0.04 else row for row in left]


@pytest.mark.parametrize("seed", range(6))
def test_random_replicas_are_found_alike_by_every_reader(
    pair: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(service, "PIECE_ROWS", rng.choice([3, 5, 20]))
    changes, entries = _changes(rng), _entries(rng)
    is_level = rng.random() < 0.3
    fill(pair.supplier, changes if is_level else _broken(rng, changes), entries, rid=1)
    fill(pair.consumer, changes, entries if is_level else _broken(rng, entries), rid=2)
    for conn in (pair.supplier, pair.consumer):
        if rng.random() < 0.5:
            purge(conn, csn(rng.randint(1, CHANGES), rng.choice(RIDS)))
        if rng.random() < 0.5:
            bury(conn, csn(rng.randint(1, CHANGES), rng.choice(RIDS)))
    if rng.random() < 0.3:
        write(pair.supplier, 1)
    found = _same_by_all(pair)
    assert found.agrees or not is_level
    for row in found.rids:
        if row.agrees is not None:
            assert row.agrees == (_held(pair.supplier, row) == _held(pair.consumer, row))


def _held(conn: Connection, row: Any) -> list[tuple[Any, ...]]:
    params = {"rid": row.rid, "low": row.after or "", "high": row.upto}
    query = "rid = :rid and csn > :low and csn <= :high order by csn"
    rows = conn.execute(f"select csn, key, payload from {tables_of(conn).changelog} where {query}", params)
    return [(name, bytes(key), None if value is None else bytes(value)) for name, key, value in rows]


def test_a_part_is_read_as_its_consumer_has_it(pair: World) -> None:
    rng = random.Random(8)
    changes, entries = _changes(rng), _entries(rng)
    fill(pair.supplier, changes, entries, rid=1)
    fill(pair.consumer, changes, [row for row in entries if row.key.startswith(b"a")], rid=2)
    withhold_rows(pair.consumer, PART)
    world = World(pair.supplier, pair.consumer, PART)
    found = _same_by_all(world)
    assert (found.agrees, found.complete) == (True, True)
    assert found.entries.supplier is not None
    assert found.entries.supplier.count == 18
    entry, change = tables_of(pair.consumer).entries, tables_of(pair.consumer).changelog
    pair.consumer.execute(f"update {entry} set value = x'01' where key = (select max(key) from {entry})")
    pair.consumer.execute(f"update {change} set payload = x'01' where csn = '{csn(9, 3)}'")
    found = _same_by_all(world)
    assert [each.kind for each in found.entries.differing] == ["DIFFERENT"]
    assert [each.csn for each in found.differing] == [csn(9, 3)]


@pytest.mark.parametrize("form", FORMS)
def test_a_writer_that_comes_once_is_read_over(level: World, form: str) -> None:
    def before(number: int) -> None:
        if number == 11:
            with opened(level.supplier.target) as other:
                write(other, 1)
            write(level.consumer, 1)

    found = level.audit(form, before=before)
    assert (found.agrees, found.entries.agrees) == (True, True)


@pytest.mark.parametrize("form", FORMS)
def test_a_writer_that_goes_on_is_not_quiet(level: World, form: str) -> None:
    def before(number: int) -> None:
        with opened(level.supplier.target) as supplier:
            write(supplier, number)
        write(level.consumer, number)

    found = level.audit(form, before=before)
    assert (found.agrees, found.entries.agrees) == (True, None)
    assert found.entries.not_compared in ("CHANGED_MEANWHILE", "RUVS_DIFFER")


@pytest.mark.parametrize("side", ["supplier", "consumer"])
@pytest.mark.parametrize("form", FORMS)
def test_a_range_that_is_trimmed_meanwhile_is_not_compared(
    level: World, form: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "AHEAD", 1)  # else one side has read it all before the other one answers

    def before(number: int) -> None:
        if number == 6:
            with opened(getattr(level, side).target) as other:
                purge(other, csn(CHANGES - 1, 3))

    found = level.audit(form, before=before, entries=False)
    assert [row.agrees for row in found.rids] == [True, None]
    assert found.rids[1].not_compared == "TRIMMED_MEANWHILE"


def test_a_replica_that_nobody_knows_any_more_ends_it(level: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tables_of(level.supplier).replica
    [(version,)] = level.supplier.execute(f"select layout_version from {table}")

    def before(number: int) -> None:
        if number == 3:
            with opened(level.supplier.target) as other:
                other.execute(f"update {table} set layout_version = 99")

    monkeypatch.setattr(sides, "AHEAD", 2)
    for form in FORMS:
        with pytest.raises(LayoutUnknown):
            level.audit(form, before=before)
        level.supplier.execute(f"update {table} set layout_version = {version}")


@pytest.mark.parametrize("form", FORMS)
def test_a_consumer_that_does_not_answer_ends_it(level: World, form: str) -> None:
    def before(number: int) -> None:
        if number == 4:
            raise PeerUnanswered("no answer")

    with pytest.raises(PeerUnanswered):
        level.audit(form, before=before)
    assert _are_gone(level.supplier)


@pytest.mark.parametrize("form", FORMS)
def test_a_stop_in_the_middle_leaves_nothing_behind(level: World, form: str) -> None:
    context = Context()

    def before(number: int) -> None:
        if number == 5:
            context.stop()

    began_s = time.monotonic()
    with pytest.raises((JobStopped, TargetCancelled)):
        level.audit(form, before=before, context=context)
    assert time.monotonic() - began_s < 5
    assert context.cancels == []
    assert _are_gone(level.supplier)
    assert context.done < 2 * CHANGES + 36


@dataclass
class _Lease:
    """Notes what is said to it."""

    said: list[str] = field(default_factory=list)

    def __enter__(self) -> _Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.said.append("close")

    def map(self, _units: Iterator[Any]) -> Iterator[Any]:
        return iter(())

    def cancel(self) -> None:
        self.said.append("cancel")


def test_what_is_under_way_is_cancelled_before_anybody_waits_for_it() -> None:
    """Else whoever fails waits for a piece that nobody wants any more."""
    lease, context = _Lease(), Context()
    engine: Any = SimpleNamespace(lease=lambda work, **_: lease)
    with pytest.raises(PeerUnanswered), working(engine, cast(Any, None), cast(Any, context), workers=2):
        raise PeerUnanswered("no answer")
    assert lease.said == ["cancel", "close"]
    assert context.cancels == []


def _are_gone(conn: Connection) -> bool:
    """Whether no worker is at the target; a server takes its time to end one."""
    until_s = time.monotonic() + 5
    while _sessions(conn) and time.monotonic() < until_s:
        time.sleep(0.02)
    return not _sessions(conn)


def _sessions(conn: Connection) -> int:
    if conn.dialect.name == "sqlite":
        return 0
    query = "select count(*) from pg_stat_activity where application_name = :name"
    [(found,)] = conn.execute(query, {"name": DIGEST_NAME})
    return int(found)


@contextmanager
def _contents_kept(conn: Connection) -> Iterator[None]:
    tables = tables_of(conn)
    queries = [
        f"select * from {getattr(tables, name)}" for name in ("changelog", "entries", "ruv", "replica")
    ]
    before = [conn.execute(query) for query in queries]
    yield
    assert [conn.execute(query) for query in queries] == before


@pytest.mark.parametrize("form", WORKING)
def test_nothing_is_written_to_the_target_and_two_connections_are_all(level: World, form: str) -> None:
    seen: list[int] = []

    def before(_number: int) -> None:
        with opened(level.supplier.target) as other:
            seen.append(_sessions(other))

    with _contents_kept(level.supplier):
        level.audit(form, before=before)
    assert max(seen) <= 2
