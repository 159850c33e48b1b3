"""A first copy: every row of the tables of some sets, of one moment, and the position to go on from.

Rules:
- rows, position and the moment's own snapshot are read in one REPEATABLE READ transaction: the first unit
  behind the copy has what its SYNC sees and this snapshot does not: nothing is missing or comes twice;
- values are as PostgreSQL's output functions print them, as in the log;
- every table is locked (ACCESS SHARE) before its rows count: one that is emptied, or rewritten by an ALTER
  TABLE, is empty to a snapshot of before;
- a table that is not where sl_table says, by an OID, is never left out;
- a table is copied without those that inherit from it: the log has their rows as their own, or not at all.

Source: remote_worker.c, copy_set, which keeps a list of log_actionseq for the same purpose.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from spark.events.errors import CatalogIncomplete
from spark.events.feed.errors import FeedSetUnknown
from spark.events.feed.position import hold_log, newest_position, require_origin, require_sets
from spark.events.feed.reading import BLOCK_BYTES, BLOCK_ROWS
from spark.events.feed.records import Change, Position
from spark.events.feed.snapshot import TxidSnapshot
from spark.events.records import Catalog
from spark.targets.connection import Connection
from spark.targets.errors import TargetLockTimeout

_TABLES: Final = """
    select t.tab_id, t.tab_set, n.nspname::text, c.relname::text, array_agg(a.attname::text order by a.attnum)
    from {tables} t join pg_catalog.pg_class c on c.oid = t.tab_reloid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where t.tab_set = any(cast(:sets as integer[])) group by 1, 2, 3, 4 order by 1
"""
_SEQUENCES: Final = """
    select s.seq_id, s.seq_set, s.seq_nspname::text, s.seq_relname::text, v.seq_last_value
    from {sequences} s join {values} v on v.seq_id = s.seq_id
    where s.seq_set = any(cast(:sets as integer[])) order by 1
"""
_MISPLACED: Final = """
    select 'table ' || t.tab_nspname || '.' || t.tab_relname || ' (number ' || t.tab_id || ')'
    from {tables} t left join pg_catalog.pg_class c on c.oid = t.tab_reloid and c.relkind = 'r'
    left join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where t.tab_set = any(cast(:sets as integer[])) and (c.oid is null
        or (n.nspname, c.relname) is distinct from (t.tab_nspname, t.tab_relname) and not exists (
            select from pg_catalog.pg_trigger g where g.tgrelid = c.oid and g.tgname = cast(:log as name)
            and split_part(encode(g.tgargs, 'escape'), '{nul}', 2) = t.tab_id::text))
    union all
    select 'sequence ' || s.seq_nspname || '.' || s.seq_relname || ' (number ' || s.seq_id || ')'
    from {sequences} s left join pg_catalog.pg_class c on c.oid = s.seq_reloid and c.relkind = 'S'
    where s.seq_set = any(cast(:sets as integer[])) and c.oid is null
    limit 1
"""
"""A table may have another name by now: then the trigger that logs it tells that it is the same."""
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that is being read: its position, the snapshot that it sees, its records in blocks."""

    start: Position
    copied: TxidSnapshot
    blocks: Generator[list[Change], None, None]


@dataclass(frozen=True, slots=True)
class _Table:
    like: Change
    columns: list[str]


def read_copy(
    conn: Connection,
    catalog: Catalog,
    origin: int,
    sets: frozenset[int],
    *,
    only: frozenset[str] = frozenset(),
) -> Copy:
    """Copy the tables of some sets; the caller's transaction must have just begun.

    Args:
        only: these tables of the sets, as `schema.table`; empty: all.
    Raises: OriginElsewhere, FeedSetUnknown, NeedsTotal: there is no SYNC yet; CatalogIncomplete: a table or
        sequence is not where the catalog says; TargetLockTimeout: a table is being rewritten; TargetError.
    """
    require_origin(catalog, origin)
    if not sets:
        raise FeedSetUnknown("a copy is of named sets; name at least one")
    hold_log(conn, catalog)
    require_sets(conn, catalog, origin, sets)
    _require_places(conn, catalog, sets)
    start = newest_position(conn, catalog, origin)
    [(text,)] = conn.execute("select pg_catalog.txid_current_snapshot()::text")
    query = _TABLES.format(tables=conn.dialect.qualify(catalog.schema, "sl_table"))
    tables = [
        _Table(Change(start.seqno, "COPY", None, None, set_id, int(number), schema, table), columns)
        for number, set_id, schema, table, columns in conn.execute(query, {"sets": sorted(sets)})
        if not only or f"{schema}.{table}" in only
    ]
    _hold_tables(conn, [conn.dialect.qualify(each.like.schema, str(each.like.table)) for each in tables])
    return Copy(start, TxidSnapshot.parse(text), _blocks(conn, catalog, start.seqno, sets, tables))


def _hold_tables(conn: Connection, names: list[str]) -> None:
    """Keep tables from being emptied or rewritten to the end of the transaction, which has its snapshot.

    Raises: TargetLockTimeout: one is just being, or was since the snapshot: its rows would not be seen.
    """
    if not names:
        return
    conn.execute(f"lock table {', '.join(f'only {name}' for name in names)} in access share mode")
    # The catalog is read by the snapshot, the function tells what is there now.
    rows = conn.execute(
        "select n.nspname || '.' || c.relname from unnest(cast(:names as text[])) name"
        " join pg_catalog.pg_class c on c.oid = cast(name as regclass)"
        " join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
        " where c.relfilenode is distinct from pg_catalog.pg_relation_filenode(c.oid) limit 1",
        {"names": names},
    )
    if rows:
        raise TargetLockTimeout(
            f"{rows[0][0]} was emptied or rewritten just as the copy began, which would have none of its"
            " rows; copy again"
        )


def _require_places(conn: Connection, catalog: Catalog, sets: frozenset[int]) -> None:
    """Refuse a node whose tables or sequences have other OIDs than its catalog names, as after a dump.

    Raises: CatalogIncomplete.
    """
    own = {name: conn.dialect.qualify(catalog.schema, f"sl_{name[:-1]}") for name in ("tables", "sequences")}
    rows = conn.execute(
        _MISPLACED.format(**own, nul=r"\000"),
        {"sets": sorted(sets), "log": f"{catalog.schema}_logtrigger"},
    )
    if rows:
        raise CatalogIncomplete(
            f"the catalog names {rows[0][0]} by an OID that it does not have: it was dropped, or the node was"
            " restored from a dump; run slonik's REPAIR CONFIG, or take it out of its set"
        )


def _blocks(
    conn: Connection, catalog: Catalog, seqno: int, sets: frozenset[int], tables: list[_Table]
) -> Generator[list[Change], None, None]:
    count = 0
    for table in tables:
        for block in _rows(conn, table.like, table.columns):
            count += len(block)
            yield block
    names = {
        "sequences": conn.dialect.qualify(catalog.schema, "sl_sequence"),
        "values": conn.dialect.qualify(catalog.schema, "sl_seqlastvalue"),
    }
    last = [
        Change(
            seqno,
            "SEQUENCE",
            set_id=set_id,
            schema=schema,
            table=name,
            detail={"sequence_id": int(number), "last_value": value},
        )
        for number, set_id, schema, name, value in conn.execute(
            _SEQUENCES.format(**names), {"sets": sorted(sets)}
        )
    ]
    yield [*last, Change(seqno, "END", detail={"records": count + len(last)})]


def _rows(conn: Connection, like: Change, columns: list[str]) -> Iterator[list[Change]]:
    assert like.schema is not None
    assert like.table is not None
    quoted = ", ".join(map(conn.dialect.quote, columns))
    place = conn.dialect.qualify(like.schema, like.table)
    with conn.copy_out(f"copy (select {quoted} from only {place}) to stdout") as lines:
        block: list[Change] = []
        size = 0
        for line in lines:
            block.append(like._replace(values=dict(zip(columns, values_of(line), strict=True))))
            size += len(line)
            if len(block) == BLOCK_ROWS or size >= BLOCK_BYTES:
                yield block
                block, size = [], 0
        if block:
            yield block


def values_of(line: bytes) -> list[str | None]:
    """The values of a line of COPY's text format."""
    return [None if value == b"\\N" else _value(value) for value in line.rstrip(b"\n").split(b"\t")]


def _value(text: bytes) -> str:
    first, *rest = text.split(b"\\")
    if not rest:
        return first.decode()
    parts, literal = [first], False
    for part in rest:
        if literal:  # behind an escaped backslash
            parts.append(part)
            literal = False
        elif not part:
            parts.append(b"\\")
            literal = True
        else:
            parts.append(_ESCAPED.get(part[:1], part[:1]) + part[1:])
    return b"".join(parts).decode()
