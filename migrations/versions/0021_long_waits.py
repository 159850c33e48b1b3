"""Waits that last long are found by an index; what webhooks were told of one is kept by the job's own word.

Revision: 0021
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

WAITS = sa.text("waiting_since is not null")


def upgrade() -> None:
    op.create_index(
        "ix_jobs_waiting_since", "jobs", ["waiting_since", "id"], sqlite_where=WAITS, postgresql_where=WAITS
    )
    since = "(select jobs.waiting_since from jobs where jobs.id = webhook_waits.job_id)"
    op.execute(f"update webhook_waits set since = {since} where {since} is not null")


def downgrade() -> None:
    op.drop_index("ix_jobs_waiting_since", table_name="jobs")
