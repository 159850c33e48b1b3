"""What of stranded rows can be captured anew, and why the others stay."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark.formats.symmetricds import DATA
from spark.purge.findings import SAMPLE_MAX, Finding
from spark.rows.sql import Sql
from spark.targets.connection import Connection
from spark.upkeep.parts import Part
from spark.upkeep.recapture.tables import Source, SourceTable, source_table
from spark.upkeep.recapture.texts import DELETE, INSERT, UPDATE, key_of

PAGE_ROWS: Final = 500
ASKED_AT_ONCE: Final = 50
NOT_A_ROW: Final = Finding(
    "RECAPTURE_NOT_A_ROW", "", "a load, SQL or DDL, or routed beforehand: no change of one row, it stays"
)
NO_HISTORY: Final = Finding(
    "RECAPTURE_NO_HISTORY", "", "its trigger history is not there, or names no table and no key: it stays"
)
NO_TABLE: Final = Finding(
    "RECAPTURE_NO_TABLE", "", "its table or a column of its key is not there for this account: it stays"
)
KEY_UNREADABLE: Final = Finding(
    "RECAPTURE_KEY_UNREADABLE", "", "its key was not captured, or is of a type that is not compared: it stays"
)
KEY_CHANGED: Final = Finding(
    "RECAPTURE_KEY_CHANGED", "", "an update that changed the key of its row: of two keys, it stays"
)
ROW_GONE: Final = Finding(
    "RECAPTURE_ROW_GONE", "", "no delete, and its row is not there any more: nothing to capture, it stays"
)
NOT_CAPTURED: Final = Finding(
    "RECAPTURE_NOT_CAPTURED",
    "",
    "it could be captured: its update was refused or not captured, or nobody looked; it stays",
)
REASONS: Final = (NOT_A_ROW, NO_HISTORY, NO_TABLE, KEY_UNREADABLE, KEY_CHANGED, ROW_GONE, NOT_CAPTURED)
Wanted = tuple[SourceTable, tuple[Any, ...]]
"""A table, and the values of a key in it."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """A stranded row of sym_data with the history that wrote it."""

    data_id: int
    event: str
    row_data: str | None
    pk_data: str | None
    old_data: str | None
    is_prerouted: bool
    trigger: str | None
    source: Source | None
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, ...] | None:
        """Its key as captured, of before the change."""
        return self._key(self.event)

    @property
    def texts_after(self) -> tuple[str, ...] | None:
        """Its key as captured behind the change."""
        return self._key(INSERT)

    def _key(self, event: str) -> tuple[str, ...] | None:
        return key_of(
            event,
            row_data=self.row_data,
            pk_data=self.pk_data,
            old_data=self.old_data,
            columns=self.columns,
            key=self.key,
        )


@dataclass(slots=True)
class Judge:
    """Looks at stranded rows of one target; keeps what it has read of its tables."""

    conn: Connection
    _tables: dict[tuple[Source, tuple[str, ...]], SourceTable | None] = field(default_factory=dict)

    def wanted(self, row: Stranded) -> Finding | Wanted:
        """What has to be captured; or why nothing can be."""
        if row.event not in (INSERT, UPDATE, DELETE) or row.is_prerouted:
            return NOT_A_ROW
        if row.source is None or row.trigger is None or not row.key:
            return NO_HISTORY
        table = self.table(row.source, row.key)
        if table is None:
            return NO_TABLE
        texts = row.texts
        values = None if texts is None else table.values(texts)
        after = row.texts_after if row.event == UPDATE else texts
        if values is None or after is None:
            return KEY_UNREADABLE
        return (table, values) if table.values(after) == values else KEY_CHANGED

    def table(self, source: Source, key: tuple[str, ...]) -> SourceTable | None:
        """See `source_table`."""
        if (source, key) not in self._tables:
            self._tables[source, key] = source_table(self.conn, source, key)
        return self._tables[source, key]

    def reasons(self, rows: Sequence[Stranded]) -> list[Finding | None]:
        """Why each row stays, as far as a look can tell; None: it can be captured anew."""
        found = [self.wanted(row) for row in rows]
        asked = [
            (place, each)
            for place, (row, each) in enumerate(zip(rows, found, strict=True))
            if not isinstance(each, Finding) and row.event != DELETE
        ]
        there = are_there(self.conn, [each for _, each in asked])
        gone = {place for (place, _), is_there in zip(asked, there, strict=True) if not is_there}
        return [
            each if isinstance(each, Finding) else ROW_GONE if place in gone else None
            for place, each in enumerate(found)
        ]


def are_there(conn: Connection, wanted: Sequence[Wanted]) -> list[bool]:
    """Whether each row is in its table, without waiting for anybody."""
    found: set[int] = set()
    dual = " from dual" if conn.dialect.name == "mysql" else ""
    for first in range(0, len(wanted), ASKED_AT_ONCE):
        looks, bound = [], dict[str, Any]()
        for place, (table, values) in enumerate(wanted[first : first + ASKED_AT_ONCE], start=first):
            at = table.at(values, prefix=f"k{place}_")
            is_there = f"exists (select 1 from {table.name} where {at.text})"
            looks.append(f"select {place}{dual} where {is_there}")
            bound.update(at.bound)
        found.update(int(place) for (place,) in conn.execute(" union all ".join(looks), bound))
    return [place in found for place in range(len(wanted))]


def stranded_rows(conn: Connection, part: Part, condition: Sql, *, most: int | None = None) -> list[Stranded]:
    """The rows of a condition, by their data id."""
    at, row = part.at, part.at.row
    prerouted = f"{row}.is_prerouted" if "is_prerouted" in part.columns else "0"
    history = conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}trigger_hist")
    rows = conn.execute(
        f"select {row}.data_id, {row}.event_type, {row}.row_data, {row}.pk_data, {row}.old_data, {prerouted},"
        " h.trigger_id, h.source_catalog_name, h.source_schema_name, h.source_table_name,"
        f" h.column_names, h.pk_column_names from {at.source}"
        f" left join {history} h on h.trigger_hist_id = {row}.trigger_hist_id"
        f" where {condition.text} order by {row}.data_id" + ("" if most is None else " limit :most"),
        {**condition.bound, **({} if most is None else {"most": most})},
    )
    return [_stranded(row) for row in rows]


def _stranded(row: Sequence[Any]) -> Stranded:
    data_id, event, row_data, pk_data, old_data, prerouted, trigger, catalog, schema, table, columns, key = (
        row
    )
    return Stranded(
        int(data_id),
        str(event),
        row_data,
        pk_data,
        old_data,
        bool(prerouted),
        trigger,
        (catalog or None, schema or None, str(table)) if table else None,
        names_of(columns),
        names_of(key),
    )


def names_of(text: str | None) -> tuple[str, ...]:
    """The names in a list of a trigger's history."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


@dataclass(frozen=True, slots=True)
class Kept:
    """Stranded rows that stay for one reason; `sample`: the first of their data ids."""

    code: str
    count: int
    sample: tuple[int, ...]
    detail: str


def remaining(conn: Connection, part: Part, should_stop: Callable[[], bool]) -> tuple[Kept, ...]:
    """The stranded rows of a table that are there now, by why they stay."""
    return kept_of(conn, part, part.at.removable, should_stop, otherwise=NOT_CAPTURED)


def kept_of(
    conn: Connection,
    part: Part,
    condition: Sql,
    should_stop: Callable[[], bool],
    *,
    otherwise: Finding | None,
) -> tuple[Kept, ...]:
    """The rows of a condition by why they stay; an early end says what it has seen by then.

    Args:
        otherwise: the reason of those that could be captured; None: they are left out.
    """
    counts, samples, judge = dict[Finding, int](), dict[Finding, list[int]](), Judge(conn)
    for page in _pages(conn, part, condition, should_stop):
        for row, reason in zip(page, judge.reasons(page), strict=True):
            why = reason or otherwise
            if why is not None:
                counts[why] = counts.get(why, 0) + 1
                sample = samples.setdefault(why, [])
                if len(sample) < SAMPLE_MAX:
                    sample.append(row.data_id)
    return tuple(
        Kept(why.code, counts[why], tuple(samples[why]), why.detail) for why in REASONS if why in counts
    )


def _pages(
    conn: Connection, part: Part, condition: Sql, should_stop: Callable[[], bool]
) -> Iterator[list[Stranded]]:
    assert part.rule.table == DATA, "only captured rows are captured anew"
    after = -(2**63)
    while not should_stop():
        text = f"({condition.text}) and {part.at.row}.data_id > :after_id"
        page = stranded_rows(conn, part, Sql(text, {**condition.bound, "after_id": after}), most=PAGE_ROWS)
        if not page:
            return
        yield page
        after = page[-1].data_id
