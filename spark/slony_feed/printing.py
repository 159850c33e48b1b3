"""Values of keys as a first copy prints them: the log has them as the session that wrote prints them.

A time zone, `bytea_output` or `intervalstyle` of a session changes the text of a value, not the value: the
node is asked for the text that it has here. Other values stay as they came.
Source: logTrigger of Slony-I, which sets DateStyle alone.
"""

from collections.abc import Mapping, Sequence

from spark.events.feed.records import Change
from spark.slony_feed.source import Known, TableKnown
from spark.targets.connection import Connection

Texts = Mapping[tuple[str, str], str]
"""By type and text: the text that stands for it."""


def printed_alike(conn: Connection, known: Known, block: Sequence[Change]) -> Sequence[Change]:
    """A block of the log with every key as this session prints it.

    Args:
        conn: the node, by which values are read and printed.
    Raises: TargetError.
    """
    tables = {number: table for number, table in known.tables.items() if table.types}
    mine = [change for change in block if change.table_id in tables]
    if not mine:
        return block
    found: dict[str, set[str]] = {}
    for change in mine:
        for column, kind in _typed(tables[change.table_id or 0]):
            for values in (change.key, change.values):
                text = (values or {}).get(column)
                if text is not None:
                    found.setdefault(kind, set()).add(text)
    texts = {
        (kind, text): printed for kind, asked in found.items() for text, printed in _print(conn, kind, asked)
    }
    return [
        _alike(change, tables[change.table_id], texts)
        if change.table_id is not None and change.table_id in tables
        else change
        for change in block
    ]


def _print(conn: Connection, kind: str, texts: set[str]) -> list[tuple[str, str]]:
    rows = conn.execute(
        f"select each, cast(cast(each as pg_catalog.{kind}) as text)"
        " from unnest(cast(:texts as text[])) each",
        {"texts": sorted(texts)},
    )
    return [(text, printed) for text, printed in rows]


def _alike(change: Change, table: TableKnown, texts: Texts) -> Change:
    columns = dict(_typed(table))

    def read(values: dict[str, str | None] | None) -> dict[str, str | None] | None:
        if values is None:
            return None
        return {
            name: texts[columns[name], text] if text is not None and name in columns else text
            for name, text in values.items()
        }

    return change._replace(key=read(change.key), values=read(change.values))


def _typed(table: TableKnown) -> list[tuple[str, str]]:
    return [
        (column, kind) for column, kind in zip(table.columns, table.types, strict=True) if kind is not None
    ]
