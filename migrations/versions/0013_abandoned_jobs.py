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
    # Each by itself: a table that others refer to is not made anew, as a batch would with this default.
    op.add_column("jobs", sa.Column("silence_proved", sa.Boolean(), nullable=True))
    op.add_column("jobs", sa.Column("fenced_off_at", app.db.UtcDateTime(timezone=True), nullable=True))
    gave_back = sa.Column("gave_back", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("jobs", gave_back)


def downgrade() -> None:
    for name in ("gave_back", "fenced_off_at", "silence_proved"):
        op.drop_column("jobs", name)
