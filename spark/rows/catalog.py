"""Reads a table of the target's schema from its catalog, and says what of it forbids a purge."""

from spark.purge.reading.catalog_mysql import refuse_server
from spark.rows import catalog_mysql, catalog_postgresql, catalog_sqlite
from spark.rows.table import Table, TableFinding
from spark.targets.connection import Connection
from spark.targets.errors import TargetSchemaUnsupported, TargetTablesMissing
from spark.targets.ledger_schema import TABLES as OWN_TABLES

NAME_MAX_CHARS = 128
_MYSQL_KEY_KINDS = frozenset({"number", "text", "uuid", "timestamp", "timestamptz", "date"})
_MYSQL_NO_KEY = frozenset({"float", "double", "real"})
_MYSQL_BYTES = frozenset({"binary", "varbinary"})


def read_table(conn: Connection, name: str) -> Table:
    """Read one table.

    Raises: TargetTablesMissing: there is none of that exact name. TargetSchemaUnsupported: it is a view or
        something else that is no table, it is Lethe's own, or the server's row locks do not hold.
    """
    if not name or len(name) > NAME_MAX_CHARS or "\0" in name:
        raise TargetTablesMissing("no table has such a name")
    if _is_own(conn, name):
        raise TargetSchemaUnsupported(
            f"{name} is Lethe's own: it says what jobs have removed and who may write here. Old rows go by"
            " themselves, after lethe.retention.ledgers"
        )
    if conn.dialect.name == "mysql":
        refuse_server(conn)
        table = catalog_mysql.read_table(conn, name)
    elif conn.dialect.name == "sqlite":
        table = catalog_sqlite.read_table(conn, name)
    else:
        table = catalog_postgresql.read_table(conn, name)
    if table is None:
        place = conn.dialect.qualify(conn.target.schema, name)
        raise TargetTablesMissing(f"there is no table {place}; its name is case-sensitive")
    return table


def _is_own(conn: Connection, name: str) -> bool:
    """Without them counts, limits and archives of other jobs would be wrong, and late units not shut out."""
    if conn.dialect.name == "postgresql":
        return conn.target.schema == "lethe" and name in OWN_TABLES
    return name.lower() in {f"lethe_{table}" for table in OWN_TABLES}


def list_tables(conn: Connection, *, most: int) -> list[tuple[str, int | None, int | None]]:
    """Tables of the schema with rows and bytes as estimated, the largest first, without Lethe's own."""
    reader = {
        "mysql": catalog_mysql.list_tables,
        "sqlite": catalog_sqlite.list_tables,
        "postgresql": catalog_postgresql.list_tables,
    }[conn.dialect.name]
    return reader(conn, most)


def findings_of(conn: Connection, table: Table, *, time_column: str | None) -> tuple[TableFinding, ...]:
    """What forbids the purge of a table, and what its owner should know."""
    found = list(table.findings)

    def add(code: str, severity: str, detail: str) -> None:
        found.append(TableFinding(code, "ERROR" if severity == "ERROR" else "WARNING", table.name, detail))

    if not table.key:
        detail = (
            "has neither a primary key nor a unique index without NULLs: add one, its rows cannot be named"
        )
        add("NO_KEY", "ERROR", detail)
    if wrong := _unusable_key(conn, table):
        add("KEY_TYPE", "ERROR", f"{', '.join(wrong)}: rows cannot be walked by a key of this type")
    if conn.dialect.name == "mysql" and " where " in table.name.lower():
        add("NAME_UNSUPPORTED", "ERROR", "the name of the table contains a word of SQL: rename it")
    if time_column is not None and not table.is_led_by(time_column):
        detail = f"no index begins with {time_column}: the whole table is read; an index makes it faster"
        add("TIME_WITHOUT_INDEX", "WARNING", detail)
    if table.triggers:
        names = ", ".join(table.triggers)
        add("TRIGGERS", "WARNING", f"runs {names} for each row that goes: what they do is not archived")
    for foreign in table.incoming:
        if not foreign.has_index:
            columns = ", ".join(foreign.child_columns)
            detail = f"{foreign.child} has no index on {columns}: each unit reads all of it"
            add("FOREIGN_KEY_WITHOUT_INDEX", "WARNING", detail)
    return tuple(found)


def _unusable_key(conn: Connection, table: Table) -> list[str]:
    if conn.dialect.name != "mysql":
        return []
    wrong = []
    for name in table.key:
        column = table.column(name)
        assert column is not None, "a key is of columns"
        is_known = column.kind in _MYSQL_KEY_KINDS or column.type in _MYSQL_BYTES
        if not is_known or column.type in _MYSQL_NO_KEY:
            wrong.append(f"{name} is {column.type}")
    return wrong
