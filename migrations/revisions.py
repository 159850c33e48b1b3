"""Which revisions the code has, and where a database stands, without Alembic.

A revision is the number that its file in `versions` begins with: each follows the one before it, and
tests/style/test_migrations.py compares them with what Alembic reads.
"""

from functools import cache
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from app.db import Database
from app.kit.metadata.engines import READ_ONLY

VERSIONS: Final = Path(__file__).parent / "versions"
FILES: Final = "[0-9]*_*.py"
TABLE: Final = "alembic_version"
CURRENT: Final = sa.text(f"select version_num from {TABLE}")


@cache
def revisions() -> tuple[str, ...]:
    """All revisions of the code, oldest first."""
    found = tuple(sorted(file.name.partition("_")[0] for file in VERSIONS.glob(FILES)))
    assert found, f"no migration lies in {VERSIONS}"
    return found


def head_revision() -> str:
    """The newest revision of the code."""
    return revisions()[-1]


def is_known(revision: str) -> bool:
    """Whether the code has this revision; not so after a newer Lethe has migrated the database."""
    return revision in revisions()


def current_revision(database: Database) -> str | None:
    """Where a database stands; None: empty. Whoever migrates it just now is not waited for."""
    with database.engine.connect().execution_options(**READ_ONLY) as connection:
        return revision_of(connection)


def revision_of(connection: sa.Connection) -> str | None:
    """The same, as the transaction of a connection sees it."""
    if not sa.inspect(connection).has_table(TABLE):
        return None
    revision: str | None = connection.execute(CURRENT).scalar_one_or_none()
    return revision
