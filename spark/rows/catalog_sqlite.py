"""What SQLite says about a table."""

from spark.rows.table import Column, ForeignKey, Index, Table, TableFinding
from spark.targets.connection import Connection
from spark.targets.errors import TargetSchemaUnsupported

_OWN = ("lethe_unit_ledger", "lethe_fence", "lethe_archive_manifest")


def read_table(conn: Connection, name: str) -> Table | None:
    """One table; None: it is not there.

    Raises: TargetSchemaUnsupported: a view, a virtual table, or what others refer to and has no such key.
    """
    found = conn.execute(
        "select type, wr from pragma_table_list where schema = 'main' and name = :name", {"name": name}
    )
    if not found:
        return None
    [(kind, without_rowid)] = found
    if kind != "table":
        raise TargetSchemaUnsupported(f"{name} is a {kind}: name the table below it")
    described = conn.execute(
        'select name, type, "notnull", pk from pragma_table_xinfo(:name) where hidden <> 1 order by cid',
        {"name": name},
    )
    indexes = _indexes(conn, name, not_null={str(column) for column, _, stays, _ in described if stays})
    key = tuple(str(column) for column, _, _, place in sorted(described, key=lambda row: row[3]) if place)
    if key:
        solid = {str(column) for column, _, stays, _ in described if stays}
        is_alias = not without_rowid and not any(index.is_primary for index in indexes)
        usable = bool(without_rowid) or is_alias or set(key) <= solid
        indexes = [index for index in indexes if not index.is_primary]
        indexes.append(Index(key, True, usable))
    [(rows,)] = conn.execute(f"select count(*) from {conn.dialect.quote(name)}")
    return Table(
        name,
        tuple(Column(str(column), str(declared), "dynamic") for column, declared, _, _ in described),
        tuple(indexes),
        _foreign(conn, name, key),
        _triggers(conn, name),
        int(rows),
        None,
        _strange(name, indexes),
    )


def list_tables(conn: Connection, most: int) -> list[tuple[str, int | None, int | None]]:
    """Tables of the file, by name: it keeps no sizes."""
    rows = conn.execute(
        "select name from pragma_table_list where schema = 'main' and type = 'table'"
        " and name not like 'sqlite~_%' escape '~' order by name limit :most",
        {"most": most + len(_OWN)},
    )
    found: list[tuple[str, int | None, int | None]] = [(str(name), None, None) for (name,) in rows]
    return [each for each in found if each[0] not in _OWN][:most]


def _strange(name: str, indexes: list[Index]) -> tuple[TableFinding, ...]:
    """A primary key that may hold NULLs, as SQLite allows."""
    if any(index.is_unique_not_null for index in indexes) or not any(index.is_primary for index in indexes):
        return ()
    detail = "its primary key may hold NULLs: declare its columns NOT NULL"
    return (TableFinding("KEY_NULLABLE", "ERROR", name, detail),)


def _indexes(conn: Connection, name: str, *, not_null: set[str]) -> list[Index]:
    found = []
    listed = conn.execute(
        'select name, "unique", origin, partial from pragma_index_list(:name) order by seq', {"name": name}
    )
    for index, unique, origin, partial in listed:
        if partial:
            continue
        rows = conn.execute("select name from pragma_index_info(:index) order by seqno", {"index": index})
        columns = tuple("" if column is None else str(column) for (column,) in rows)
        found.append(Index(columns, origin == "pk", bool(unique) and set(columns) <= not_null))
    return found


def _foreign(conn: Connection, name: str, key: tuple[str, ...]) -> tuple[ForeignKey, ...]:
    """Names of tables and columns are told as they were declared, in any case of letters.

    Raises: TargetSchemaUnsupported: a foreign key that SQLite cannot follow.
    """
    rows = conn.execute(
        'select t.name, f.id, f."from", f."to", f.on_delete from pragma_table_list t'
        " join pragma_foreign_key_list(t.name) f where t.schema = 'main' and t.type = 'table'"
        ' and f."table" = :name collate nocase order by t.name, f.id, f.seq',
        {"name": name},
    )
    found: dict[tuple[str, int], ForeignKey] = {}
    for child, number, column, target, rule in rows:
        known = found.get((child, number))
        place = len(known.columns) if known else 0
        if target is None and place >= len(key):
            raise TargetSchemaUnsupported(
                f"a foreign key of {child} refers to the primary key of {name}, which has fewer columns:"
                " name the columns that it refers to"
            )
        found[child, number] = ForeignKey(
            f"{child}[{number}]",
            None,
            str(child),
            (*(known.child_columns if known else ()), str(column)),
            (*(known.columns if known else ()), str(target) if target is not None else key[place]),
            str(rule).upper(),
            has_index=_has_index(conn, str(child), str(column)) if known is None else known.has_index,
        )
    return tuple(found.values())


def _has_index(conn: Connection, table: str, column: str) -> bool:
    rows = conn.execute(
        "select 1 from pragma_index_list(:table) l join pragma_index_info(l.name) i"
        " where i.seqno = 0 and i.name = :column collate nocase"
        " union all select 1 from pragma_table_info(:table) where pk = 1 and name = :column collate nocase",
        {"table": table, "column": column},
    )
    return bool(rows)


def _triggers(conn: Connection, name: str) -> tuple[str, ...]:
    rows = conn.execute(
        "select name, sql from sqlite_schema where type = 'trigger' and tbl_name = :name collate nocase"
        " order by 1",
        {"name": name},
    )
    return tuple(str(trigger) for trigger, sql in rows if "DELETE" in str(sql).upper())
