"""Jobs that an admin ended without a proof of silence, and jobs that wait without their claims.

Revision: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("silence_proved", sa.Boolean(), nullable=True))
        batch_op.add_column(sa.Column("fenced_off_at", app.db.UtcDateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("gave_back", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.execute("update jobs set state = 'FAILED' where state = 'ABANDONED'")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("gave_back")
        batch_op.drop_column("fenced_off_at")
        batch_op.drop_column("silence_proved")
