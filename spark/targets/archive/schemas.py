"""Schemas of a target beside that of its live tables: on PostgreSQL schemas, on MySQL databases."""

from spark.targets.connection import Connection, identity


def live_schema(conn: Connection) -> str:
    """The schema of the live tables."""
    if conn.dialect.name == "mysql":
        return str(conn.execute("select database()")[0][0])
    return conn.target.schema or "public"


def schema_exists(conn: Connection, schema: str) -> bool:
    """Whether there is a schema of that name, as far as the role can see."""
    sql = (
        "select 1 from information_schema.schemata where schema_name = :schema"
        if conn.dialect.name == "mysql"
        else "select 1 from pg_catalog.pg_namespace where nspname = :schema"
    )
    return bool(conn.execute(sql, {"schema": schema}))


def relations_of(conn: Connection, schema: str) -> list[str]:
    """Everything in a schema that holds rows."""
    sql = (
        "select table_name from information_schema.tables where table_schema = :schema order by 1"
        if conn.dialect.name == "mysql"
        else "select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n"
        " on n.oid = c.relnamespace where n.nspname = :schema"
        " and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') order by 1"
    )
    return [str(name) for (name,) in conn.execute(sql, {"schema": schema})]


def identity_beside(conn: Connection, schema: str) -> str:
    """What a target whose live tables are in another schema of the same server or database says it is."""
    own, found = live_schema(conn), identity(conn)
    is_as_written = found.endswith(f":{own}")  # a server may know databases by small letters alone
    return found[: len(found) - len(own)] + (schema if is_as_written else schema.lower())
