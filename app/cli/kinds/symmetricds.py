"""A database of SymmetricDS. Source: spark/purge/catalog, spark/targets/ledger_schema."""

from app.cli.kinds.kind import FILE, LEDGER, MARIADB, POSTGRESQL, SQLITE, CommandsOfKind

_SYMMETRICDS = """\
-- Lethe at a database of SymmetricDS on PostgreSQL. As the owner of the tables and of the database.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, DELETE ON {schema}.{prefix}data, {schema}.{prefix}data_event,
    {schema}.{prefix}outgoing_batch, {schema}.{prefix}incoming_batch, {schema}.{prefix}data_gap TO {role};
-- the marks of stranded batches, and the right to lock the rows of batches
GRANT UPDATE ON {schema}.{prefix}outgoing_batch TO {role};
GRANT SELECT ON {schema}.{prefix}node, {schema}.{prefix}parameter TO {role};
-- heartbeats of nodes
DO $lethe$
BEGIN
    IF to_regclass('{schema_text}.{prefix}node_host') IS NOT NULL THEN
        GRANT SELECT ON {schema}.{prefix}node_host TO {role};
    END IF;
END
$lethe$;
-- from 3.9 on: how far SymmetricDS itself has purged (2.x has no such table)
GRANT SELECT ON {schema}.{prefix}context TO {role};
-- 3.x: the smaller purges (2.x has few of these tables; leave out what is not there)
GRANT SELECT, DELETE ON {schema}.{prefix}table_reload_status, {schema}.{prefix}table_reload_request,
    {schema}.{prefix}extract_request, {schema}.{prefix}registration_request, {schema}.{prefix}incoming_error,
    {schema}.{prefix}trigger_hist, {schema}.{prefix}node_host_channel_stats,
    {schema}.{prefix}node_host_stats, {schema}.{prefix}node_host_job_stats TO {role};
GRANT SELECT ON {schema}.{prefix}channel TO {role};
-- 2.x: SymmetricDS's own lock
GRANT SELECT, INSERT, UPDATE ON {schema}.{prefix}lock TO {role};
-- `archive restore --live` alone; leave it out where nobody restores
GRANT INSERT ON {schema}.{prefix}data, {schema}.{prefix}data_event, {schema}.{prefix}outgoing_batch TO {role};
-- `--stranded recapture` alone: it updates rows of the tables that are captured, and their triggers write
-- to sym_data. Where you use it, take away the dashes and write the first line for each of these tables
-- GRANT SELECT, UPDATE ON {schema}.captured_table TO {role};
-- GRANT INSERT ON {schema}.{prefix}data TO {role};
-- GRANT USAGE ON SEQUENCE {schema}.{prefix}data_data_id_seq TO {role};
"""

_SYMMETRICDS_MARIADB = """\
-- Lethe at a database of SymmetricDS on MariaDB or MySQL. As an administrator of the server.
GRANT SELECT ON {schema}.* TO {role};
GRANT DELETE ON {schema}.{prefix}data TO {role};
GRANT DELETE ON {schema}.{prefix}data_event TO {role};
GRANT DELETE, UPDATE (status) ON {schema}.{prefix}outgoing_batch TO {role};
GRANT DELETE ON {schema}.{prefix}incoming_batch TO {role};
GRANT DELETE ON {schema}.{prefix}data_gap TO {role};
-- 3.x: the smaller purges (2.x has few of these tables; leave out what is not there)
GRANT DELETE ON {schema}.{prefix}table_reload_status TO {role};
GRANT DELETE ON {schema}.{prefix}table_reload_request TO {role};
GRANT DELETE ON {schema}.{prefix}extract_request TO {role};
GRANT DELETE ON {schema}.{prefix}registration_request TO {role};
GRANT DELETE ON {schema}.{prefix}incoming_error TO {role};
GRANT DELETE ON {schema}.{prefix}trigger_hist TO {role};
GRANT DELETE ON {schema}.{prefix}node_host_channel_stats TO {role};
GRANT DELETE ON {schema}.{prefix}node_host_stats TO {role};
GRANT DELETE ON {schema}.{prefix}node_host_job_stats TO {role};
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
-- `--stranded recapture` alone: it updates rows of the tables that are captured, and their triggers write
-- to sym_data. Where you use it, take away the dashes and write the first line for each of these tables
-- GRANT SELECT, UPDATE ON {schema}.captured_table TO {role};
-- GRANT INSERT ON {schema}.{prefix}data TO {role};
"""
COMMANDS = CommandsOfKind(
    grants={POSTGRESQL: _SYMMETRICDS + LEDGER, MARIADB: _SYMMETRICDS_MARIADB, SQLITE: FILE},
)
