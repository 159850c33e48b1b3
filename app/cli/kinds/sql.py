"""A database of anybody's: rows of any of its tables can go. Source: spark/rows."""

from app.cli.kinds.kind import FILE, LEDGER, MARIADB, POSTGRESQL, SQLITE, CommandsOfKind
from app.cli.purge_rows import rows

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
COMMANDS = CommandsOfKind(
    grants={POSTGRESQL: _SQL + LEDGER, MARIADB: _SQL_MARIADB, SQLITE: FILE},
    purges={"rows": rows},
)
