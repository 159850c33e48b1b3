"""Pieces of an audit on a real Spark session, through the exchange that all jobs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.exchange.lease import LeaseTerms
from spark.formats.csn import Csn
from spark.formats.part import Part, Prefix
from spark.formats.replica import tables_of
from spark.pool.pool import SparkPool
from spark.replication.errors import LayoutUnknown
from spark.replication.replica.digest import change_marks, entry_marks
from spark.replication.replica.digest_piece import Answered, DigestUnit, Wanted, digest_piece, digest_work
from spark.replication.replica.replica import ensure_layout
from spark.targets.connection import Connection
from tests.spark.replication.replica_tables import (
    DIALECTS,
    NOW_S,
    SHORT_WAITS,
    csn,
    opened,
    postgresql_target,
    put_records,
    sqlite_target,
)
from tests.spark.replication.tombstone_tables import put_entries

ROWS = 60
PARTS = [None, Part.of([Prefix(b"db", b"k1")])]


def _units(conn: Connection) -> list[DigestUnit]:
    upto, buried = csn(ROWS, 1), str(csn(9, 1))
    changes = [
        Wanted({1: (None if low is None else Csn(low), Csn(high))})
        for low, high in change_marks(conn, 1, after=None, upto=upto, rows=7)
    ]
    entries = [Wanted({}, piece, buried) for piece in entry_marks(conn, rows=7, buried=buried)]
    return [DigestUnit(number, wanted) for number, wanted in enumerate([*changes, *entries])]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_spark_answers_what_one_connection_answers(
    pool: SparkPool, request: pytest.FixtureRequest, tmp_path: Path, dialect: str
) -> None:
    if dialect == "postgresql":
        target = postgresql_target(request.getfixturevalue("postgresql_url"))
    else:
        target = sqlite_target(tmp_path)
    exchange = Exchange(pool, dispatchers=1, limits=ExchangeLimits(task_s=0.2))
    with opened(target) as conn:
        ensure_layout(conn, rid=1, generation=csn(0, 1), incarnation="inc_a")
        put_records(conn, [(csn(number, 1), NOW_S) for number in range(1, ROWS + 1)])
        put_entries(conn, {b"k%d" % number: (csn(number, 1), number % 3 == 0) for number in range(1, ROWS)})
        units = _units(conn)
        try:
            for part in PARTS:
                found = _on(exchange, conn, part, units)
                assert found == {each.number: digest_piece(conn, each.wanted, part=part) for each in units}
            conn.execute(f"update {tables_of(conn).replica} set layout_version = 99")
            refused = _on(exchange, conn, None, units[:1])
        finally:
            exchange.close()
    assert len(units) > 12
    assert isinstance(refused[0], LayoutUnknown)


def _on(
    exchange: Exchange, conn: Connection, part: Part | None, units: list[DigestUnit]
) -> dict[int, Answered]:
    work = digest_work(conn.target, limits=SHORT_WAITS, application_name="lethe-test", part=part)
    with exchange.lease(work, LeaseTerms(workers=2)) as lease:
        outcomes = list(lease.map(iter(units)))
    assert [each.error for each in outcomes] == [None] * len(units)
    return {each.unit.number: each.result for each in outcomes if each.result is not None}
