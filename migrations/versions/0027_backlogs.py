"""What waits at each SymmetricDS store: the last look, and looks over time.

Revision: 0027
Revises: 0026
"""

import sqlalchemy as sa
from alembic import op

import app.db

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "backlog_looks",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("target", app.db.JSON_TYPE, nullable=False),
        sa.Column("read_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("as_of", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("problem", sa.String(length=60), nullable=True),
        sa.Column("interval_s", sa.Integer(), nullable=False),
        sa.Column("found", app.db.JSON_TYPE, nullable=True),
        sa.Column("grows_since", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.Column("grew_at", app.db.UtcDateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store"),
    )
    op.create_table(
        "backlog_samples",
        sa.Column("store", sa.String(length=63), nullable=False),
        sa.Column("step_s", sa.Integer(), nullable=False),
        sa.Column("at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("taken_at", app.db.UtcDateTime(timezone=True), nullable=False),
        sa.Column("batches", sa.BigInteger(), nullable=False),
        sa.Column("errors", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("is_at_least", sa.Boolean(), nullable=False),
        sa.Column("pairs", app.db.JSON_TYPE, nullable=False),
        sa.Column("pairs_total", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["store"], ["stores.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store", "step_s", "at"),
    )
    op.create_index("ix_backlog_samples_at", "backlog_samples", ["step_s", "at"])


def downgrade() -> None:
    op.drop_index("ix_backlog_samples_at", table_name="backlog_samples")
    op.drop_table("backlog_samples")
    op.drop_table("backlog_looks")
