"""A replica of Lethe's own protocol. Source: spark/replication/layout."""

from app.cli.kinds.kind import FILE, LEDGER, POSTGRESQL, SQLITE, CommandsOfKind

_REPLICA = """\
-- Lethe's replica on PostgreSQL: the role makes its tables itself, and owns them. As the owner of the schema.
GRANT USAGE, CREATE ON SCHEMA {schema} TO {role};
"""
COMMANDS = CommandsOfKind(
    grants={POSTGRESQL: _REPLICA + LEDGER, SQLITE: FILE},
)
