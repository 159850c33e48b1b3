"""The rights that a role needs at a target: one script for each kind of store, complete and nothing besides.

They are run as they are printed, and the tests do every verb of a kind with a role that has just these.
Source: spark/events/rights, spark/purge/catalog, spark/targets/ledger_schema, spark/replication/layout.
"""

from typing import Final

POSTGRESQL: Final = "postgresql"
MARIADB: Final = "mariadb"
SQLITE: Final = "sqlite"

_LEDGER = """\
-- Lethe's own tables (ledger, fence, manifest); without them: one worker, counts AT_LEAST.
CREATE SCHEMA IF NOT EXISTS lethe AUTHORIZATION {role};
GRANT USAGE, CREATE ON SCHEMA lethe TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lethe TO {role};
"""

_SLONY = """\
-- Lethe at a node of Slony-I 2.2. As a superuser, in the database of each node.
-- Every verb; cleanup by Lethe's own statements (BUILTIN): NATIVE asks for a superuser.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.sl_node, {schema}.sl_path, {schema}.sl_listen, {schema}.sl_event,
    {schema}.sl_confirm, {schema}.sl_registry, {schema}.sl_log_1, {schema}.sl_log_2,
    {schema}.sl_log_script, {schema}.sl_seqlog, {schema}.sl_nodelock, {schema}.sl_set,
    {schema}.sl_sequence, {schema}.sl_subscribe,
    {schema}.sl_components TO {role};
GRANT SELECT ON SEQUENCE {schema}.sl_local_node_id, {schema}.sl_log_status TO {role};
-- confirmations
GRANT INSERT ON {schema}.sl_confirm TO {role};
-- cleanup
GRANT DELETE ON {schema}.sl_event, {schema}.sl_confirm, {schema}.sl_seqlog, {schema}.sl_log_script,
    {schema}.sl_nodelock TO {role};
-- log switch; DELETE on the two lock tables, which have no rows, is the right to lock them
GRANT DELETE ON {schema}.sl_config_lock, {schema}.sl_event_lock TO {role};
GRANT TRUNCATE ON {schema}.sl_log_1, {schema}.sl_log_2 TO {role};
GRANT INSERT, UPDATE ON {schema}.sl_registry TO {role};
GRANT UPDATE ON SEQUENCE {schema}.sl_log_status TO {role};
-- SYNCs, by the cluster's function; once more when a sequence has been added to a set of this node
GRANT INSERT ON {schema}.sl_event, {schema}.sl_seqlog TO {role};
GRANT SELECT, USAGE ON SEQUENCE {schema}.sl_event_seq TO {role};
DO $lethe$
DECLARE
    item record;
BEGIN
    IF to_regclass('{schema_text}.sl_seqlastvalue') IS NOT NULL THEN
        GRANT SELECT ON {schema}.sl_seqlastvalue TO {role};
    END IF;
    FOR item IN SELECT p.oid::regprocedure AS name FROM pg_proc p
        WHERE p.pronamespace = '{schema_text}'::regnamespace
            AND lower(p.proname) IN ('createevent', 'seqtrack')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', item.name, '{role_text}');
    END LOOP;
    FOR item IN SELECT DISTINCT q.seq_nspname AS space, q.seq_relname AS name FROM {schema}.sl_sequence q
        JOIN {schema}.sl_set t ON t.set_id = q.seq_set
        JOIN {schema}.sl_local_node_id l ON l.last_value = t.set_origin
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', item.space, '{role_text}');
        EXECUTE format('GRANT SELECT ON SEQUENCE %I.%I TO %s', item.space, item.name, '{role_text}');
    END LOOP;
END
$lethe$;
-- who is in the way of a log switch: transactions of other roles
GRANT pg_read_all_stats TO {role};
"""

_SYMMETRICDS = """\
-- Lethe at a database of SymmetricDS on PostgreSQL. As the owner of the tables and of the database.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, DELETE ON {schema}.{prefix}data, {schema}.{prefix}data_event,
    {schema}.{prefix}outgoing_batch, {schema}.{prefix}incoming_batch, {schema}.{prefix}data_gap TO {role};
-- the marks of stranded batches, and the right to lock the rows of batches
GRANT UPDATE ON {schema}.{prefix}outgoing_batch TO {role};
GRANT SELECT ON {schema}.{prefix}node, {schema}.{prefix}parameter TO {role};
-- from 3.9 on: how far SymmetricDS itself has purged (2.x has no such table)
GRANT SELECT ON {schema}.{prefix}context TO {role};
-- 2.x: SymmetricDS's own lock
GRANT SELECT, INSERT, UPDATE ON {schema}.{prefix}lock TO {role};
-- `archive restore --live` alone; leave it out where nobody restores
GRANT INSERT ON {schema}.{prefix}data, {schema}.{prefix}data_event, {schema}.{prefix}outgoing_batch TO {role};
"""

_SYMMETRICDS_MARIADB = """\
-- Lethe at a database of SymmetricDS on MariaDB or MySQL. As an administrator of the server.
GRANT SELECT ON {schema}.* TO {role};
GRANT DELETE ON {schema}.{prefix}data TO {role};
GRANT DELETE ON {schema}.{prefix}data_event TO {role};
GRANT DELETE, UPDATE (status) ON {schema}.{prefix}outgoing_batch TO {role};
GRANT DELETE ON {schema}.{prefix}incoming_batch TO {role};
GRANT DELETE ON {schema}.{prefix}data_gap TO {role};
-- 2.x: SymmetricDS's own lock
GRANT INSERT, UPDATE ON {schema}.{prefix}lock TO {role};
-- Lethe's own tables (ledger, fence, manifest); without them: one worker, counts AT_LEAST
GRANT CREATE, INSERT, UPDATE, DELETE ON {schema}.lethe_unit_ledger TO {role};
GRANT CREATE, INSERT, UPDATE, DELETE ON {schema}.lethe_fence TO {role};
GRANT CREATE, INSERT, UPDATE, DELETE ON {schema}.lethe_archive_manifest TO {role};
-- `archive restore --live` alone; leave it out where nobody restores
GRANT INSERT ON {schema}.{prefix}data TO {role};
GRANT INSERT ON {schema}.{prefix}data_event TO {role};
GRANT INSERT ON {schema}.{prefix}outgoing_batch TO {role};
"""

_REPLICA = """\
-- Lethe's replica on PostgreSQL: the role makes its tables itself, and owns them. As the owner of the schema.
GRANT USAGE, CREATE ON SCHEMA {schema} TO {role};
"""

_SQL = """\
-- Lethe at a database of kind SQL on PostgreSQL. As the owner of the tables and of the database.
-- Only tables that are to be purged, and their children, need DELETE and UPDATE (the right to lock rows);
-- every table that refers to them needs SELECT.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, DELETE, UPDATE ON ALL TABLES IN SCHEMA {schema} TO {role};
-- how far replicas are behind (`max_replica_lag`)
GRANT pg_monitor TO {role};
"""

_SQL_MARIADB = """\
-- Lethe at a database of kind SQL on MariaDB or MySQL. As an administrator of the server.
-- Only tables that are to be purged, and their children, need DELETE; every table that refers to them SELECT.
GRANT SELECT, DELETE ON {schema}.* TO {role};
-- foreign keys of other databases, and the triggers of the tables, are seen by these
GRANT PROCESS ON *.* TO {role};
GRANT TRIGGER ON {schema}.* TO {role};
-- Lethe's own tables (ledger, fence, manifest); without them: one worker, counts AT_LEAST
GRANT CREATE, INSERT, UPDATE, DELETE ON {schema}.lethe_unit_ledger TO {role};
GRANT CREATE, INSERT, UPDATE, DELETE ON {schema}.lethe_fence TO {role};
GRANT CREATE, INSERT, UPDATE, DELETE ON {schema}.lethe_archive_manifest TO {role};
-- at a replica that is named in `replicas`, its lag; MySQL: REPLICATION CLIENT
-- GRANT REPLICA MONITOR ON *.* TO {role};
"""

_FILE = """\
# Lethe at a SQLite file, {schema}: no GRANT; the account of the service needs the modes of files.
# Read and write the file, and write the directory: journals are made beside it.
chown {role} '{schema}' && chmod 0600 '{schema}'
chown {role} "$(dirname '{schema}')" && chmod 0700 "$(dirname '{schema}')"
"""

SCRIPTS: Final = {
    ("SLONY", POSTGRESQL): _SLONY + _LEDGER,
    ("SYMMETRICDS", POSTGRESQL): _SYMMETRICDS + _LEDGER,
    ("SYMMETRICDS", MARIADB): _SYMMETRICDS_MARIADB,
    ("SYMMETRICDS", SQLITE): _FILE,
    ("SQL", POSTGRESQL): _SQL + _LEDGER,
    ("SQL", MARIADB): _SQL_MARIADB,
    ("SQL", SQLITE): _FILE,
    ("REPLICA", POSTGRESQL): _REPLICA + _LEDGER,
    ("REPLICA", SQLITE): _FILE,
}
"""By kind of store and database; a store of kind JE is a directory of files."""
KINDS_WITH_GRANTS: Final = ", ".join(sorted({kind for kind, _ in SCRIPTS}))


def grant_script(kind: str, database: str, *, role: str, schema: str, prefix: str = "sym_") -> str:
    """The script, with every name quoted as its database wants it.

    Args:
        role: MariaDB: `name` or `name@host`; SQLite: the account of the operating system.
        schema: of a SLONY store the cluster's, `_NAME`; MariaDB: the database; SQLite: the file.
    """
    if database == SQLITE:
        return _FILE.format(role=role, schema=schema.replace("'", "'\\''"))
    if database == MARIADB:
        name, _, host = role.partition("@")
        quoted = "@".join("'" + part.replace("'", "''") + "'" for part in (name, host or "%"))
        database_name = "`" + schema.replace("`", "``") + "`"
        return SCRIPTS[kind, database].format(role=quoted, schema=database_name, prefix=prefix)
    names = {"role": _quoted(role), "schema": _quoted(schema), "prefix": prefix}
    texts = {f"{name}_text": names[name].replace("'", "''") for name in ("role", "schema")}
    return SCRIPTS[kind, database].format(**names, **texts)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
