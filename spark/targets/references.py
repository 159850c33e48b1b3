"""Which tables of the target's schema refer to which, as its catalog says; no keys, no rights, only names."""

from collections.abc import Iterable, Sequence

from spark.targets.connection import Connection

# What a foreign key joins, and a table with its partitions or heirs: they share rows.
_POSTGRESQL = """
select child.relname, parent.relname from pg_catalog.pg_constraint k
join pg_catalog.pg_class child on child.oid = k.conrelid
join pg_catalog.pg_class parent on parent.oid = k.confrelid
join pg_catalog.pg_namespace n on n.oid = child.relnamespace
where k.contype = 'f' and parent.relnamespace = child.relnamespace and n.nspname = :schema"""
_HEIRS = """
select child.relname, parent.relname from pg_catalog.pg_inherits i
join pg_catalog.pg_class child on child.oid = i.inhrelid
join pg_catalog.pg_class parent on parent.oid = i.inhparent
join pg_catalog.pg_namespace n on n.oid = child.relnamespace
where child.relkind in ('r', 'p') and parent.relnamespace = child.relnamespace and n.nspname = :schema"""
_MYSQL = """
select table_name, referenced_table_name from information_schema.key_column_usage
where table_schema = database() and referenced_table_schema = table_schema"""
_SQLITE = """
select t.name, f."table" from sqlite_master t, pragma_foreign_key_list(t.name) f where t.type = 'table'"""


def references(conn: Connection) -> list[tuple[str, str]]:
    """(table, the table to which it refers by a foreign key), each once."""
    if conn.dialect.name == "postgresql":
        rows = conn.execute(_POSTGRESQL, {"schema": conn.target.schema or "public"})
    else:
        rows = conn.execute(_MYSQL if conn.dialect.name == "mysql" else _SQLITE)
    return sorted({(str(child), str(parent)) for child, parent in rows})


def joined_with(conn: Connection, table: str) -> list[str]:
    """A table and all that foreign keys join with it, over however many others; sorted, in small letters."""
    pairs: Iterable[Sequence[str]] = references(conn)
    if conn.dialect.name == "postgresql":
        pairs = [*pairs, *conn.execute(_HEIRS, {"schema": conn.target.schema or "public"})]
    beside: dict[str, set[str]] = {}
    for child, parent in pairs:
        beside.setdefault(child.lower(), set()).add(parent.lower())
        beside.setdefault(parent.lower(), set()).add(child.lower())
    found, todo = {table.lower()}, [table.lower()]
    while todo:
        new = beside.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return sorted(found)
