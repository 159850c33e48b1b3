"""Random logs, with transactions in progress at their SYNCs, against a model that knows no snapshots."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spark.events.catalog import read_catalog
from spark.events.feed.copying import values_of
from spark.events.feed.reading import Asked, read_page
from spark.events.feed.records import Change
from spark.events.feed.snapshot import TxidSnapshot
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.feed.random_logs import (
    GONE,
    ORIGIN,
    TABLES,
    History,
    Logged,
    make_history,
    shown,
    store,
)

pytestmark = pytest.mark.postgresql
CASES = 24
CASES_LONG = 1_000


def read_all(
    node: LoadedCatalog,
    after: int,
    *,
    rng: random.Random,
    sets: frozenset[int] = frozenset(),
    copied: TxidSnapshot | None = None,
) -> list[Change]:
    """Every record behind a SYNC, in pages of random sizes, each in a transaction of its own."""
    found: list[Change] = []
    with node.connect(read_only=True) as conn:
        catalog = read_catalog(conn, node.cluster)
        while True:
            asked = Asked(
                ORIGIN,
                after,
                copied=copied,
                sets=sets,
                units_max=rng.choice([1, 7, 100, 100]),
                rows_max=rng.choice([5, 50, 999]),
            )
            with conn.transaction(read_only=True):
                part = [change for block in read_page(conn, catalog, asked).blocks for change in block]
            if not part:
                return found
            assert part[-1].kind == "SYNC", "a page ends with a whole unit"
            found += part
            after, copied = part[-1].seqno, None


def expected(
    made: History, after: int, sets: frozenset[int], copied_at: int | None = None
) -> list[dict[str, Any]]:
    """The records, by the model."""
    found: list[dict[str, Any]] = []
    for seqno, rows in made.units(after, copied_at):
        events = [{"kind": "EVENT", "type": kind} for at, kind in made.config if after < at < seqno]
        kept = [_row(row) for row in rows if not sets or TABLES.get(row.table_id or 0, 0) in (*sets, 0)]
        values = [
            {"kind": "SEQUENCE", "last_value": value}
            for at, _number, value in made.sequences
            if after < at <= seqno and (not sets or 1 in sets)
        ]
        unit = [*events, *kept, *values]
        found += [{"seqno": seqno, **each} for each in unit]
        found.append({"seqno": seqno, "kind": "SYNC", "records": len(unit)})
        after = seqno
    return found


def _row(row: Logged) -> dict[str, Any]:
    return {"actionseq": row.actionseq, "txid": row.txid, "table_id": row.table_id, **shown(row)}


def told(change: Change) -> dict[str, Any]:
    detail = change.detail or {}
    if change.kind == "EVENT":
        return {"seqno": change.seqno, "kind": "EVENT", "type": detail["type"]}
    if change.kind == "SEQUENCE":
        return {"seqno": change.seqno, "kind": "SEQUENCE", "last_value": detail["last_value"]}
    if change.kind == "SYNC":
        return {"seqno": change.seqno, "kind": "SYNC", "records": detail["records"]}
    return {
        "seqno": change.seqno,
        "actionseq": change.actionseq,
        "txid": change.txid,
        "table_id": change.table_id,
        "kind": change.kind,
        "key": change.key,
        "values": change.values,
    }


def run_cases(node: LoadedCatalog, seeds: range) -> int:
    rows = 0
    for seed in seeds:
        made = make_history(seed)
        store(node, made)
        rng = random.Random(seed)
        sets = frozenset(rng.choice([[], [1], [2], [1, 2]]))
        after, instant = rng.choice(made.syncs)
        copied_at = rng.choice([None, instant + rng.randint(0, 20)])
        copied = None if copied_at is None else TxidSnapshot.parse(made.snapshot(copied_at))
        found = [told(change) for change in read_all(node, after, rng=rng, sets=sets, copied=copied)]
        assert found == expected(made, after, sets, copied_at), f"seed {seed}"
        rows += len(found)
    return rows


def test_every_row_is_in_the_unit_of_the_first_sync_that_sees_it(catalogs: Catalogs) -> None:
    assert run_cases(catalogs.empty(), range(CASES)) > 10 * CASES


@pytest.mark.long
def test_a_thousand_logs(catalogs: Catalogs) -> None:
    run_cases(catalogs.empty(), range(CASES, CASES_LONG))


def test_a_row_of_no_known_table_is_never_left_out(catalogs: Catalogs) -> None:
    seeds = [seed for seed in range(CASES) if any(row.table_id == GONE for row in make_history(seed).rows)]
    made = make_history(seeds[0])
    node = catalogs.empty()
    store(node, made)
    first = made.syncs[0][0]
    found = read_all(node, first, rng=random.Random(1), sets=frozenset({1}))
    wanted = [row.actionseq for _, rows in made.units(first) for row in rows if row.table_id == GONE]
    assert [change.actionseq for change in found if change.table_id == GONE] == wanted


@pytest.mark.parametrize(
    ("text", "txid", "seen"),
    [
        ("10:10:", 9, True),
        ("10:10:", 10, False),
        ("5:10:5,7", 5, False),
        ("5:10:5,7", 6, True),
        ("5:10:7,5", 7, False),
    ],
)
def test_a_snapshot_sees_what_had_ended(text: str, txid: int, seen: bool) -> None:
    assert TxidSnapshot.parse(text).sees(txid) is seen


@pytest.mark.parametrize("text", ["", "1", "1:2", "5:4:", "a:b:", "0:1:"])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        TxidSnapshot.parse(text)


@pytest.mark.parametrize("text", ["a\tb", "\\N", "\\", "\\\\n", "x\\\nb\r\v\f\b", "é'\"", ""])
def test_a_line_of_copy_is_read_as_it_was_written(catalogs: Catalogs, text: str) -> None:
    sql = "copy (select %s::text, null::text, %s::text) to stdout"
    with catalogs.empty().raw() as raw, raw.cursor() as cursor, cursor.copy(sql, (text, text)) as copy:
        [line] = [bytes(each) for each in copy]
    assert values_of(line) == [text, None, text]
