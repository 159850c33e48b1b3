"""What MariaDB and MySQL say about a table."""

from spark.purge.reading.catalog_mysql import lacks_right
from spark.rows.table import Column, ColumnKind, ForeignKey, Index, Table, TableFinding
from spark.targets.connection import Connection
from spark.targets.errors import TargetError, TargetSchemaUnsupported

_KINDS: dict[str, ColumnKind] = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"), "number"
    ),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "text"),
    "enum": "label",
    "uuid": "uuid",
    "date": "date",
    "datetime": "timestamp",
    "timestamp": "timestamptz",
}
_INDEXES = (
    "select s.index_name, s.non_unique, s.column_name, s.sub_part, s.nullable"
    " from information_schema.statistics s"
    " where s.table_schema = database() and s.table_name = :name order by s.index_name, s.seq_in_index"
)
_FOREIGN = (
    "select k.constraint_name, k.table_schema, k.table_name, k.table_schema = database(), r.delete_rule,"
    " k.column_name, k.referenced_column_name from information_schema.key_column_usage k"
    " join information_schema.referential_constraints r on r.constraint_schema = k.constraint_schema"
    " and r.constraint_name = k.constraint_name and r.table_name = k.table_name"
    " where k.referenced_table_schema = database() and k.referenced_table_name = :name"
    " order by k.table_schema, k.table_name, k.constraint_name, k.ordinal_position"
)
_TRIGGERS = (
    "select trigger_name from information_schema.triggers where event_object_schema = database()"
    " and event_object_table = :name and event_manipulation = 'DELETE' order by 1"
)
_UNSEEN = "no right PROCESS: a foreign key of a database that the role may not see would not be known"


def read_table(conn: Connection, name: str) -> Table | None:
    """One table; None: it is not there.

    Raises: TargetSchemaUnsupported: a view, or an engine without transactions.
    """
    found = conn.execute(
        "select table_name, table_type, engine, table_rows, data_length + index_length, create_options"
        " from information_schema.tables where table_schema = database() and table_name = :name",
        {"name": name},
    )
    if not found:
        return None
    [(exact, kind, engine, rows, size, options)] = found
    if str(kind) not in ("BASE TABLE", "SYSTEM VERSIONED"):
        raise TargetSchemaUnsupported(f"{exact} is a view: name the table below it")
    foreign, findings = _foreign(conn, str(exact))
    if str(engine).lower() != "innodb":
        detail = f"is {engine}: only InnoDB has the transactions of a purge"
        findings.append(TableFinding("NOT_TRANSACTIONAL", "ERROR", name, detail))
    if str(kind) == "SYSTEM VERSIONED":
        detail = "keeps the history of its rows: what is deleted would stay there"
        findings.append(TableFinding("VERSIONED", "ERROR", name, detail))
    if "partitioned" in str(options or "").lower():
        detail = "is partitioned: where a whole partition is old, dropping that is cheaper"
        findings.append(TableFinding("PARTITIONED", "INFO", name, detail))
    quoted = conn.dialect.quote(str(exact))
    missing = [right for right in ("SELECT", "DELETE") if lacks_right(conn, quoted, right)]
    if missing:
        detail = f"grant {' and '.join(missing)} to the role"
        findings.append(TableFinding("PERMISSION_MISSING", "ERROR", name, detail))
    return Table(
        str(exact),
        _columns(conn, str(exact)),
        _indexes(conn, str(exact)),
        foreign,
        tuple(str(trigger) for (trigger,) in conn.execute(_TRIGGERS, {"name": exact})),
        None if rows is None else int(rows),
        None if size is None else int(size),
        tuple(findings),
    )


def list_tables(conn: Connection, most: int) -> list[tuple[str, int | None, int | None]]:
    """The largest tables of the database."""
    rows = conn.execute(
        "select table_name, table_rows, data_length + index_length from information_schema.tables"
        " where table_schema = database() and table_type = 'BASE TABLE' and table_name not in"
        " ('lethe_unit_ledger', 'lethe_fence', 'lethe_archive_manifest') order by 3 desc, 1 limit :most",
        {"most": most},
    )
    return [
        (str(name), None if count is None else int(count), None if size is None else int(size))
        for name, count, size in rows
    ]


def _columns(conn: Connection, name: str) -> tuple[Column, ...]:
    rows = conn.execute(
        "select column_name, data_type from information_schema.columns"
        " where table_schema = database() and table_name = :name order by ordinal_position",
        {"name": name},
    )
    return tuple(
        Column(str(column), str(kind).lower(), _KINDS.get(str(kind).lower(), "other"))
        for column, kind in rows
    )


def _indexes(conn: Connection, name: str) -> tuple[Index, ...]:
    found: dict[str, tuple[list[str], bool]] = {}
    for index, non_unique, column, part, nullable in conn.execute(_INDEXES, {"name": name}):
        columns, unique = found.setdefault(str(index), ([], not int(non_unique)))
        columns.append(str(column or ""))
        is_whole = column is not None and part is None and str(nullable).upper() != "YES"
        found[str(index)] = (columns, unique and is_whole)
    return tuple(
        Index(tuple(columns), name == "PRIMARY", unique) for name, (columns, unique) in found.items()
    )


def _foreign(conn: Connection, name: str) -> tuple[tuple[ForeignKey, ...], list[TableFinding]]:
    found: dict[tuple[str, str, str], ForeignKey] = {}
    for constraint, schema, child, is_here, rule, column, target in conn.execute(_FOREIGN, {"name": name}):
        known = found.get((schema, child, constraint))
        found[schema, child, constraint] = ForeignKey(
            str(constraint),
            None if is_here else str(schema),
            str(child),
            (*(known.child_columns if known else ()), str(column)),
            (*(known.columns if known else ()), str(target)),
            str(rule).upper(),
            has_index=True,  # InnoDB makes one
        )
    return tuple(found.values()), _unseen(conn, name, len(found))


def _unseen(conn: Connection, name: str, seen: int) -> list[TableFinding]:
    """Foreign keys that the engine has and the role does not see; without PROCESS that cannot be asked."""
    for view in ("innodb_sys_foreign", "innodb_foreign"):  # MariaDB, MySQL
        try:
            [(known,)] = conn.execute(
                f"select count(*) from information_schema.{view} where cast(ref_name as binary) ="
                " concat(cast(convert(database() using filename) as binary), '/',"
                " cast(convert(:name using filename) as binary))",
                {"name": name},
            )
        except TargetError:
            continue
        if int(known) <= seen:
            return []
        detail = f"{int(known) - seen} foreign keys of tables that the role may not read point here"
        return [TableFinding("PERMISSION_MISSING", "ERROR", name, f"{detail}: grant SELECT on them")]
    return [TableFinding("FOREIGN_KEYS_UNSEEN", "WARNING", name, _UNSEEN)]
