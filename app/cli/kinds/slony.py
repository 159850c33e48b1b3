"""A node of a Slony-I cluster. Source: spark/events/rights."""

from app.cli.kinds.kind import LEDGER, POSTGRESQL, CommandsOfKind

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
COMMANDS = CommandsOfKind(
    grants={POSTGRESQL: _SLONY + LEDGER},
)
