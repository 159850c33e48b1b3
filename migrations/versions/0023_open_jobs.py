"""What has not ended in the order of claims: a look for work does not read the whole queue.

Revision: 0023
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

OPEN = sa.text("finished_at IS NULL")
LEASED = sa.text("lease_expires_at IS NOT NULL")


def upgrade() -> None:
    columns = ["job_class", "runs_on_key", "state", "id"]
    op.create_index("ix_jobs_open", "jobs", columns, unique=False, postgresql_where=OPEN, sqlite_where=OPEN)

    op.create_index(
        "ix_jobs_lease",
        "jobs",
        ["lease_expires_at"],
        unique=False,
        postgresql_where=LEASED,
        sqlite_where=LEASED,
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_lease", "jobs")
    op.drop_index("ix_jobs_open", "jobs")
