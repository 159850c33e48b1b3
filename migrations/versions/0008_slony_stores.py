"""Stores of kind SLONY, and when their events are cleaned next.

Revision: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("stores", schema=None) as batch_op:
        batch_op.add_column(sa.Column("cluster", sa.String(length=62), nullable=True))
    op.create_table(
        "cleanup_ticks",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("interval_s", sa.Float(), nullable=False),
        sa.Column("next_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("last_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("last_job_id", sa.String(length=40), nullable=True),
        sa.Column("last_outcome", sa.String(length=20), nullable=True),
        sa.Column("last_detail", sa.String(length=500), nullable=True),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store"),
    )
    op.create_index("ix_cleanup_ticks_next_at", "cleanup_ticks", ["next_at"], unique=False)


def downgrade() -> None:
    op.drop_table("cleanup_ticks")
    op.execute("delete from stores where kind = 'SLONY'")
    with op.batch_alter_table("stores", schema=None) as batch_op:
        batch_op.drop_column("cluster")
