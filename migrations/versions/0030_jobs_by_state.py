"""Jobs of a state in the order of their ids: a page of a list reads its rows alone.

Revision: 0030
Revises: 0029
"""

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_jobs_state_id", "jobs", ["state", "id"])


def downgrade() -> None:
    op.drop_index("ix_jobs_state_id", "jobs")
