"""Counts over a whole table in chunks of ids, each one statement and one short transaction.

Memory does not depend on the number of rows, and no snapshot is held longer than a chunk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark.purge.findings import SAMPLE_MAX, Finding, Found
from spark.purge.ranges import key_order
from spark.targets.connection import Connection
from spark.targets.dialects.dialect import Row

CHUNK_ROWS = 20_000
ShouldStop = Callable[[], bool]


class PlanStopped(Exception):
    """`should_stop` said so; nothing was written."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rows of a chunk come from.

    Attributes:
        keys: the table whose ids end the chunks, unaliased.
        key: the column of the ids there.
        before: what stands before SELECT (a WITH clause), may use :lo and :hi.
        rows: the FROM and WHERE of one chunk.
        row_key: the id of a row, for samples.
        weight: what one row of `rows` counts.
    """

    keys: str
    key: str
    rows: str
    row_key: str
    before: str = ""
    weight: str = "1"


@dataclass(slots=True)
class Scan:
    """The result of one table: all rows, those to be removed, and every finding."""

    rows: int
    removable: int
    found: list[Found]


def scan(
    conn: Connection,
    source: Source,
    *,
    table: str,
    removable: str,
    findings: Sequence[Finding],
    parameters: Mapping[str, Any],
    should_stop: Callable[[], bool],
    each_chunk: Callable[[int, int], None] = lambda _lo, _hi: None,
    keys: str = "",
    take: Callable[[list[Row]], None] | None = None,
) -> Scan:
    """Walk a table from its first id to its last.

    Args:
        table: its name with prefix, for the findings.
        removable: the condition of the rows to count as removed.
        parameters: the values that `removable` and the findings name, besides :lo and :hi.
        each_chunk: called inside the read of each chunk.
        take: gets what `keys`, a query of the rows of a chunk that would go, finds; these are counted then.
    Raises: PlanStopped.
    """
    result = Scan(0, 0, [Found(table, item.code, item.detail) for item in findings])
    sums = [
        f"coalesce(sum(case when {item.condition} then {source.weight} else 0 end), 0)" for item in findings
    ]
    columns = [
        f"coalesce(sum({source.weight}), 0)",
        f"coalesce(sum(case when {removable} then {source.weight} else 0 end), 0)",
        *sums,
    ]
    sql = f"{source.before}select {', '.join(columns)} from {source.rows}"
    after: int | None = None
    while True:
        if should_stop():
            raise PlanStopped
        with key_order(conn):
            chunk = _next_chunk(conn, source, after)
        if chunk is None:
            return result
        with conn.transaction(read_only=True):
            bound = {**parameters, "lo": chunk[0], "hi": chunk[1]}
            [counts] = conn.execute(sql, bound)
            result.rows += int(counts[0])
            result.removable += _taken(conn, keys, bound, take) if take and counts[1] else int(counts[1])
            for item, found, count in zip(findings, result.found, counts[2:], strict=True):
                _add(conn, source, item, found, int(count), bound)
            each_chunk(*chunk)
        after = chunk[1]


def _taken(conn: Connection, keys: str, bound: dict[str, Any], take: Callable[[list[Row]], None]) -> int:
    found = conn.execute(keys, bound)
    take(found)
    return len(found)


def _next_chunk(conn: Connection, source: Source, after: int | None) -> tuple[int, int] | None:
    above = "" if after is None else f" where {source.key} > :after"
    bound: dict[str, Any] = {} if after is None else {"after": after}
    first = conn.execute(f"select min({source.key}) from {source.keys}{above}", bound)[0][0]
    if first is None:
        return None
    last = conn.execute(
        f"select {source.key} from {source.keys} where {source.key} >= :first"
        f" order by {source.key} limit 1 offset :rows",
        {"first": first, "rows": CHUNK_ROWS - 1},
    )
    if last:
        return int(first), int(last[0][0])
    highest = conn.execute(f"select max({source.key}) from {source.keys}")[0][0]
    return int(first), int(highest)


def _add(
    conn: Connection, source: Source, item: Finding, found: Found, count: int, bound: dict[str, Any]
) -> None:
    found.count += count
    wanted = SAMPLE_MAX - len(found.sample)
    if not count or not wanted:
        return
    rows = conn.execute(
        f"{source.before}select distinct {source.row_key} from {source.rows} and ({item.condition})"
        f" order by {source.row_key} limit :wanted",
        {**bound, "wanted": wanted},
    )
    found.sample += [int(row[0]) for row in rows]
