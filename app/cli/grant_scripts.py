"""The rights that a role needs at a target: one script for each kind of store, complete and nothing besides.

They are run as they are printed, and the tests do every verb of a kind with a role that has just these.
"""

from typing import Final

from app.cli.kinds.kind import FILE, MARIADB, POSTGRESQL, SQLITE
from app.cli.kinds.table import KINDS

SCRIPTS: Final = {
    (kind, database): script for kind, of_kind in KINDS.items() for database, script in of_kind.grants.items()
}
"""By kind of store and database."""
DATABASE_DEFAULT: Final = POSTGRESQL
KINDS_WITH_GRANTS: Final = ", ".join(sorted(KINDS))


def grant_script(kind: str, database: str, *, role: str, schema: str, prefix: str = "sym_") -> str:
    """The script, with every name quoted as its database wants it.

    Args:
        role: MariaDB: `name` or `name@host`; SQLite: the account of the operating system.
        schema: of a SLONY store the cluster's, `_NAME`; MariaDB: the database; SQLite: the file.
    """
    if database == SQLITE:
        return FILE.format(role=role, schema=schema.replace("'", "'\\''"))
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
