"""What the command knows of a kind of store besides what the service tells it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

POSTGRESQL: Final = "postgresql"
MARIADB: Final = "mariadb"
SQLITE: Final = "sqlite"
LEDGER = """\
-- Lethe's own tables (ledger, fence, manifest); without them: one worker, counts AT_LEAST.
CREATE SCHEMA IF NOT EXISTS lethe AUTHORIZATION {role};
GRANT USAGE, CREATE ON SCHEMA lethe TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lethe TO {role};
"""
FILE = """\
# Lethe at a SQLite file, {schema}: no GRANT; the account of the service needs the modes of files.
# Read and write the file, and write the directory: journals are made beside it.
chown {role} '{schema}' && chmod 0600 '{schema}'
chown {role} "$(dirname '{schema}')" && chmod 0700 "$(dirname '{schema}')"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandsOfKind:
    """A kind of store.

    Args:
        grants: by database, the script of the rights that a role needs, with {schema}, {role}, {prefix}.
        purges: commands of `lethe purge` that only such stores have, by their names.
    """

    grants: Mapping[str, str]
    purges: Mapping[str, Callable[..., int]] = field(default_factory=dict)
