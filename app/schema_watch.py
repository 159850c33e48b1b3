"""Whether the metadata has the schema that this process was made for, while it runs.

Somebody may migrate it by a newer Lethe, or put an older copy in its place.
"""

from enum import StrEnum
from typing import Final

import sqlalchemy as sa
import structlog

from app.db import Database
from migrations.revisions import head_revision, is_known

QUERY: Final = sa.text("select version_num from alembic_version")
logger = structlog.get_logger("lethe.schema")


class Schema(StrEnum):
    """NEWER: of a revision that this version does not know. OLDER: of one that it knows, or of none."""

    SAME = "SAME"
    NEWER = "NEWER"
    OLDER = "OLDER"


class SchemaWatch:
    """What the last look has found; SAME before the first, for the start has looked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.found = Schema.SAME

    def look(self) -> None:
        """One statement.

        Raises: MetadataUnavailable, MetadataBusy.
        """
        revision = self._revision()
        head = head_revision()
        found = Schema.SAME
        if revision != head:
            found = Schema.OLDER if revision is None or is_known(revision) else Schema.NEWER
        if found is not self.found:
            tell = logger.info if found is Schema.SAME else logger.error
            tell("the schema of the metadata has changed", schema=found, revision=revision, made_for=head)
        self.found = found

    def _revision(self) -> str | None:
        try:
            with self._database.reading() as db:
                found: str | None = db.execute(QUERY).scalar()
        except sa.exc.ProgrammingError:  # there is no such table on PostgreSQL
            return None
        return found
