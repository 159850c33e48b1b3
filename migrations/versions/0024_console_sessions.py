"""Who has signed in to the console.

Revision: 0024
Revises: 0023
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "console_sessions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("expires_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_console_sessions_token_id", "console_sessions", ["token_id"], unique=False)
    op.create_index("ix_console_sessions_expires_at", "console_sessions", ["expires_at"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_console_sessions_expires_at", "console_sessions")
    op.drop_index("ix_console_sessions_token_id", "console_sessions")
    op.drop_table("console_sessions")
