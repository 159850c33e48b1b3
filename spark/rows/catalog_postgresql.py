"""What PostgreSQL's catalog says about a table."""

from typing import Any

from spark.rows.table import Column, ColumnKind, ForeignKey, Index, Table, TableFinding
from spark.targets.connection import Connection
from spark.targets.errors import TargetSchemaUnsupported

_KINDS: dict[str, ColumnKind] = {
    "smallint": "number",
    "integer": "number",
    "bigint": "number",
    "numeric": "number",
    "real": "number",
    "double precision": "number",
    "boolean": "boolean",
    "text": "text",
    "character varying": "text",
    "bpchar": "text",
    "citext": "text",
    "uuid": "uuid",
    "date": "date",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
}
_ON_DELETE = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT", "r": "RESTRICT", "a": "NO ACTION"}
_RELATION = """
    select c.oid::bigint, c.relkind::text, c.reltuples::bigint, pg_catalog.pg_total_relation_size(c.oid),
        pg_catalog.row_security_active(c.oid), c.relkind = 'r' and exists
            (select from pg_catalog.pg_inherits i where i.inhparent = c.oid),
        (select min(r.rulename) from pg_catalog.pg_rewrite r
         where r.ev_class = c.oid and r.ev_type = '4' and r.ev_enabled <> 'D')
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = :schema and c.relname = :name and c.relkind in ('r', 'p', 'v', 'm', 'f')"""
_COLUMNS = """
    -- Without a modifier character is character(1) and bit is bit(1): with one of -1 a name is whole.
    select a.attname, pg_catalog.format_type(a.atttypid, -1), t.typtype::text
    from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid
    where a.attrelid = :oid and a.attnum > 0 and not a.attisdropped order by a.attnum"""
_INDEXES = """
    select i.indisprimary, i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null
            and i.indexprs is null and bool_and(a.attnotnull),
        array_agg(coalesce(a.attname::text, '') order by k.position)
    from pg_catalog.pg_index i
    cross join lateral unnest(i.indkey::int2[]) with ordinality k (attnum, position)
    left join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    where i.indrelid = :oid and k.position <= i.indnkeyatts and i.indpred is null
    group by i.indexrelid, i.indisprimary, i.indisunique, i.indisvalid, i.indimmediate, i.indpred is null,
        i.indexprs is null, i.indpred, i.indexprs"""
_FOREIGN = """
    -- A foreign key may name a partition: it needs rows of the table all the same.
    with here (relid) as (
        select cast(:oid as oid) union select relid from pg_catalog.pg_partition_tree(cast(:oid as regclass))
    )
    select o.conname, n.nspname, c.relname, c.relnamespace = p.relnamespace, o.confdeltype::text,
        (select array_agg(a.attname::text order by k.position)
         from unnest(o.conkey) with ordinality k (attnum, position)
         join pg_catalog.pg_attribute a on a.attrelid = o.conrelid and a.attnum = k.attnum),
        (select array_agg(a.attname::text order by k.position)
         from unnest(o.confkey) with ordinality k (attnum, position)
         join pg_catalog.pg_attribute a on a.attrelid = o.confrelid and a.attnum = k.attnum),
        (select array_agg(case when l.oid is null or a.attcollation = b.attcollation then ''
                          else pg_catalog.format('%s.%I', l.collnamespace::regnamespace, l.collname) end
                          order by k.position)
         from unnest(o.confkey, o.conkey) with ordinality k (attnum, of_child, position)
         join pg_catalog.pg_attribute a on a.attrelid = o.confrelid and a.attnum = k.attnum
         join pg_catalog.pg_attribute b on b.attrelid = o.conrelid and b.attnum = k.of_child
         left join pg_catalog.pg_collation l on l.oid = a.attcollation),
        exists (select from pg_catalog.pg_index i
                where i.indrelid = o.conrelid and i.indkey[0] = any(o.conkey)),
        has_table_privilege(c.oid, 'SELECT') and has_schema_privilege(n.oid, 'USAGE'),
        pg_catalog.row_security_active(c.oid)
    from pg_catalog.pg_constraint o join pg_catalog.pg_class c on c.oid = o.conrelid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    join pg_catalog.pg_class p on p.oid = :oid
    left join pg_catalog.pg_constraint above on above.oid = o.conparentid
    where o.contype = 'f' and o.confrelid in (select relid from here)
        and (above.oid is null or above.confrelid not in (select relid from here))
    order by n.nspname, c.relname, o.conname"""
_TRIGGERS = """
    select tgname from pg_catalog.pg_trigger
    where tgrelid = :oid and not tgisinternal and tgenabled <> 'D' and (tgtype & 8) <> 0 order by 1"""
_RIGHTS = """
    select has_schema_privilege(:schema, 'USAGE') and has_table_privilege(cast(:oid as oid), 'SELECT'),
        has_schema_privilege(:schema, 'USAGE') and has_table_privilege(cast(:oid as oid), 'DELETE'),
        has_any_column_privilege(cast(:oid as oid), 'UPDATE')"""
_TABLES = """
    select c.relname, case when c.reltuples < 0 then null else c.reltuples::bigint end,
        pg_catalog.pg_total_relation_size(c.oid)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = :schema and c.relkind in ('r', 'p') and not c.relispartition
    order by 3 desc, 1 limit :most"""


def read_table(conn: Connection, name: str) -> Table | None:
    """One table; None: it is not there.

    Raises: TargetSchemaUnsupported: a view, a table of another server, or one with a rule on DELETE.
    """
    schema = conn.target.schema or "public"
    relations = conn.execute(_RELATION, {"schema": schema, "name": name})
    if not relations:
        return None
    [(oid, relkind, rows, size, is_guarded, has_heirs, rule)] = relations
    if relkind not in ("r", "p"):
        what = "a foreign table" if relkind == "f" else "a view"
        raise TargetSchemaUnsupported(f"{name} is {what}: name the table below it")
    if rule is not None:
        raise TargetSchemaUnsupported(
            f"the rule {rule} makes something else of a DELETE of {name}, uncounted and without archive:"
            " drop or disable it, or write it as a trigger"
        )
    at = {"oid": oid}
    columns = [
        Column(str(column), str(kind), "label" if typtype == "e" else _KINDS.get(str(kind), "other"))
        for column, kind, typtype in conn.execute(_COLUMNS, at)
    ]
    indexes = [
        Index(tuple(names), bool(primary), bool(unique))
        for primary, unique, names in conn.execute(_INDEXES, at)
    ]
    foreign, findings = _foreign(conn, name, at)
    findings += _refused(name, relkind, is_guarded=is_guarded, has_heirs=has_heirs)
    findings += _rights(conn, name, {"schema": schema, "oid": oid}, must_lock=bool(foreign))
    return Table(
        name,
        tuple(columns),
        tuple(indexes),
        foreign,
        tuple(str(trigger) for (trigger,) in conn.execute(_TRIGGERS, at)),
        int(rows) if rows >= 0 else None,
        int(size),
        tuple(findings),
    )


def list_tables(conn: Connection, most: int) -> list[tuple[str, int | None, int | None]]:
    """The largest tables of the schema."""
    rows = conn.execute(_TABLES, {"schema": conn.target.schema or "public", "most": most})
    return [(str(name), count, size) for name, count, size in rows]


def _foreign(
    conn: Connection, name: str, at: dict[str, Any]
) -> tuple[tuple[ForeignKey, ...], list[TableFinding]]:
    found, findings = [], []
    for row in conn.execute(_FOREIGN, at):
        constraint, schema, child, is_here, rule, child_columns, columns, *rest = row
        collations, has_index, may_read, guarded = rest
        found.append(
            ForeignKey(
                str(constraint),
                None if is_here else str(schema),
                str(child),
                tuple(child_columns),
                tuple(columns),
                _ON_DELETE[rule],
                bool(has_index),
                tuple(collations),
            )
        )
        if not may_read:
            detail = (
                f"{constraint}: the role may not read {schema}.{child}, whose rows need rows of this table"
            )
            findings.append(TableFinding("PERMISSION_MISSING", "ERROR", name, f"{detail}: grant SELECT"))
        elif guarded:
            detail = f"row security hides rows of {schema}.{child} that may need rows of this table"
            findings.append(TableFinding("ROW_SECURITY", "ERROR", name, detail))
    return tuple(found), findings


def _refused(name: str, relkind: str, *, is_guarded: bool, has_heirs: bool) -> list[TableFinding]:
    found = []
    if is_guarded:
        detail = "row security hides rows from this role: use one with BYPASSRLS"
        found.append(TableFinding("ROW_SECURITY", "ERROR", name, detail))
    if has_heirs:
        detail = "other tables inherit from it: a key would not name one row; purge each of them"
        found.append(TableFinding("INHERITED", "ERROR", name, detail))
    if relkind == "p":
        detail = "is partitioned: where a whole partition is old, dropping that is cheaper"
        found.append(TableFinding("PARTITIONED", "INFO", name, detail))
    return found


def _rights(conn: Connection, name: str, at: dict[str, Any], *, must_lock: bool) -> list[TableFinding]:
    [(may_read, may_delete, may_lock)] = conn.execute(_RIGHTS, at)
    lacking = [("SELECT", may_read), ("DELETE", may_delete)]
    if must_lock:  # FOR UPDATE asks for it
        lacking.append(("UPDATE on a column", may_lock))
    missing = [right for right, may in lacking if not may]
    if not missing:
        return []
    return [TableFinding("PERMISSION_MISSING", "ERROR", name, f"grant {' and '.join(missing)} to the role")]
